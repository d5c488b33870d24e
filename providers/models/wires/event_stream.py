"""Reads a streamed reply as chunks: server-sent events, each with a JSON document.

httpx2 parses the events. The chunks are plain JSON: the SDK would build a tree of objects from each chunk, which costs
a hundred times as much as reading the one text in it.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast

from providers.errors import ErrorCode, ProviderError

if TYPE_CHECKING:
    import httpx2

MAX_EVENT_BYTES = 32 * 1024 * 1024  # bytes of one event, which may contain an image; beyond, the reply is an error

BOM = "\ufeff"

_END = "[DONE]"
_DRAIN_TIMEOUT = 0.1  # to read the end of the reply after its last event, so that the connection can be reused


class Chunks:
    """The chunks of a reply, to be read once. Raises ProviderError, and the errors of the response.

    Every reply to a request for a stream is read as UTF-8 and as server-sent events, whatever its content type: many
    servers with OpenAI's API send another one, or none. An event without its closing line is dropped.
    """

    def __init__(self, response: "httpx2.Response") -> None:
        self._response = response

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        import httpx2

        self._response.headers["Content-Type"] = "text/event-stream; charset=utf-8"  # httpx2 accepts no other
        source = httpx2.EventSource(self._response, MAX_EVENT_BYTES)
        events = cast("AsyncGenerator[httpx2.ServerSentEvent, None]", aiter(source))
        async with aclosing(events):
            async for event in events:
                if event.data.startswith(_END):
                    await _drain(events)
                    return
                if event.data:
                    yield parse_json(event.data)

    async def close(self) -> None:
        """Close the connection, unless the reply is complete."""
        await self._response.aclose()


def parse_json(text: bytes | str) -> Any:
    """Parse a JSON document. Raises ProviderError. Lone surrogates are kept, since the other half may follow."""
    try:
        return json.loads((text if isinstance(text, str) else text.decode()).removeprefix(BOM))
    except (ValueError, RecursionError) as problem:
        raise ProviderError(ErrorCode.SERVER_ERROR, "The provider sent a reply that is not valid JSON.") from problem


async def _drain(events: AsyncGenerator[Any, None]) -> None:
    import httpx2

    with suppress(TimeoutError, httpx2.RequestError, OSError):
        async with asyncio.timeout(_DRAIN_TIMEOUT):
            async for _ in events:
                pass
