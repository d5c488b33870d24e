"""A forward proxy for a browser process: it checks every address that the browser connects to.

    async with BrowserProxy(guard) as proxy:
        ...  # start the browser with --proxy-server={proxy.url}

The proxy does for a program's own requests what `providers/http/client.py` does for ours: it resolves the host of each
request, checks each address, and connects to a checked address. It listens on loopback only, does not read inside
tunnels, and handles one plain request per connection.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

from canvas.errors import AddressRefused, ToolError
from providers import address_policy
from providers.address_policy import Guard, Resolve, resolve_checked

MAX_HEAD_BYTES = 64 * 1024  # bytes
READ_SIZE = 64 * 1024  # bytes that are forwarded at once
CONNECT_TIMEOUT = 10.0  # for each address of a host
MAX_ADDRESSES = 4  # addresses of one host that are tried
MAX_TRANSFER_BYTES = 1024 * 1024 * 1024  # that one browser may transfer: an endless page must not fill the disk
MAX_STORED_ERRORS = 200  # hosts whose errors are stored

_HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "upgrade",
    }
)  # fmt: skip
_STATUS_LINE = re.compile(r"HTTP/1\.[01] ([1-9]\d\d)(?: .*)?")
_REASONS = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request to the proxy: a tunnel to a host, or one HTTP request with the `head` to forward to the host."""

    host: str
    port: int
    head: bytes  # b"" for a tunnel

    @property
    def is_tunnel(self) -> bool:
        """Return whether the request asks for a tunnel (CONNECT)."""
        return not self.head


class InvalidHttp(ToolError):
    """The bytes received over a connection are not HTTP that a proxy can handle."""

    code = "http_failed"


class BrowserProxy:
    """The proxy of one browser; it runs until the `async with` block ends."""

    def __init__(
        self, guard: Guard, *, max_bytes: int = MAX_TRANSFER_BYTES, resolve: Resolve = address_policy.resolve_in_thread
    ) -> None:
        self._guard = guard
        self._remaining_bytes = max_bytes
        self._resolve = resolve
        self._connect_errors: dict[str, str] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Return the address that the proxy listens on."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def connect_errors(self) -> Mapping[str, str]:
        """Return the latest error of each host that could not be reached, by host name in lower case."""
        return self._connect_errors

    async def __aenter__(self) -> "BrowserProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
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
            await self._handle_request(reader, writer)
        except (OSError, EOFError):
            pass  # one side has closed its connection
        except asyncio.CancelledError:
            pass  # the proxy is closing; asyncio would log a connection task that ends as cancelled
        finally:
            self._connections.discard(task)
            writer.close()

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = parse_request(await _read_head(reader))
            server_reader, server_writer = await self._connect(request)
        except InvalidHttp as error:
            return await _refuse(writer, 400, error.message)
        except AddressRefused as error:
            return await _refuse(writer, 403, error.message)
        except ToolError as error:
            return await _refuse(writer, 502, error.message)
        upload: asyncio.Task[None] | None = None
        try:
            if not request.is_tunnel:
                server_writer.write(request.head)
            upload = asyncio.create_task(self._forward(reader, server_writer))
            if request.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                await self._forward_head(server_reader, writer)
            await self._forward(server_reader, writer)
        except InvalidHttp as error:
            await _refuse(writer, 502, error.message)
        finally:
            if upload is not None:
                upload.cancel()
                await asyncio.gather(upload, return_exceptions=True)
            server_writer.close()

    async def _connect(self, request: ProxyRequest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a checked address of the host. Raises AddressRefused, and ToolError if no address answers."""
        try:
            if self._remaining_bytes <= 0:
                raise AddressRefused("The browser has transferred as many bytes as one browser may.")
            addresses = await resolve_checked(
                request.host, request.port, self._guard, subject="URL", is_http=True, resolve=self._resolve
            )
            connection = await _connect_first(addresses[:MAX_ADDRESSES], request.port)
        except ToolError as error:
            if len(self._connect_errors) < MAX_STORED_ERRORS:
                self._connect_errors[request.host] = error.message
            raise
        self._connect_errors.pop(request.host, None)
        return connection

    async def _forward_head(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward the heads of informational responses (1xx), and then the head of the final response."""
        while True:
            status, head = parse_response(await _read_head(reader))
            writer.write(head)
            if status >= 200:
                return

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward all bytes until the end of the stream, and then the end itself."""
        while part := await reader.read(READ_SIZE):
            self._remaining_bytes -= len(part)
            if self._remaining_bytes < 0:
                return
            writer.write(part)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def parse_request(head: bytes) -> ProxyRequest:
    """Parse the head of a request to a proxy. Raises InvalidHttp."""
    first, *lines = _lines(head)
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise InvalidHttp("This is not a valid request to a proxy.")
    method, target, _ = words
    if method == "CONNECT":
        host, port = _parse_authority(f"//{target}", 443)
        return ProxyRequest(host, port, b"")
    scheme, mark, rest = target.partition("://")
    if not mark or scheme.lower() != "http":
        raise InvalidHttp("This proxy supports only CONNECT, and requests for http:// addresses.")
    host, port = _parse_authority(f"//{rest}", 80)
    path = re.sub(r"^[^/?#]*", "", rest).partition("#")[0]
    path = path if path.startswith("/") else f"/{path}"
    return ProxyRequest(host, port, _end_to_end_head(f"{method} {path} HTTP/1.1", lines))


def parse_response(head: bytes) -> tuple[int, bytes]:
    """Return the status of a response and the head to forward to the browser. Raises InvalidHttp."""
    first, *lines = _lines(head)
    found = _STATUS_LINE.fullmatch(first)
    if found is None or found[1] == "101":
        raise InvalidHttp("The answer is not valid HTTP.")
    status = int(found[1])
    return status, _end_to_end_head(first, lines) if status >= 200 else head


def _lines(head: bytes) -> list[str]:
    return head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")


def _end_to_end_head(first: str, lines: list[str]) -> bytes:
    """Return a head without hop-by-hop headers, with `Connection: close`."""
    names = [(line.partition(":")[0].strip().lower(), line) for line in lines]
    options = [line.partition(":")[2] for name, line in names if name == "connection"]
    dropped = _HOP_BY_HOP | {word.strip().lower() for line in options for word in line.split(",")}
    end_to_end = [line for name, line in names if name not in dropped]
    return "\r\n".join([first, *end_to_end, "Connection: close", "", ""]).encode("latin-1")


def _parse_authority(authority: str, default: int) -> tuple[str, int]:
    """Return host and port. Raises InvalidHttp."""
    try:
        split = urlsplit(authority)
        port = default if split.port is None else split.port
    except ValueError as error:
        raise InvalidHttp("The address of the request is not valid.") from error
    if not port or split.hostname is None:
        raise InvalidHttp("The address of the request is not valid.")
    return split.hostname, port


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """Read a head, up to the empty line. Raises InvalidHttp if it is too long, EOFError if the stream ends first."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise InvalidHttp(f"The head is longer than {MAX_HEAD_BYTES:,} bytes.") from error


async def _connect_first(addresses: list[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers. Raises ToolError."""
    reason = ""
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await asyncio.open_connection(address, port, limit=MAX_HEAD_BYTES)
        except OSError as error:  # a TimeoutError is an OSError
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
