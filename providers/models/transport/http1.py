"""HTTP/1.1 as a client of one provider speaks it: a request as bytes, and an answer read as it comes.

Nothing here touches the network. An answer may be cut anywhere; what it says does not depend on it. The parser is
llhttp by way of `httptools`, as strict as it can be: what leaves open where an answer ends is refused, for the next
answer on the connection begins there. What that parser leaves to its user is here: versions and statuses that it lets
through, a limit for a head, and where an answer ends that has no end of its own.
"""

import re
from collections.abc import Sequence

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

LARGEST_HEAD = 128 * 1024  # bytes, those of answers on their way included; and of what comes between parts of a body

Headers = list[tuple[bytes, bytes]]

_BEGIN = re.compile(rb"[A-Z]+ [!-~]+ HTTP/1\.1")
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00\r\n]*")
_FRAMING = (b"content-length", b"transfer-encoding")


class MalformedResponse(Exception):
    """What came over a connection is no answer in HTTP/1.1, or not a whole one."""


class Answer:
    """One answer, fed with bytes as they come. `status` is 0 until its head is here. The parser calls what is `on_`."""

    __slots__ = (
        "_ends_with_connection", "_is_without_body", "_may_be_reused", "_parser", "_parts", "_silent",
        "headers", "is_over", "is_reusable", "status",
    )  # fmt: skip

    def __init__(self, method: str = "POST") -> None:
        self.status = 0
        self.headers: Headers = []
        self.is_over = False  # whether all of it is here
        self.is_reusable = False  # whether another request may follow on the connection, once the answer is over
        self._is_without_body = method == "HEAD"
        self._may_be_reused = True
        self._ends_with_connection = False
        self._parts: list[bytes] = []
        self._silent = 0  # bytes since the last that told something
        self._parser: HttpResponseParser | None = HttpResponseParser(self)  # until it is over: the two hold each other

    def feed(self, data: bytes) -> list[bytes]:
        """The parts of the body in these bytes, which come after those before. Raises BrokenAnswer."""
        self._parts = parts = []
        if not self.status:  # the parser has no limit; in a slice of what may come, a head ends or is too long
            room = LARGEST_HEAD - self._silent
            self._read(data[:room])
            if not self.status and self._silent >= LARGEST_HEAD:
                raise MalformedResponse(f"The head of the answer is longer than {LARGEST_HEAD:,} bytes.")
            data = data[room:]
        if data:
            self._read(data)
            if self._silent > LARGEST_HEAD:
                raise MalformedResponse("The answer goes on and on without saying anything.")
        if self.is_over:
            self._parser = None
        return parts

    def end(self) -> None:
        """The connection has ended. Raises BrokenAnswer unless the answer ends with it."""
        self._parser = None
        self.is_reusable = False
        self.is_over = self.is_over or self._ends_with_connection
        if not self.is_over:
            raise MalformedResponse("The server closed the connection before its answer was whole.")

    def _read(self, data: bytes) -> None:
        if self._parser is None or self.is_over:
            self.is_reusable = False  # nobody has asked for more
            return
        self._silent += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.is_reusable = False
            if not self.is_over:
                if isinstance(error.__context__, MalformedResponse):  # from one of the methods below
                    raise MalformedResponse(str(error.__context__)) from error
                raise MalformedResponse(f"The server does not answer in HTTP/1.1: {error}.") from error
        if self._parts:
            self._silent = 0

    # -- for the parser -------------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        if self.is_over:
            raise MalformedResponse("Nobody has asked for more.")
        self.headers = []  # those before were of an answer on its way

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # trailers say nothing that we need
            self.headers.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        if version not in ("1.1", "1.0") or status < 100:
            raise MalformedResponse("The server does not answer in HTTP/1.1.")
        if status == 101:
            raise MalformedResponse("The server answers in a protocol that nobody asked for.")
        if status < 200:
            return  # the answer is on its way
        codings, lengths = (_words(self.headers, name) for name in (b"transfer-encoding", b"content-length"))
        if codings not in ([], [b"chunked"]):
            raise MalformedResponse("The answer is packed in a way that nobody asked for.")
        self.status = status
        self._silent = 0
        self._may_be_reused = version == "1.1" or not codings  # RFC 9112, 6.1
        self._ends_with_connection = not (codings or lengths or status in (204, 304))
        if self._is_without_body:  # which the parser cannot be told
            self.is_over = True
            raise MalformedResponse("Nobody has asked for a body.")

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self.status:
            self.is_over = True
            self.is_reusable = self._may_be_reused and self._parser.should_keep_alive()


def request_bytes(method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    """A request as it is sent. Its length is told here, whatever `headers` say. ValueError if they say too much."""
    first = b"%s %s HTTP/1.1" % (method.encode("ascii"), target)
    if not _BEGIN.fullmatch(first):
        raise ValueError("The method or the address of a request has characters that may not stand there.")
    lines = [b"%s: %s" % header for header in headers if header[0].lower() not in _FRAMING]
    if not all(map(_HEADER.fullmatch, lines)):
        raise ValueError("A header of a request is one line, of a name and a value.")
    if body or method not in ("GET", "HEAD"):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join((first, *lines, b"", body))


def _words(headers: Headers, name: bytes) -> list[bytes]:
    """All that a header says, in small letters, however many lines it takes."""
    told = b",".join(value for each, value in headers if each.lower() == name)
    return [word.strip().lower() for word in told.split(b",") if word.strip()] if told else []
