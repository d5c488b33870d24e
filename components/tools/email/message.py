"""E-mail messages: recipients, headers, and the bytes for the mail server.

Text from outside cannot inject a header line: control characters are removed, text beyond ASCII becomes an encoded
word, and addresses with characters beyond the plain ones are refused.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.charset import BASE64, Charset
from email.header import Header
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.policy import compat32
from email.utils import format_datetime, formataddr
from hashlib import sha256
from typing import Any

from canvas.errors import ToolError
from components.text.templates.templates import value_text
from components.tools.framework.parameters import listed
from providers.models.text.sanitizer import clean

NO_SUBJECT, NO_CONTENT = "No Subject", "No content provided"
MOST_RECIPIENTS = 100  # every mail server must accept that many (RFC 5321)
LONGEST_ADDRESS, LONGEST_LOCAL = 254, 64  # characters
LONGEST_SUBJECT, LONGEST_NAME = 900, 100

_PARTS = re.compile(r'(?:"[^"\r\n]*"|[^,;\r\n"])+')  # divided by commas, semicolons and line ends outside of quotes
_NAMED = re.compile(r'(?:"[^"]*"|[^<>"])*<([^<>]*)>\s*')
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL = re.compile(rf"{_ATOM}(?:\.{_ATOM})*")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_WORDS = Charset("utf-8")
_WORDS.header_encoding = BASE64


@dataclass(frozen=True, slots=True)
class Letter:
    """A message. `to` and `cc` have no address in common; `key` is the same in every attempt to send the message.

    `names` holds the recipients' names by address, where given.
    """

    sender: str
    sender_name: str
    to: Sequence[str]
    cc: Sequence[str]
    subject: str
    html: str
    key: str
    names: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def recipients(self) -> list[str]:
        return [*self.to, *self.cc]

    @property
    def message_id(self) -> str:
        """The Message-ID, by which a mailbox detects a duplicate."""
        digest = sha256(f"letter\n{self.key}".encode()).hexdigest()[:40]
        return f"<{digest}@{self.sender.rpartition('@')[2]}>"


def addresses_in(value: Any, *, but: Iterable[str] = ()) -> list[str]:
    """Return the addresses in a text or a list of texts, each once. Raises ToolError for an invalid address.

    Addresses are divided by commas, semicolons or line ends, and may have a name: `Ann Lee <ann@example.com>`. A list
    may be JSON text written by a model. Addresses in `exclude` are left out.
    """
    known = {address.lower() for address in but}
    found: list[str] = []
    for part in _parts(value):
        address = address_of(part)
        if address.lower() not in known:
            known.add(address.lower())
            found.append(address)
    return found


def names_in(value: Any) -> dict[str, str]:
    """Return the names given with addresses, by address; of a repeated address the first name."""
    names: dict[str, str] = {}
    for part in _parts(value):
        before, mark, _ = part.strip().rpartition("<")
        name = _one_line(before.strip().strip('"').replace('\\"', '"'))[:LONGEST_NAME].strip()
        if mark and name:
            names.setdefault(address_of(part), name)
    return names


def _parts(value: Any) -> Iterator[str]:
    values = listed(value)
    for text in values if isinstance(values, list | tuple) else (values,):
        yield from (part for part in _PARTS.findall(value_text(text)) if part.strip())


def address_of(text: str) -> str:
    """Return one address with its domain in ASCII (IDNA). Raises ToolError if it is invalid."""
    named = _NAMED.fullmatch(text.strip())
    local, mark, domain = (named.group(1) if named else text).strip().rpartition("@")
    try:
        domain = domain if domain.isascii() else domain.encode("idna").decode("ascii")
    except UnicodeError:
        mark = ""
    address = f"{local}@{domain}"
    is_one = mark and _LOCAL.fullmatch(local) and _DOMAIN.fullmatch(domain)
    if not is_one or len(local) > LONGEST_LOCAL or len(address) > LONGEST_ADDRESS:
        raise ToolError(f"Invalid email address: {_one_line(text)[:LONGEST_ADDRESS]}")
    return address


def written(letter: Letter, now: datetime) -> bytes:
    """Return the message as bytes for the mail server: ASCII lines that end in CRLF."""
    boundary = sha256(f"boundary\n{letter.key}".encode()).hexdigest()[:40]
    whole = MIMEMultipart("alternative", boundary=f"=_{boundary}")
    whole["From"] = _named(letter.sender_name, letter.sender)
    whole["To"] = _addressed(letter.to, letter.names)
    if letter.cc:
        whole["Cc"] = _addressed(letter.cc, letter.names)
    whole["Subject"] = _header(_one_line(letter.subject)[:LONGEST_SUBJECT] or NO_SUBJECT)
    whole["Date"] = format_datetime(now)
    whole["Message-ID"] = letter.message_id
    whole.attach(MIMEText(clean(letter.html) if letter.html.strip() else NO_CONTENT, "html", "utf-8"))
    return whole.as_bytes(policy=compat32.clone(linesep="\r\n"))


def _addressed(addresses: Sequence[str], names: Mapping[str, str]) -> str:
    return ", ".join(_named(names.get(address, ""), address) for address in addresses)


def _named(name: str, address: str) -> str:
    """Return an address with its name, quoted or encoded where needed."""
    plain = _one_line(name)[:LONGEST_NAME].strip()
    if plain and not _is_plain(plain):
        return f"{_header(plain)} <{address}>"
    return formataddr((plain, address))


def _header(text: str) -> str:
    """Return a text without control characters as a header value: encoded words unless it is plain ASCII."""
    return text if _is_plain(text) else Header(text, _WORDS).encode(linesep="\r\n")


def _is_plain(text: str) -> bool:
    return text.isascii() and "=?" not in text


def _one_line(text: str) -> str:
    return " ".join(_CONTROL.sub(" ", clean(text)).split())
