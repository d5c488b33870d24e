"""A streamed reply as the chunks it is made of: server-sent events, each with a JSON document.

The chunks are plain JSON. The SDK would make a tree of objects of each, which costs a hundred times as much as reading
the one piece of text in it.
"""

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from providers.errors import Code, ProviderError

if TYPE_CHECKING:
    import httpx2

_END = b"[DONE]"
_REST_SECONDS = 0.1  # for the end of the reply behind its last event; without it the connection is not used again


class SseParser:
    """The data of server-sent events, fed with bytes cut anywhere. An event that is not ended is none."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of a line that is not whole yet
        self._data: list[bytes] = []  # lines of an event
        self._after_return = False  # a line ended with CR; a LF right behind it belongs to that end

    def feed(self, piece: bytes) -> list[bytes]:
        if self._after_return and piece:
            piece = piece.removeprefix(b"\n")
            self._after_return = False
        if not piece:
            return []
        self._after_return = piece.endswith(b"\r")
        *lines, last = piece.splitlines(keepends=False)
        if piece.endswith((b"\r", b"\n")):
            lines.append(last)
            last = b""
        if lines and self._line:
            lines[0] = b"".join((*self._line, lines[0]))
            self._line.clear()
        if last:
            self._line.append(last)
        return [data for line in lines if (data := self._take(line))]

    def _take(self, line: bytes) -> bytes:
        """The data of the event that this line ends, if it does."""
        if not line:
            data = b"\n".join(self._data)
            self._data.clear()
            return data
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return b""


class Chunks:
    """The chunks of a reply, read once. Raises CallFailed, and the errors of the response."""

    def __init__(self, response: "httpx2.Response") -> None:
        self._response = response

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        events = SseParser()
        async with aclosing(self._response.aiter_bytes()) as pieces:
            async for piece in pieces:
                for data in events.feed(piece):
                    if data.startswith(_END):
                        await _rest(pieces)
                        return
                    yield json_of(data)

    async def close(self) -> None:
        """Close the connection, unless the reply is over."""
        await self._response.aclose()


def json_of(text: bytes) -> Any:
    """A document of a reply. Raises CallFailed. One of a pair of surrogates is taken as it is: the other may follow."""
    try:
        return json.loads(text.removeprefix(BOM_UTF8).decode())
    except (ValueError, RecursionError) as problem:
        raise ProviderError(Code.SERVER_ERROR, "The provider sent a reply that is no JSON.") from problem


async def _rest(pieces: AsyncGenerator[bytes, None]) -> None:
    import httpx2

    with suppress(TimeoutError, httpx2.RequestError, OSError):
        async with asyncio.timeout(_REST_SECONDS):
            async for _ in pieces:
                pass
