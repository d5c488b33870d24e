"""A minimal HTTP client for measurements, so that the client's own cost is negligible.

It opens one plain socket for each request, and yields the parts of a reply with their arrival times.

    async with open_request(address, "POST", "/api/v1/...", token, {"query": "x"}) as reply:
        async for arrived_at, part in reply.parts(): ...
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

MAX_LINE = 1 << 20  # bytes


@dataclass(slots=True)
class RawReply:
    """A reply whose head has been read."""

    status: int
    headers: dict[str, str]
    _reader: asyncio.StreamReader

    async def parts(self) -> AsyncGenerator[tuple[float, bytes]]:
        """Yield the parts of the body as they arrive: (time on the monotonic clock, bytes)."""
        if self.headers.get("transfer-encoding") != "chunked":
            body = await self._reader.readexactly(int(self.headers.get("content-length", "0")))
            yield time.monotonic(), body
            return
        while size := int(await self._reader.readline(), 16):
            came = time.monotonic()
            part = await self._reader.readexactly(size + 2)
            yield came, part[:-2]

    async def json(self) -> Any:
        """Return the whole body, parsed."""
        return json.loads(b"".join([part async for _, part in self.parts()]))


@asynccontextmanager
async def open_request(
    address: tuple[str, int],
    method: str,
    path: str,
    token: str,
    body: Any = None,
    accept: str = "application/json",
) -> AsyncGenerator[RawReply]:
    """Send a request; yield its reply. The end of the block closes the connection."""
    written = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: {address[0]}\r\nauthorization: Bearer {token}\r\naccept: {accept}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(written)}\r\nconnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(*address, limit=MAX_LINE)
    try:
        writer.write(head.encode() + written)
        status = int((await reader.readline()).split()[1])
        headers: dict[str, str] = {}
        while line := (await reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        yield RawReply(status, headers, reader)
    finally:
        writer.close()
