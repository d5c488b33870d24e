"""A model provider that writes a token every 50 ms (`--interval`) until its client disconnects, and records the times.

    python -m bench.servers.token_server [--interval SECONDS]    # prints its port

POST /v1/chat/completions streams; the last message's text is the stream's name. GET /<name> returns the record of a
stream: {"opened": seconds, "closed": seconds or null, "tokens": [seconds, ...]} on the machine's monotonic clock, or {}
if there is none.
"""

import argparse
import asyncio
import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

TOKEN_INTERVAL = 0.05  # seconds


@dataclass
class StreamRecord:
    """The record of one request. `closed` is when the socket reported that the client disconnected."""

    opened: float
    closed: float | None = None
    tokens: list[float] = field(default_factory=list[float])


class TokenServer:
    """The provider, with its streams by name; a new stream replaces an earlier one of the same name."""

    def __init__(self, interval: float = TOKEN_INTERVAL) -> None:
        self.streams: dict[str, StreamRecord] = {}
        self._interval = interval

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if head.startswith("GET"):
                stream = self.streams.get(head.split()[1].removeprefix("/"))
                record = json.dumps(asdict(stream) if stream is not None else {}).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(record) + record
                )
                await writer.drain()
            else:
                await self._stream(_name(await reader.readexactly(_length(head))), reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has disconnected, as measurements intend
        finally:
            writer.close()

    async def _stream(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = self.streams[name] = StreamRecord(time.monotonic())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        leaving = asyncio.create_task(_await_disconnect(reader))
        try:
            while not leaving.done():
                writer.write(_token(len(stream.tokens)))
                stream.tokens.append(time.monotonic())
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(leaving), self._interval)
        finally:
            stream.closed = time.monotonic()
            leaving.cancel()


async def _await_disconnect(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        await reader.read()


def _length(head: str) -> int:
    lines = (line.partition(":") for line in head.lower().split("\r\n"))
    return next(int(value) for name, _, value in lines if name == "content-length")


def _name(body: bytes) -> str:
    request: Any = json.loads(body)
    return str(request["messages"][-1]["content"])


def _token(number: int) -> bytes:
    delta = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": f"w{number} "}}]}
    event = f"data: {json.dumps(delta)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


async def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--interval", type=float, default=TOKEN_INTERVAL, help="seconds between two tokens")
    interval: float = parser.parse_args().interval
    server = await asyncio.start_server(TokenServer(interval).serve, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 (the parent process reads it)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
