"""A model provider with a strict rate limit; it records admitted and refused requests.

    python -m bench.servers.limited_server --requests 60 --tokens 100000    # prints its port

POST /v1/chat/completions answers with `--words` words after `--delay` seconds, and counts one token a word. `sliding`:
the limit holds for every minute; `fixed`: for the minutes of the clock. A refusal is a 429 with Retry-After and
`x-ratelimit-*`. GET /told returns {"admitted": [[seconds, tokens], ...], "refused": [seconds, ...]} on the machine's
monotonic clock.
"""

import argparse
import asyncio
import json
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

WindowKind = Literal["sliding", "fixed"]


@dataclass
class RateLimitedServer:
    """The rate limit of one credential, and the record of its requests."""

    requests: int
    tokens: int
    way: WindowKind = "sliding"
    window: float = 60.0  # seconds
    words: int = 20
    delay: float = 0.2  # seconds
    admitted: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    refused: list[float] = field(default_factory=list[float])
    _first: int = 0  # index of the oldest admitted request in the window

    def admit(self, now: float, tokens: int) -> float:
        """Return the seconds until a request of so many tokens is admitted; 0 admits and counts it."""
        begins = now - self.window if self.way == "sliding" else math.floor(now / self.window) * self.window
        while self._first < len(self.admitted) and self.admitted[self._first][0] < begins:
            self._first += 1
        inside = self.admitted[self._first :]
        if len(inside) < self.requests and sum(spent for _, spent in inside) + tokens <= self.tokens:
            self.admitted.append((now, tokens))
            return 0.0
        self.refused.append(now)
        ends = inside[0][0] if inside and self.way == "sliding" else begins
        return max(0.001, ends + self.window - now)

    @property
    def remaining_requests(self) -> int:
        """The number of requests remaining in this window."""
        return self.requests - (len(self.admitted) - self._first)

    def record(self) -> dict[str, Any]:
        """Return the record of requests."""
        return {"admitted": self.admitted, "refused": self.refused}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if head.startswith("GET"):
                await _reply(writer, "200 OK", self.record())
            else:
                await self._answer(json.loads(await reader.readexactly(_length(head))), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        finally:
            writer.close()

    async def _answer(self, request: Any, writer: asyncio.StreamWriter) -> None:
        prompt = sum(len(str(message.get("content")).split()) for message in request["messages"])
        wait = self.admit(time.monotonic(), prompt + self.words)
        if wait:
            error = {"error": {"message": "Rate limit reached.", "type": "rate_limit_error"}}
            await _reply(writer, "429 Too Many Requests", error, f"retry-after: {wait:.3f}\r\n")
            return
        await asyncio.sleep(self.delay)
        usage = {"prompt_tokens": prompt, "completion_tokens": self.words, "total_tokens": prompt + self.words}
        message = {"role": "assistant", "content": "word " * self.words}
        headers = (
            f"x-ratelimit-limit-requests: {self.requests}\r\n"
            f"x-ratelimit-remaining-requests: {self.remaining_requests}\r\n"
        )
        if not request.get("stream"):
            await _reply(writer, "200 OK", {"choices": [{"index": 0, "message": message}], "usage": usage}, headers)
            return
        frames = [{"choices": [{"index": 0, "delta": message}]}, {"choices": [], "usage": usage}]
        body = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}connection: close\r\n\r\n".encode()
        )
        writer.write(body.encode())
        await writer.drain()


async def _reply(writer: asyncio.StreamWriter, status: str, content: Any, headers: str = "") -> None:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{headers}"
    writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
    with suppress(ConnectionError):
        await writer.drain()


def _length(head: str) -> int:
    lines = (line.partition(":") for line in head.lower().split("\r\n"))
    return next(int(value) for name, _, value in lines if name == "content-length")


async def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(prog="python -m bench.servers.limited_server")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--way", choices=("sliding", "fixed"), default="sliding")
    parser.add_argument("--window", type=float, default=60.0)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--delay", type=float, default=0.2)
    limited = RateLimitedServer(**vars(parser.parse_args()))
    server = await asyncio.start_server(limited.serve, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 (the parent process reads it)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
