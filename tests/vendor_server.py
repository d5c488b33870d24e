"""A model vendor on this machine: it sends scripted replies, and records its requests."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Reply: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as received. Header names are lower case."""

    method: str
    target: str
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class VendorServer:
    """Sends one reply for each request, and repeats the last one."""

    replies: list[Reply]
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def bodies(self) -> list[Any]:
        return [request.json for request in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.requests.append(await _request(reader))
                sending = asyncio.create_task(self._send_reply(writer))
                reading = asyncio.create_task(reader.read(1))
                await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                if not sending.done():  # a waiting client sends nothing: it has disconnected
                    sending.cancel()
                    self.disconnected.set()
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            pass  # the test is over; asyncio would log a task of a server that ends as cancelled
        finally:
            writer.close()

    async def _send_reply(self, writer: asyncio.StreamWriter) -> None:
        await self.replies[min(len(self.requests), len(self.replies)) - 1](writer)
        await writer.drain()


def whole(body: Any, status: int = 200, **headers: str) -> Reply:
    """Make a reply with a JSON body; text and bytes are sent unchanged. `retry_after="3"` is a header."""
    content = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    all_headers = {"content-type": "application/json", "content-length": str(len(content)), **named}

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(_head(status, all_headers) + content)

    return send


def streamed(*chunks: bytes, kind: str = "text/event-stream", then: str = "end") -> Reply:
    """Make a reply in chunks; `then` it ends, breaks, or hangs until the client disconnects."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(_head(200, {"content-type": kind, "transfer-encoding": "chunked"}))
        for chunk in chunks:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
        if then == "hang":
            await asyncio.Event().wait()
        elif then == "break":
            writer.close()
        else:
            writer.write(b"0\r\n\r\n")

    return send


def events(*documents: Any, named: bool = False, then: str = "end") -> Reply:
    """Make a reply of server-sent events with JSON; `named` events have their `type` on a separate line."""

    def event(document: Any) -> bytes:
        name = f"event: {document['type']}\n" if named else ""
        return f"{name}data: {document if isinstance(document, str) else json.dumps(document)}\n\n".encode()

    return streamed(*map(event, documents), then=then)


@asynccontextmanager
async def vendor_server(*replies: Reply) -> AsyncGenerator[VendorServer]:
    server = VendorServer(list(replies))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


async def _request(reader: asyncio.StreamReader) -> ReceivedRequest:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().removesuffix("\r\n\r\n").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    method, target, _ = first.split(" ")
    return ReceivedRequest(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode()
