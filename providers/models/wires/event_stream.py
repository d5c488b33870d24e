"""Reads a streamed reply as chunks: server-sent events, each with a JSON document.

The chunks are plain JSON. The SDK would build a tree of objects from each chunk, which costs a hundred times as much
as reading the one text in it.
"""

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from providers.errors import ErrorCode, ProviderError

if TYPE_CHECKING:
    import httpx2

_END = b"[DONE]"
_DRAIN_TIMEOUT = 0.1  # to read the end of the reply after its last event, so that the connection can be reused


class SseParser:
    """Parses server-sent events from bytes in parts of any size. An event without its closing line is dropped."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # parts of an incomplete line
        self._data: list[bytes] = []  # lines of an event
        self._after_return = False  # a line ended with CR; a LF that follows belongs to the same line end

    def feed(self, part: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete."""
        if self._after_return and part:
            part = part.removeprefix(b"\n")
            self._after_return = False
        if not part:
            return []
        self._after_return = part.endswith(b"\r")
        *lines, last = part.splitlines(keepends=False)
        if part.endswith((b"\r", b"\n")):
            lines.append(last)
            last = b""
        if lines and self._line:
            lines[0] = b"".join((*self._line, lines[0]))
            self._line.clear()
        if last:
            self._line.append(last)
        return [data for line in lines if (data := self._process_line(line))]

    def _process_line(self, line: bytes) -> bytes:
        """Process a line; return the data of the event if the line ends one."""
        if not line:
            data = b"\n".join(self._data)
            self._data.clear()
            return data
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return b""


class Chunks:
    """The chunks of a reply, to be read once. Raises ProviderError, and the errors of the response."""

    def __init__(self, response: "httpx2.Response") -> None:
        self._response = response

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        events = SseParser()
        async with aclosing(self._response.aiter_bytes()) as parts:
            async for part in parts:
                for data in events.feed(part):
                    if data.startswith(_END):
                        await _drain(parts)
                        return
                    yield parse_json(data)

    async def close(self) -> None:
        """Close the connection, unless the reply is complete."""
        await self._response.aclose()


def parse_json(text: bytes) -> Any:
    """Parse a JSON document. Raises ProviderError. Lone surrogates are kept, since the other half may follow."""
    try:
        return json.loads(text.removeprefix(BOM_UTF8).decode())
    except (ValueError, RecursionError) as problem:
        raise ProviderError(ErrorCode.SERVER_ERROR, "The provider sent a reply that is not valid JSON.") from problem


async def _drain(parts: AsyncGenerator[bytes, None]) -> None:
    import httpx2

    with suppress(TimeoutError, httpx2.RequestError, OSError):
        async with asyncio.timeout(_DRAIN_TIMEOUT):
            async for _ in parts:
                pass
