"""E-mail messages: recipients, headers, and the bytes for the mail server.

Text from outside cannot inject a header line: control characters are removed before Python's EmailMessage, which
refuses them, and addresses with characters beyond the plain ones are refused.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from hashlib import sha256
from typing import Any

from canvas.errors import ToolError
from components.text.templates.templates import value_text
from components.tools.framework.parameters import parse_list
from providers.models.text.sanitizer import clean

NO_SUBJECT, NO_CONTENT = "No Subject", "No content provided"
MAX_RECIPIENTS = 100  # every mail server must accept that many (RFC 5321)
MAX_ADDRESS_LENGTH, MAX_LOCAL_PART_LENGTH = 254, 64  # characters
MAX_SUBJECT_LENGTH, MAX_NAME_LENGTH = 900, 100

_PARTS = re.compile(r'(?:"[^"\r\n]*"|[^,;\r\n"])+')  # divided by commas, semicolons and line ends outside of quotes
_NAMED = re.compile(r'(?:"[^"]*"|[^<>"])*<([^<>]*)>\s*')
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL = re.compile(rf"{_ATOM}(?:\.{_ATOM})*")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_POLICY = SMTP.clone(cte_type="7bit")


@dataclass(frozen=True, slots=True)
class OutgoingEmail:
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


def parse_addresses(value: Any, *, exclude: Iterable[str] = ()) -> list[str]:
    """Return the addresses in a text or a list of texts, each once. Raises ToolError for an invalid address.

    Addresses are divided by commas, semicolons or line ends, and may have a name: `Ann Lee <ann@example.com>`. A list
    may be JSON text written by a model. Addresses in `exclude` are left out.
    """
    known = {address.lower() for address in exclude}
    found: list[str] = []
    for part in _split_addresses(value):
        address = parse_address(part)
        if address.lower() not in known:
            known.add(address.lower())
            found.append(address)
    return found


def parse_names(value: Any) -> dict[str, str]:
    """Return the names given with addresses, by address; of a repeated address the first name."""
    names: dict[str, str] = {}
    for part in _split_addresses(value):
        before, mark, _ = part.strip().rpartition("<")
        name = _one_line(before.strip().strip('"').replace('\\"', '"'))[:MAX_NAME_LENGTH].strip()
        if mark and name:
            names.setdefault(parse_address(part), name)
    return names


def _split_addresses(value: Any) -> Iterator[str]:
    values = parse_list(value)
    for text in values if isinstance(values, list | tuple) else (values,):
        yield from (part for part in _PARTS.findall(value_text(text)) if part.strip())


def parse_address(text: str) -> str:
    """Return one address with its domain in ASCII (IDNA). Raises ToolError if it is invalid."""
    named = _NAMED.fullmatch(text.strip())
    local, mark, domain = (named.group(1) if named else text).strip().rpartition("@")
    try:
        domain = domain if domain.isascii() else domain.encode("idna").decode("ascii")
    except UnicodeError:
        mark = ""
    address = f"{local}@{domain}"
    is_one = mark and _LOCAL.fullmatch(local) and _DOMAIN.fullmatch(domain)
    if not is_one or len(local) > MAX_LOCAL_PART_LENGTH or len(address) > MAX_ADDRESS_LENGTH:
        raise ToolError(f"Invalid email address: {_one_line(text)[:MAX_ADDRESS_LENGTH]}")
    return address


def encode_message(email: OutgoingEmail, now: datetime) -> bytes:
    """Return the message as bytes for the mail server: ASCII lines that end in CRLF."""
    whole = EmailMessage(_POLICY)
    whole["MIME-Version"] = "1.0"
    whole["From"] = _named_address(email.sender_name, email.sender)
    whole["To"] = [_named_address(email.names.get(address, ""), address) for address in email.to]
    if email.cc:
        whole["Cc"] = [_named_address(email.names.get(address, ""), address) for address in email.cc]
    whole["Subject"] = _header_text(email.subject, MAX_SUBJECT_LENGTH) or NO_SUBJECT
    whole["Date"] = now
    whole["Message-ID"] = email.message_id
    whole.add_alternative(clean(email.html) if email.html.strip() else NO_CONTENT, subtype="html", cte="base64")
    whole.set_boundary("=_" + sha256(f"boundary\n{email.key}".encode()).hexdigest()[:40])
    return whole.as_bytes()


def _named_address(name: str, address: str) -> Address:
    return Address(_header_text(name, MAX_NAME_LENGTH), addr_spec=address)


def _header_text(text: str, limit: int) -> str:
    """Return a text as one line without the beginning of an encoded word, which EmailMessage would decode."""
    return _one_line(text).replace("=?", "= ?")[:limit].strip()


def _one_line(text: str) -> str:
    return " ".join(_CONTROL.sub(" ", clean(text)).split())
