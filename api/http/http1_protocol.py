"""The HTTP/1.1 protocol of the API: time limits for heads and bodies, and no ambiguous requests.

`easel api` passes this protocol to uvicorn. A client has 10 s for the head of a request, from the connection or from
the first byte of the head. A body must not be slower than 1 KiB/s for more than 20 s; time in which the application
does not read does not count. Bare line feeds, folded headers, and a length that is not a number, or is repeated or
beside `Transfer-Encoding`, are a 400: a proxy may read such a request as two (request smuggling).
"""

import asyncio
import re
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BEFORE_SHUTDOWN = "before_shutdown"
"""The name in the application's lifespan state of a function that is called when the server begins to shut down.

The server ends the application only after all streams have ended, so it is this call that ends endless ones.
"""

MAX_HEAD_BYTES = 32 * 1024  # bytes

_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_STRAY = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_FOLDED = re.compile(rb"\r\n[ \t]")


def check_head(received: bytes) -> None:
    """Check the received part of a request's head. Raises RemoteProtocolError if it is ambiguous."""
    end = received.find(b"\r\n\r\n")
    head = received[: end + 2] if end >= 0 else received.removesuffix(b"\r")
    if _STRAY.search(head):
        raise h11.RemoteProtocolError("A line of the head ends with a bare CR or LF.")
    if _FOLDED.search(head):
        raise h11.RemoteProtocolError("A header is folded.")
    if end >= 0:
        _check_length(head)


def _check_length(head: bytes) -> None:
    request, *headers = head.split(b"\r\n")
    fields = [header.partition(b":")[::2] for header in headers]
    lengths = [value.strip(b" \t") for name, value in fields if name.strip().lower() == b"content-length"]
    encodings = sum(name.strip().lower() == b"transfer-encoding" for name, _ in fields)
    if len(lengths) + encodings > 1 or (encodings and request.endswith(b"HTTP/1.0")):
        raise h11.RemoteProtocolError("The length of the body is ambiguous.")
    if not all(length.isdigit() for length in lengths):  # h11 would accept `5, 5`
        raise h11.RemoteProtocolError("Content-Length is not a number.")


class StrictConnection(h11.Connection):
    """An h11 connection that checks each head before h11 parses it."""

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            check_head(self.trailing_data[0])
        return super().next_event()


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol over h11, with time limits and without ambiguous requests."""

    head_seconds: ClassVar[float] = 10.0
    body_seconds: ClassVar[float] = 20.0
    min_body_rate: ClassVar[float] = 1024.0  # bytes of a body a second

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = StrictConnection(h11.SERVER, MAX_HEAD_BYTES)
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for: Any = None  # h11.IDLE: a head; h11.SEND_BODY: a body; None: nothing
        self._deadline = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline(h11.IDLE, self.head_seconds)

    def shutdown(self) -> None:
        before_shutdown = self.app_state.get(BEFORE_SHUTDOWN)
        if before_shutdown is not None:
            before_shutdown()
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None, 0.0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        state = self.conn.their_state
        if self.transport.is_closing() or state not in (h11.IDLE, h11.SEND_BODY):
            self._set_deadline(None, 0.0)
        elif state is not self._waits_for:
            self._set_deadline(state, self.head_seconds if state is h11.IDLE else self.body_seconds)
        elif state is h11.SEND_BODY:
            longest = self.loop.time() + self.body_seconds
            self._deadline = min(self._deadline + len(data) / self.min_body_rate, longest)

    def _set_deadline(self, for_what: Any, seconds: float) -> None:
        """Set the time within which a head or a body must arrive; None: wait for nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waits_for = for_what
        if for_what is not None:
            self._deadline = self.loop.time() + seconds
            self._timer = self.loop.call_later(seconds, self._check_deadline)

    def _check_deadline(self) -> None:
        """Close the connection if its client is late."""
        now = self.loop.time()
        if self._waits_for is h11.SEND_BODY and self.flow.read_paused:  # the application has enough to read
            self._deadline = now + self.body_seconds
        if now < self._deadline:
            self._timer = self.loop.call_later(self._deadline - now, self._check_deadline)
            return
        self._timer = None
        if self._waits_for is h11.IDLE and self.conn.trailing_data[0]:
            self.transport.write(_LATE)
        self.transport.close()
