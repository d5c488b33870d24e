"""A model provider that streams timestamps: each chunk contains the time at which it was written.

    python -m bench.servers.clock_server    # prints its port

The last message's text says what to stream: `20 pieces, 50 ms apart`, or `20 pieces, 50 ms apart, on a sign` to wait
for GET /sign first. The content of a chunk is `<nanoseconds of the machine's monotonic clock>@`, so that any process
that receives it can compute its delay.
"""

import asyncio
import json
import re
import time
from contextlib import suppress
from functools import partial
from typing import Any

_QUESTION = re.compile(r"(\d+) pieces, (\d+) ms apart")
_STAMP = re.compile(rb"(\d{6,})@")
_ON_SIGNAL = ", on a sign"
_MESSAGE = b'"event":"message"'


def chunks_question(chunks: int, apart_ms: int, *, on_signal: bool = False) -> str:
    """Return the question that is answered by so many chunks."""
    return f"{chunks} pieces, {apart_ms} ms apart{_ON_SIGNAL if on_signal else ''}"


def write_times(part: bytes) -> list[float]:
    """Return the times at which the chunks in a part of an event stream (whole events) were written, in seconds."""
    messages = (event for event in part.split(b"\n\n") if _MESSAGE in event)
    return [int(stamp) / 1e9 for event in messages for stamp in _STAMP.findall(event)]


async def serve(sign: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request and close the connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if head.startswith("get"):
            sign.set()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            return
        length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length"))
        body: Any = json.loads(await reader.readexactly(length))
        how = str(body["messages"][-1]["content"])
        found = _QUESTION.search(how)
        chunks, apart = (int(found[1]), int(found[2]) / 1000) if found else (1, 0.0)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        if how.endswith(_ON_SIGNAL):
            await sign.wait()
        due = time.monotonic()
        for _ in range(chunks):
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            writer.write(_chunk(time.monotonic_ns()))
            due += apart
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the client has left
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _chunk(moment: int) -> bytes:
    delta = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": f"{moment}@"}}]}
    return f"data: {json.dumps(delta)}\n\n".encode()


async def main() -> None:
    """Serve until the process ends."""
    server = await asyncio.start_server(partial(serve, asyncio.Event()), "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 (the parent process reads it)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
