"""The way out for a browser that is not ours to change: a forward proxy which checks every address (tools 1.11).

    async with Egress(guard) as egress:
        ...  # start the browser with --proxy-server={egress.url}

What the client of `providers/http/client.py` does for our own requests, this does for a program that makes its own: the
host of each request is looked up here, each of its addresses is checked, and the connection goes to one that was. It
listens on loopback only, reads nothing of what is inside a tunnel, and carries one plain request a connection.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

from canvas.errors import AddressRefused, ToolError
from providers.http import address_policy
from providers.http.address_policy import Guard, Resolve, addresses_of

LARGEST_HEAD = 64 * 1024  # bytes
PIECE = 64 * 1024  # bytes that are handed on at once
CONNECT_SECONDS = 10.0  # for each address of a host
MOST_ADDRESSES = 4  # of one host that are tried
MOST_BYTES = 1024 * 1024 * 1024  # that one browser may move: a page without an end must not fill the disk
MOST_REFUSED = 200  # hosts whose reasons are kept

_HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "upgrade",
    }
)  # fmt: skip
_STATUS_LINE = re.compile(r"HTTP/1\.[01] ([1-9]\d\d)(?: .*)?")
_REASONS = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}


@dataclass(frozen=True, slots=True)
class Request:
    """What a proxy is asked for: a tunnel to a host, or one request, whose `head` is as the host should get it."""

    host: str
    port: int
    head: bytes  # b"" for a tunnel

    @property
    def is_tunnel(self) -> bool:
        return not self.head


class NotHttp(ToolError):
    """What came over a connection is no HTTP that a proxy understands."""

    code = "http_failed"


class Egress:
    """One browser's way out, for as long as the `async with` lasts."""

    def __init__(
        self, guard: Guard, *, most_bytes: int = MOST_BYTES, resolve: Resolve = address_policy.looked_up
    ) -> None:
        self._guard = guard
        self._left = most_bytes
        self._resolve = resolve
        self._refused: dict[str, str] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where the proxy listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def refused(self) -> Mapping[str, str]:
        """Why hosts could not be reached when they were last asked for, by name in lower case."""
        return self._refused

    async def __aenter__(self) -> "Egress":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LARGEST_HEAD)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    # -- one connection -------------------------------------------------------------------------------------------
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, EOFError):
            pass  # one side has gone, and there is nobody to tell
        except asyncio.CancelledError:
            pass  # the browser's time is over; asyncio would log a task of a server that ends as cancelled
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = read_request(await _head(reader))
            server_reader, server_writer = await self._connected(request)
        except NotHttp as error:
            return await _refuse(writer, 400, error.message)
        except AddressRefused as error:
            return await _refuse(writer, 403, error.message)
        except ToolError as error:
            return await _refuse(writer, 502, error.message)
        going_up: asyncio.Task[None] | None = None
        try:
            if not request.is_tunnel:
                server_writer.write(request.head)
            going_up = asyncio.create_task(self._hand_on(reader, server_writer))
            if request.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                await self._answer_head(server_reader, writer)
            await self._hand_on(server_reader, writer)
        except NotHttp as error:
            await _refuse(writer, 502, error.message)
        finally:
            if going_up is not None:
                going_up.cancel()
                await asyncio.gather(going_up, return_exceptions=True)
            server_writer.close()

    async def _connected(self, request: Request) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to an address that was checked. Raises AddressRefused, and ToolError where nobody answers."""
        try:
            if self._left <= 0:
                raise AddressRefused("The browser has moved as many bytes as one may.")
            found = await addresses_of(
                request.host, request.port, self._guard, subject="URL", of_the_web=True, resolve=self._resolve
            )
            connection = await _first_open(found[:MOST_ADDRESSES], request.port)
        except ToolError as error:
            if len(self._refused) < MOST_REFUSED:
                self._refused[request.host] = error.message
            raise
        self._refused.pop(request.host, None)
        return connection

    async def _answer_head(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand on the head of an answer, and before it any that say that the answer is on its way."""
        while True:
            status, head = read_answer(await _head(reader))
            writer.write(head)
            if status >= 200:
                return

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Everything that comes until the end, and then the end."""
        while piece := await reader.read(PIECE):
            self._left -= len(piece)
            if self._left < 0:
                return
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def read_request(head: bytes) -> Request:
    """The request that a head makes of a proxy. Raises NotHttp."""
    first, *lines = _lines(head)
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise NotHttp("This is no request that a proxy understands.")
    method, target, _ = words
    if method == "CONNECT":
        host, port = _place(f"//{target}", 443)
        return Request(host, port, b"")
    scheme, mark, rest = target.partition("://")
    if not mark or scheme.lower() != "http":
        raise NotHttp("A proxy takes tunnels, and requests for http addresses.")
    host, port = _place(f"//{rest}", 80)
    path = re.sub(r"^[^/?#]*", "", rest).partition("#")[0]
    path = path if path.startswith("/") else f"/{path}"
    return Request(host, port, _joined(f"{method} {path} HTTP/1.1", lines))


def read_answer(head: bytes) -> tuple[int, bytes]:
    """The status of an answer, and its head as the browser should get it. Raises NotHttp."""
    first, *lines = _lines(head)
    found = _STATUS_LINE.fullmatch(first)
    if found is None or found[1] == "101":
        raise NotHttp("The answer is no HTTP.")
    status = int(found[1])
    return status, _joined(first, lines) if status >= 200 else head


def _lines(head: bytes) -> list[str]:
    return head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")


def _joined(first: str, lines: list[str]) -> bytes:
    """A head without what was meant for one connection only, which ends with this exchange."""
    names = [(line.partition(":")[0].strip().lower(), line) for line in lines]
    listed = [line.partition(":")[2] for name, line in names if name == "connection"]
    dropped = _HOP_BY_HOP | {word.strip().lower() for line in listed for word in line.split(",")}
    kept = [line for name, line in names if name not in dropped]
    return "\r\n".join([first, *kept, "Connection: close", "", ""]).encode("latin-1")


def _place(authority: str, default: int) -> tuple[str, int]:
    """Host and port. Raises NotHttp."""
    try:
        split = urlsplit(authority)
        port = default if split.port is None else split.port
    except ValueError as error:
        raise NotHttp("This is no address.") from error
    if not port or split.hostname is None:
        raise NotHttp("This is no address.")
    return split.hostname, port


async def _head(reader: asyncio.StreamReader) -> bytes:
    """A head, up to the empty line. Raises NotHttp for one without an end, EOFError if nothing came."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise NotHttp(f"The head is longer than {LARGEST_HEAD:,} bytes.") from error


async def _first_open(found: list[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the first address that answers. Raises ToolError."""
    reason = ""
    for address in found:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(address, port, limit=LARGEST_HEAD)
        except OSError as error:  # time that runs out is one, too
            reason = error.strerror or str(error) or "no answer"
    raise ToolError(f"Cannot connect: {reason}", retryable=True)


async def _refuse(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    body = reason.encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode("latin-1") + body)
    await writer.drain()
