"""A TCP proxy that counts the traffic to a server, and can delay it.

    with run_proxies() as proxies:
        proxy = proxies.open(database_url, PostgresObserver)
        proxy.proxied_url(database_url)   # for the clients to count
        proxy.delay = 0.001               # seconds in each direction
        proxies.read(proxy).round_trips

It does not change or lose data; a proxy that does is in tests/faults/proxy.py.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from bench.measuring.tally import ConnectionObserver, Tally

READ_SIZE = 256 * 1024  # bytes of one read


@dataclass
class CountingProxy:
    """A proxy for one server: a local port and all connections through it."""

    host: str
    target: int
    observer: Callable[[Tally], ConnectionObserver]
    delay: float = 0.0  # seconds of delay in each direction; may be changed at any time
    port: int = 0
    tally: Tally = field(default_factory=Tally)

    def proxied_url(self, url: str) -> str:
        """Return a URL of the server with the address of this proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    async def forward(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Forward between a client and the server until one of them disconnects."""
        try:
            from_server, to_server = await asyncio.open_connection(self.host, self.target)
        except OSError:
            to_client.close()
            return
        talk = self.observer(self.tally)
        ways = {
            asyncio.create_task(_Direction(self, to_server, talk.on_request).forward(from_client)),
            asyncio.create_task(_Direction(self, to_client, talk.on_response).forward(from_server)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to_server.close()
            to_client.close()


@dataclass(frozen=True, slots=True)
class CountingProxies:
    """Opens proxies on an event loop in its own thread."""

    loop: asyncio.AbstractEventLoop
    servers: list[asyncio.Server] = field(default_factory=list[asyncio.Server])

    def open(self, url: str, talk: Callable[[Tally], ConnectionObserver]) -> CountingProxy:
        """Open a proxy to the server of a URL."""
        parts = urlsplit(url)
        wire = CountingProxy(parts.hostname or "127.0.0.1", parts.port or 0, talk)
        opening = asyncio.run_coroutine_threadsafe(asyncio.start_server(wire.forward, "127.0.0.1", 0), self.loop)
        self.servers.append(opening.result())
        wire.port = self.servers[-1].sockets[0].getsockname()[1]
        return wire

    def read(self, wire: CountingProxy) -> Tally:
        """Return the traffic so far, consistent at one moment."""

        async def copy_tally() -> Tally:
            return wire.tally.copy()

        return asyncio.run_coroutine_threadsafe(copy_tally(), self.loop).result()


@contextmanager
def run_proxies() -> Generator[CountingProxies]:
    """Run an event loop for proxies; close them when the block ends."""
    # epoll rounds delays up to milliseconds, which is too coarse
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    thread = threading.Thread(target=loop.run_forever, name="wires", daemon=True)
    thread.start()
    laid = CountingProxies(loop)
    try:
        yield laid
    finally:
        asyncio.run_coroutine_threadsafe(_close_all(laid.servers), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _close_all(listening: Sequence[asyncio.Server]) -> None:
    """Stop listening, and close the connections of this loop."""
    for server in listening:
        server.close()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


@dataclass
class _Direction:
    """One direction of a connection. Delayed data keep their order and their intervals."""

    wire: CountingProxy
    writer: asyncio.StreamWriter
    observe: Callable[[bytes], None]
    in_flight: int = 0
    delayed: "asyncio.Queue[tuple[float, bytes]]" = field(default_factory=asyncio.Queue[tuple[float, bytes]])

    async def forward(self, reader: asyncio.StreamReader) -> None:
        """Forward data until the reader ends."""
        arriving = asyncio.create_task(self._write_delayed())
        try:
            with suppress(OSError):
                while data := await reader.read(READ_SIZE):
                    self.observe(data)
                    if self.wire.delay or self.in_flight:
                        self.in_flight += 1
                        self.delayed.put_nowait((asyncio.get_running_loop().time() + self.wire.delay, data))
                    else:
                        self.writer.write(data)
                        await self.writer.drain()
        finally:
            arriving.cancel()

    async def _write_delayed(self) -> None:
        with suppress(OSError):
            while True:
                due, data = await self.delayed.get()
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                self.writer.write(data)
                self.in_flight -= 1
                await self.writer.drain()
