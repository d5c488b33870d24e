"""HTTP/1.1 for clients: writes a request as bytes, and parses a response while it arrives.

Nothing here does I/O. A response may arrive in parts of any size, with the same result. The parser is llhttp (package
`httptools`) in its strictest mode: a response whose end is ambiguous is refused, because the next response on the
connection starts there. This module adds the checks that the parser leaves to its user: versions and statuses, a limit
for the size of a head, and the end of a response that ends with its connection.
"""

import re
from collections.abc import Sequence

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_HEAD_BYTES = 128 * 1024  # bytes of heads, informational ones (1xx) included, and of framing between parts of a body

Headers = list[tuple[bytes, bytes]]

_BEGIN = re.compile(rb"[A-Z]+ [!-~]+ HTTP/1\.1")
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00\r\n]*")
_FRAMING = (b"content-length", b"transfer-encoding")


class MalformedResponse(Exception):
    """The bytes received are not a valid HTTP/1.1 response, or the response is not complete."""


class ResponseParser:
    """One response, fed with bytes as they arrive. `status` is 0 until the head is complete.

    The parser calls the methods `on_...`.
    """

    __slots__ = (
        "_bytes_without_content",
        "_ends_with_connection",
        "_is_without_body",
        "_may_be_reused",
        "_parser",
        "_parts",
        "headers",
        "is_over",
        "is_reusable",
        "status",
    )  # fmt: skip

    def __init__(self, method: str = "POST") -> None:
        self.status = 0
        self.headers: Headers = []
        self.is_over = False  # whether the response is complete
        self.is_reusable = False  # whether the connection can be used for another request after this response
        self._is_without_body = method == "HEAD"
        self._may_be_reused = True
        self._ends_with_connection = False
        self._parts: list[bytes] = []
        self._bytes_without_content = 0  # bytes since the last part of the body or the start
        self._parser: HttpResponseParser | None = HttpResponseParser(self)  # dropped at the end, to break the cycle

    def feed(self, data: bytes) -> list[bytes]:
        """Parse the next bytes and return the parts of the body in them. Raises MalformedResponse."""
        self._parts = parts = []
        if not self.status:  # the parser has no limit for a head, so it gets only as many bytes as a head may have
            allowed = MAX_HEAD_BYTES - self._bytes_without_content
            self._read(data[:allowed])
            if not self.status and self._bytes_without_content >= MAX_HEAD_BYTES:
                raise MalformedResponse(f"The head of the answer is longer than {MAX_HEAD_BYTES:,} bytes.")
            data = data[allowed:]
        if data:
            self._read(data)
            if self._bytes_without_content > MAX_HEAD_BYTES:
                raise MalformedResponse(f"The answer has more than {MAX_HEAD_BYTES:,} bytes without content.")
        if self.is_over:
            self._parser = None
        return parts

    def end(self) -> None:
        """Note the end of the connection. Raises MalformedResponse unless the response ends with it."""
        self._parser = None
        self.is_reusable = False
        self.is_over = self.is_over or self._ends_with_connection
        if not self.is_over:
            raise MalformedResponse("The server closed the connection before its answer was complete.")

    def _read(self, data: bytes) -> None:
        if self._parser is None or self.is_over:
            self.is_reusable = False  # bytes after the end of the response
            return
        self._bytes_without_content += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.is_reusable = False
            if not self.is_over:
                if isinstance(error.__context__, MalformedResponse):  # raised by a callback below
                    raise MalformedResponse(str(error.__context__)) from error
                raise MalformedResponse(f"The server does not answer in HTTP/1.1: {error}.") from error
        if self._parts:
            self._bytes_without_content = 0

    # -- callbacks of the parser ----------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        if self.is_over:
            raise MalformedResponse("The server sends more than one answer.")
        self.headers = []  # drop the headers of an informational response

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # trailers are ignored
            self.headers.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        if version not in ("1.1", "1.0") or status < 100:
            raise MalformedResponse("The server does not answer in HTTP/1.1.")
        if status == 101:
            raise MalformedResponse("The server switches to another protocol, which was not requested.")
        if status < 200:
            return  # an informational response; the final one follows
        codings, lengths = (_words(self.headers, name) for name in (b"transfer-encoding", b"content-length"))
        if codings not in ([], [b"chunked"]):
            raise MalformedResponse("The answer has a transfer encoding that was not requested.")
        self.status = status
        self._bytes_without_content = 0
        self._may_be_reused = version == "1.1" or not codings  # RFC 9112, 6.1
        self._ends_with_connection = not (codings or lengths or status in (204, 304))
        if self._is_without_body:  # the parser has no option for this
            self.is_over = True
            raise MalformedResponse("The answer to a HEAD request ends with its head.")

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self.status:
            self.is_over = True
            self.is_reusable = self._may_be_reused and self._parser.should_keep_alive()


def request_bytes(method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    """Return a request as bytes; `Content-Length` is set here. Raises ValueError for invalid headers or addresses."""
    first = b"%s %s HTTP/1.1" % (method.encode("ascii"), target)
    if not _BEGIN.fullmatch(first):
        raise ValueError("The method or the address of the request has invalid characters.")
    lines = [b"%s: %s" % header for header in headers if header[0].lower() not in _FRAMING]
    if not all(map(_HEADER.fullmatch, lines)):
        raise ValueError("A header of the request is not valid. It must be one line with a name and a value.")
    if body or method not in ("GET", "HEAD"):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join((first, *lines, b"", body))


def _words(headers: Headers, name: bytes) -> list[bytes]:
    """Return the comma-separated words of a header in lower case, joined over all its lines."""
    joined = b",".join(value for each, value in headers if each.lower() == name)
    return [word.strip().lower() for word in joined.split(b",") if word.strip()] if joined else []
