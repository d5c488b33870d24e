"""A wire that counts what passes, and takes its time if told to.

    with wires() as lay:
        wire = lay.to(database_url, PostgresTalk)
        wire.through(database_url)   # for whoever shall use it
        wire.each_way = 0.001        # seconds
        lay.read(wire).round_trips

It changes and loses nothing; a wire that does is in tests/faults/proxy.py.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from bench.measuring.tally import Talk, Tally

PIECE = 256 * 1024  # bytes read at once


@dataclass
class CountedWire:
    """All connections to one server through one port of ours."""

    host: str
    target: int
    talk: Callable[[Tally], Talk]
    each_way: float = 0.0  # seconds, from now on
    port: int = 0
    tally: Tally = field(default_factory=Tally)

    def through(self, url: str) -> str:
        """An URL of the server that leads here instead."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    async def carry(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Forward between a client and the server until one of them leaves."""
        try:
            from_server, to_server = await asyncio.open_connection(self.host, self.target)
        except OSError:
            to_client.close()
            return
        talk = self.talk(self.tally)
        ways = {
            asyncio.create_task(_Way(self, to_server, talk.asked).carry(from_client)),
            asyncio.create_task(_Way(self, to_client, talk.answered).carry(from_server)),
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
class Wires:
    """A loop in a thread of its own, on which wires lie."""

    loop: asyncio.AbstractEventLoop
    listening: list[asyncio.Server] = field(default_factory=list[asyncio.Server])

    def to(self, url: str, talk: Callable[[Tally], Talk]) -> CountedWire:
        """A wire to the server of an URL."""
        parts = urlsplit(url)
        wire = CountedWire(parts.hostname or "127.0.0.1", parts.port or 0, talk)
        opening = asyncio.run_coroutine_threadsafe(asyncio.start_server(wire.carry, "127.0.0.1", 0), self.loop)
        self.listening.append(opening.result())
        wire.port = self.listening[-1].sockets[0].getsockname()[1]
        return wire

    def read(self, wire: CountedWire) -> Tally:
        """What has passed until now, all of it from one moment."""

        async def copied() -> Tally:
            return wire.tally.copy()

        return asyncio.run_coroutine_threadsafe(copied(), self.loop).result()


@contextmanager
def wires() -> Generator[Wires]:
    """A place for wires, which are cut at its end."""
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())  # epoll rounds up to milliseconds, which is our unit
    thread = threading.Thread(target=loop.run_forever, name="wires", daemon=True)
    thread.start()
    laid = Wires(loop)
    try:
        yield laid
    finally:
        asyncio.run_coroutine_threadsafe(_cut(laid.listening), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cut(listening: Sequence[asyncio.Server]) -> None:
    """Take no more connections, and end those of this loop."""
    for server in listening:
        server.close()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


@dataclass
class _Way:
    """One direction of a connection. What is delayed keeps its order and its distance."""

    wire: CountedWire
    writer: asyncio.StreamWriter
    hear: Callable[[bytes], None]
    under_way: int = 0
    delayed: "asyncio.Queue[tuple[float, bytes]]" = field(default_factory=asyncio.Queue[tuple[float, bytes]])

    async def carry(self, reader: asyncio.StreamReader) -> None:
        """Carry what comes until nothing more does."""
        arriving = asyncio.create_task(self._arrive())
        try:
            with suppress(OSError):
                while data := await reader.read(PIECE):
                    self.hear(data)
                    if self.wire.each_way or self.under_way:
                        self.under_way += 1
                        self.delayed.put_nowait((asyncio.get_running_loop().time() + self.wire.each_way, data))
                    else:
                        self.writer.write(data)
                        await self.writer.drain()
        finally:
            arriving.cancel()

    async def _arrive(self) -> None:
        with suppress(OSError):
            while True:
                due, data = await self.delayed.get()
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                self.writer.write(data)
                self.under_way -= 1
                await self.writer.drain()
