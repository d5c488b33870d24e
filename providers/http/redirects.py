"""Outgoing requests as plain values, and the request that follows from a redirect. Nothing here does I/O.

After a redirect to another origin a request has no body, and of its headers only those in `_CROSS_ORIGIN_HEADERS`.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote_plus, urlencode

import httpx2

from canvas.errors import AddressRefused, HttpFailed
from providers.interfaces import HttpCall

SCHEMES = ("http", "https")
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
MASK = "***"

# headers sent to any origin
_CROSS_ORIGIN_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
_CONNECTION_HEADERS = frozenset(
    {
        "connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")
_SECRETS = re.compile(r"(?i)((?:^|[?&;\s])(?:key|api_key|apikey|token|access_token|auth)=)[^&;#\s\"']*")
_USERINFO = re.compile(r"(://)[^/?#@\s]*@")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to one address. Header names are lower case; the repr contains nothing that may be secret."""

    method: str
    url: httpx2.URL = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)

    @property
    def origin(self) -> str:
        """Return scheme, host and port, the part of the address that messages and logs may contain."""
        return origin_of(self.url)

    @property
    def port(self) -> int:
        return self.url.port or (443 if self.url.scheme == "https" else 80)

    def header_bytes(self) -> list[tuple[bytes, bytes]]:
        """Return the headers as they are sent, `Host` first and `Content-Length` last."""
        sent = [] if "host" in self.headers else [(b"host", self.url.netloc)]
        sent += [(name.encode(), _encode_header(value)) for name, value in self.headers.items()]
        if self.body or self.method in ("POST", "PUT", "PATCH"):
            sent.append((b"content-length", str(len(self.body)).encode()))
        return sent


def first_request(call: HttpCall, user_agent: str) -> HttpRequest:
    """Return the first request of a call. Raises AddressRefused, and HttpFailed if the call cannot be sent."""
    url = parse_url(call.url)
    query = urlencode(list(_text_pairs(call.params or ())), errors="replace").encode()
    if query:
        url = url.copy_with(query=b"&".join(part for part in (url.query, query) if part))
    headers = {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": user_agent}
    if url.userinfo:
        headers["authorization"] = f"Basic {b64encode(f'{url.username}:{url.password}'.encode()).decode()}"
    headers.update(_check_headers(call.headers))
    body, kind = _encode_body(call)
    if kind:
        headers.setdefault("content-type", kind)
    return HttpRequest(call.method.upper(), _strip_url(url), headers, body)


def follow_redirect(hop: HttpRequest, status: int, location: str) -> HttpRequest:
    """Return the request after a redirect.

    Raises AddressRefused, and HttpFailed if the body would go to another origin.
    """
    try:
        joined = hop.url.join(_quote_unprintable(location))
    except (httpx2.InvalidURL, ValueError) as error:
        raise AddressRefused(f"{hop.origin} redirects to an invalid URL.", is_malformed=True) from error
    url = _strip_url(_check_http_url(joined))
    to_get = hop.method not in ("GET", "HEAD") and (status in (302, 303) or (status == 301 and hop.method == "POST"))
    stays = (url.scheme, url.host, url.port) == (hop.url.scheme, hop.url.host, hop.url.port)
    body = b"" if to_get else hop.body
    if body and not stays:
        raise HttpFailed(
            f"{hop.origin} redirects a request with a body to {origin_of(url)}. A body is not sent to another server."
        )
    headers = {
        name: value
        for name, value in hop.headers.items()
        if (stays or name in _CROSS_ORIGIN_HEADERS) and not (to_get and name.startswith("content-"))
    }
    return HttpRequest("GET" if to_get else hop.method, url, headers, body)


def parse_url(text: str) -> httpx2.URL:
    """Parse a URL. Raises AddressRefused if it is not a valid http or https URL."""
    try:
        url = httpx2.URL(_quote_unprintable(text))
    except (httpx2.InvalidURL, ValueError) as error:
        raise AddressRefused(f"Invalid URL: {mask_secrets(str(error))}", is_malformed=True) from error
    return _check_http_url(url)


def origin_of(url: httpx2.URL) -> str:
    """Return scheme, host and port of a URL."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def mask_secrets(text: str) -> str:
    """Return the text with the passwords and keys of its URLs masked."""
    return _SECRETS.sub(rf"\1{MASK}", _USERINFO.sub(rf"\1{MASK}@", text))


def mask_url(url: str) -> str:
    """Return a URL as replies show it, with user, password and query values masked."""
    head, mark, query = _USERINFO.sub(rf"\1{MASK}@", url.partition("#")[0]).partition("?")
    parts = [f"{name}={MASK}" if equals else MASK for name, equals, _ in _parts(query)]
    return f"{head}{mark}{'&'.join(parts)}"


def secrets_of_url(url: str) -> Iterator[str]:
    """Yield the values that `mask_url` masks, both as written and URL-decoded."""
    before, _, query = url.partition("#")[0].partition("?")
    found = [value if equals else name for name, equals, value in _parts(query)]
    if userinfo := _USERINFO.search(before):
        found += userinfo[0].removeprefix("://").removesuffix("@").split(":", 1)
    for value in found:
        yield value
        yield unquote_plus(value)


def _parts(query: str) -> list[tuple[str, str, str]]:
    return [part.partition("=") for part in query.split("&") if part]


def _check_http_url(url: httpx2.URL) -> httpx2.URL:
    if url.scheme not in SCHEMES:
        message = f"Disallowed URL scheme: '{url.scheme}'. Only {list(SCHEMES)} are allowed."
        raise AddressRefused(message, is_malformed=True)
    if not url.host:
        raise AddressRefused("URL is missing a host.", is_malformed=True)
    if url.port is not None and not 0 < url.port < 65536:
        raise AddressRefused(f"Invalid URL: {url.port} is not a valid port.", is_malformed=True)
    return url


def _strip_url(url: httpx2.URL) -> httpx2.URL:
    """Return the URL without user info and fragment, which are never sent in it."""
    return url.copy_with(userinfo=b"", fragment=None)


def _quote_unprintable(text: str) -> str:
    return _UNPRINTABLE.sub(lambda found: quote(found[0]), text.strip())


def _check_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the caller's headers except those of the connection. Raises HttpFailed for an invalid header."""
    for name, value in headers.items():
        lower = name.strip().lower()
        if lower in _CONNECTION_HEADERS:
            continue
        if not _HEADER_NAME.fullmatch(lower) or _CONTROL.search(value.strip()):
            raise HttpFailed(
                f'The header "{name}" cannot be sent: its name is not valid, or its value has control characters.'
            )
        yield lower, value.strip()


def _encode_body(call: HttpCall) -> tuple[bytes, str]:
    """Return the body and its content type; "" if only the caller knows the type."""
    if call.content is not None:
        return call.content, ""
    if call.form is not None:
        form = urlencode(list(_text_pairs(call.form)), errors="replace").encode()
        return form, "application/x-www-form-urlencoded" if form else ""
    if call.has_json or call.json is not None:
        try:
            return json.dumps(call.json, allow_nan=False).encode(), "application/json"
        except (TypeError, ValueError, RecursionError) as error:
            raise HttpFailed(f"The body cannot be written as JSON: {error}") from error
    return b"", ""


def _text_pairs(values: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield names and values as text: a list repeats its name, null is omitted, booleans are written as in JSON."""
    items: Iterable[tuple[str, Any]] = values.items() if isinstance(values, Mapping) else values
    for name, value in items:
        for each in value if isinstance(value, list | tuple) else (value,):
            if each is not None:
                yield name, str(each).lower() if isinstance(each, bool) else str(each)


def _encode_header(text: str) -> bytes:
    """Encode a header value as Latin-1, or as UTF-8 if it has other characters."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
