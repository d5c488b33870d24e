"""A model provider that answers 1 KB after a delay in milliseconds, given by the model's name (`wait-100`).

    python -m bench.compare.waiting_server    # prints its port

It is written on raw TCP to cost little.
"""

import asyncio
import json
from contextlib import suppress
from typing import Any

ANSWER = "x" * 990
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve the requests of one connection until the client closes it."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            request = json.loads(await reader.readexactly(_length(head)))
            await asyncio.sleep(int(request["model"].partition("-")[2]) / 1000)
            writer.write(_completion(request))
            await writer.drain()
    writer.close()


def _length(head: str) -> int:
    lines = (line.partition(":") for line in head.lower().split("\r\n"))
    return next(int(value) for name, _, value in lines if name == "content-length")


def _completion(request: dict[str, Any]) -> bytes:
    message = {"role": "assistant", "content": ANSWER}
    common = {"id": "1", "created": 1, "model": request["model"], "usage": USAGE}
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return _reply("application/json", json.dumps({**common, "object": "chat.completion", "choices": [choice]}))
    choice = {"index": 0, "delta": message, "finish_reason": "stop"}
    chunk = json.dumps({**common, "object": "chat.completion.chunk", "choices": [choice]})
    return _reply("text/event-stream", f"data: {chunk}\n\ndata: [DONE]\n\n")


def _reply(kind: str, body: str) -> bytes:
    data = body.encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (kind.encode(), len(data), data)


async def main() -> None:
    """Serve until the process ends."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 (the parent process reads it)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
