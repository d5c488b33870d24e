"""The HTTP transport to one provider, for the client of the SDK.

A model call is one POST over one connection, and mostly waits. The general transport of `httpx2` iterates over all of
its connections whenever a request begins or ends, and reads through four layers. This transport has one asyncio
protocol per connection, and reuses the free connection that was used last. Connections go to checked addresses
(`providers/models/transport/connect.py`). Proxies are handled elsewhere (`providers/models/transport/clients.py`).
See docs/decisions/0017-own-transport-for-model-calls.md.

A connection whose response was not read to the end is closed, so that cancelling a call also stops the provider's work.
"""

import asyncio
import select
import ssl
from collections import deque
from collections.abc import Mapping

import httpx2

from canvas.errors import AddressRefused, ToolError
from providers.address_policy import Resolve
from providers.models.transport.connect import ModelAddressPolicy, open_checked_socket, resolve_model_host
from providers.models.transport.http1 import MalformedResponse, ResponseParser, request_bytes

MAX_IDLE_CONNECTIONS = 100  # idle connections of one client
IDLE_TIMEOUT = 4.0  # many servers close idle connections after 5 s; a close during a write fails the request
MAX_UNREAD_BYTES = 256 * 1024  # unread bytes of a response after which reading from the socket pauses

_Place = tuple[str, str, int]  # scheme, host, port


class PooledTransport(httpx2.AsyncBaseTransport):
    """The transport of one client on one event loop. It raises AddressRefused, and errors of httpx2."""

    def __init__(
        self, tls: ssl.SSLContext, hosts: ModelAddressPolicy | None = None, *, resolve: Resolve = resolve_model_host
    ) -> None:
        self._tls = tls
        self._hosts = hosts or ModelAddressPolicy()
        self._resolve = resolve
        self._idle: dict[_Place, dict[_Connection, None]] = {}  # ordered, the most recently used last
        self._open: set[_Connection] = set()
        self._is_closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, limits = request.url, _timeouts(request)
        if url.scheme not in ("http", "https") or not url.host:
            raise httpx2.UnsupportedProtocol(f"'{url.scheme}' is not a supported URL scheme")
        place = (url.scheme, url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80))
        body = await request.aread()
        try:
            sent = request_bytes(request.method, url.raw_path, request.headers.raw, body)
        except ValueError as error:
            raise httpx2.LocalProtocolError(str(error)) from error
        connection = self._take_idle(place) or await self._connect(place, limits.get("connect"))
        answer = await connection.send(sent, request.method, limits.get("read"))
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(self, connection),
            extensions={"http_version": b"HTTP/1.1"},
        )

    async def aclose(self) -> None:
        self._is_closed = True
        for connection in list(self._open):
            connection.close()

    def reuse(self, connection: "_Connection") -> None:
        """Keep a connection whose response is complete for the next request, or close it."""
        if not connection.is_reusable or len(self._idle.get(connection.place, ())) >= MAX_IDLE_CONNECTIONS:
            connection.close()
            return
        connection.stay_idle(IDLE_TIMEOUT)
        self._idle.setdefault(connection.place, {})[connection] = None

    def remove(self, connection: "_Connection") -> None:
        """Remove a closed connection."""
        self._open.discard(connection)
        idle = self._idle.get(connection.place, {})
        idle.pop(connection, None)
        if not idle:
            self._idle.pop(connection.place, None)

    def _take_idle(self, place: _Place) -> "_Connection | None":
        """Return the idle connection that was used last, since the server is least likely to have closed it."""
        idle = self._idle.get(place)
        while idle:
            connection, _ = idle.popitem()
            if connection.is_reusable and connection.is_quiet:
                return connection
            connection.close()
        return None

    async def _connect(self, place: _Place, seconds: float | None) -> "_Connection":
        try:
            async with asyncio.timeout(seconds):
                connection = await self._open_connection(place)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"no connection within {seconds:g} s" if seconds else str(error)) from error
        except AddressRefused as error:
            if isinstance(error.__cause__, OSError):  # the name could not be resolved, which may be temporary
                raise httpx2.ConnectError(error.message) from error
            raise
        except ToolError as error:
            raise httpx2.ConnectError(error.message) from error
        except (OSError, UnicodeError) as error:  # includes untrusted certificates and invalid host names
            raise httpx2.ConnectError(str(error) or type(error).__name__) from error
        if self._is_closed:  # closed while the connection was being opened
            connection.close()
            raise httpx2.ConnectError("the client is closed")
        self._open.add(connection)
        return connection

    async def _open_connection(self, place: _Place) -> "_Connection":
        scheme, host, port = place
        is_tls = scheme == "https"
        opened = await open_checked_socket(host, port, self._hosts, self._resolve)
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self, place),
                sock=opened,
                ssl=self._tls if is_tls else None,
                server_hostname=host if is_tls else None,
            )
        except BaseException:  # also when cancelled: no other code closes the socket
            opened.close()
            raise
        return connection


class _Connection(asyncio.Protocol):
    """A connection and the response that is received over it."""

    __slots__ = (
        "_answer", "_deadline", "_error", "_is_paused", "_loop", "_owner", "_parts", "_read_timeout", "_timer",
        "_transport", "_unread", "_waiter", "place",
    )  # fmt: skip

    def __init__(self, owner: PooledTransport, place: _Place) -> None:
        self.place = place
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None  # None once it is closed
        self._answer: ResponseParser | None = None
        self._parts: deque[bytes] = deque()
        self._unread = 0  # bytes of the parts
        self._is_paused = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None  # the idle timeout, or the read timeout during a response
        self._read_timeout: float | None = None  # the read timeout
        self._deadline = 0.0  # end of the read timeout on the loop's clock

    # -- for callers ----------------------------------------------------------------------------------------------
    @property
    def is_reusable(self) -> bool:
        """Return whether the connection is open and its response is complete."""
        is_done = self._answer is None or (self._answer.is_over and self._answer.is_reusable)
        return self._transport is not None and is_done

    @property
    def is_quiet(self) -> bool:
        """Return whether the socket has no unread input, which would most likely mean that the server has closed it."""
        if self._transport is None:
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    async def send(self, sent: bytes, method: str, seconds: float | None) -> ResponseParser:
        """Send a request, and return the response once its head is complete. Raises errors of httpx2."""
        self._stop_timer()
        self._answer = answer = ResponseParser(method)
        self._read_timeout = seconds
        try:
            if self._transport is not None:
                self._transport.write(sent)
            while not answer.status:
                await self._wait_for_data()
        except BaseException:  # cancelled or failed: no caller will read the response
            self.close()
            raise
        return answer

    async def next_part(self) -> bytes | None:
        """Return the next part of the body; None at its end. Raises errors of httpx2."""
        while not self._parts:
            if self._answer is None or self._answer.is_over:
                return None
            await self._wait_for_data()
        part = self._parts.popleft()
        self._unread -= len(part)
        if self._is_paused and self._unread <= MAX_UNREAD_BYTES // 2 and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return part

    def stay_idle(self, seconds: float) -> None:
        """Stay open for the next request, at most for `seconds`."""
        self._answer = None
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self.close)

    def close(self) -> None:
        """Close the connection at once, without sending buffered data."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._stop_timer()
        self._owner.remove(self)

    async def _wait_for_data(self) -> None:
        """Wait until data has arrived. Raises errors of httpx2."""
        if self._error is not None:
            raise self._error
        if self._transport is None:
            raise httpx2.ReadError("the connection is closed")
        self._waiter = self._loop.create_future()
        if self._read_timeout is not None:
            self._deadline = self._loop.time() + self._read_timeout
            if self._timer is None:
                self._timer = self._loop.call_at(self._deadline, self._check_read_timeout)
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._error is not None and not self._parts:
            raise self._error

    # -- for the event loop ---------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.is_over:
            self.close()  # data without a request
            return
        try:
            parts = self._answer.feed(data)
        except MalformedResponse as error:
            self._fail(httpx2.RemoteProtocolError(str(error)))
            return
        self._parts.extend(parts)
        self._unread += sum(map(len, parts))
        if self._unread > MAX_UNREAD_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        if self._parts or self._answer.status or self._answer.is_over:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if exc is not None:
            self._fail(httpx2.ReadError(str(exc) or type(exc).__name__))
        elif self._answer is not None and not self._answer.is_over:
            try:
                self._answer.end()
            except MalformedResponse as error:
                self._fail(httpx2.RemoteProtocolError(str(error)))
        self.close()
        self._wake()

    def _check_read_timeout(self) -> None:
        """Fail if the read timeout is over, or set the timer again (one timer per response, not one per part)."""
        self._timer = None
        if self._waiter is None:
            return  # the reader is not waiting; its next wait sets the timer again
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check_read_timeout)
        else:
            self._fail(httpx2.ReadTimeout(f"no data was received for {self._read_timeout:g} s"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error  # later errors are consequences of the first one
        self.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Body(httpx2.AsyncByteStream):
    """The body of a response. Its connection is reused after the end of the body, and closed if it ends earlier."""

    __slots__ = ("_connection", "_owner")

    def __init__(self, owner: PooledTransport, connection: _Connection) -> None:
        self._owner = owner
        self._connection: _Connection | None = connection

    def __aiter__(self) -> "_Body":
        return self

    async def __anext__(self) -> bytes:
        connection = self._connection
        part = await connection.next_part() if connection is not None else None
        if part is not None:
            return part
        if connection is not None:
            self._connection = None
            self._owner.reuse(connection)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _timeouts(request: httpx2.Request) -> Mapping[str, float | None]:
    return request.extensions.get("timeout", {})
