"""A model provider that holds all answers until it is told to release them, and counts the waiting requests.

    python -m bench.servers.holding_server    # prints its port

POST /v1/chat/completions waits for the release and then answers, streamed if requested. GET /state returns {"open":
requests that wait, "most": the highest number that waited at once, "first", "last": seconds of the first and the last
request on the machine's monotonic clock, "left": clients that disconnected without an answer, "left_at": when the last
one did}. POST /hold resets the state; POST /release answers waiting and new requests; with /release?after=0.1 each new
request is answered after that many seconds.
"""

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

ANSWER = "Yes."


@dataclass
class RequestCounts:
    """The requests since the last /hold."""

    open: int = 0
    most: int = 0
    first: float | None = None
    last: float | None = None
    left: int = 0
    left_at: float | None = None

    def begin(self) -> None:
        """Count a new request."""
        self.last = time.monotonic()
        self.first = self.first or self.last
        self.open += 1
        self.most = max(self.most, self.open)

    def end(self, *, is_answered: bool) -> None:
        """Count the end of a request: answered, or its client has disconnected."""
        self.open -= 1
        if not is_answered:
            self.left += 1
            self.left_at = time.monotonic()


class HoldingServer:
    """The provider, with all waiting requests."""

    def __init__(self) -> None:
        self._state = RequestCounts()
        self._released = asyncio.Event()
        self._after = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of one connection until the client closes it."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split(" ", 2)
                body = await reader.readexactly(_length(head))
                if target.endswith("/completions"):
                    if not await self._answer(json.loads(body), reader, writer):
                        return
                else:
                    writer.write(_reply(json.dumps(self._control(method, target)).encode(), "application/json"))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client has disconnected
        finally:
            writer.close()

    def _control(self, method: str, target: str) -> dict[str, Any]:
        url = urlsplit(target)
        if method == "POST" and url.path == "/hold":
            self._state, self._released = RequestCounts(open=self._state.open), asyncio.Event()
        elif method == "POST":
            self._after = float(parse_qs(url.query).get("after", ["0"])[0])
            self._released.set()
        return asdict(self._state)

    async def _answer(self, body: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request after the release; return False if the client disconnected first."""
        self._state.begin()
        is_answered = False
        try:
            is_answered = await self._wait_for_release(reader)
            if is_answered:
                writer.write(_streamed_completion() if body.get("stream") else _completion())
        finally:
            self._state.end(is_answered=is_answered)
        return is_answered

    async def _wait_for_release(self, reader: asyncio.StreamReader) -> bool:
        """Wait for the release; return False if the client disconnected first."""
        if self._released.is_set():
            await asyncio.sleep(self._after)
            return True
        leaving = asyncio.create_task(_await_disconnect(reader))
        released = asyncio.create_task(self._released.wait())
        try:
            await asyncio.wait((leaving, released), return_when=asyncio.FIRST_COMPLETED)
            return not leaving.done()
        finally:
            for task in (leaving, released):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _await_disconnect(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        await reader.read(1)


def _length(head: str) -> int:
    lines = (line.partition(":") for line in head.lower().split("\r\n"))
    return next((int(value) for name, _, value in lines if name == "content-length"), 0)


def _reply(body: bytes, kind: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (kind.encode(), len(body), body)


USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def _completion() -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}}
    return _reply(json.dumps({"choices": [choice], "usage": USAGE}).encode(), "application/json")


def _streamed_completion() -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ANSWER}}]}
    events = [json.dumps(chunk), json.dumps({"choices": [], "usage": USAGE}), "[DONE]"]
    return _reply("".join(f"data: {event}\n\n" for event in events).encode(), "text/event-stream")


async def main() -> None:
    """Serve until the process ends."""
    server = await asyncio.start_server(HoldingServer().serve, "127.0.0.1", 0, backlog=2000)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 (the parent process reads it)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
