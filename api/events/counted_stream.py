"""The reply with a stream of server-sent events that is counted while it is open."""

from collections.abc import AsyncGenerator, Callable

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.events.event_stream import HEADERS, MEDIA_TYPE


class CountedStream(StreamingResponse):
    """A stream of frames. However it ends, its generator is closed and `on_end` is called."""

    def __init__(self, frames: AsyncGenerator[bytes], on_end: Callable[[], None]) -> None:
        super().__init__(frames, headers=HEADERS, media_type=MEDIA_TYPE)
        self._frames, self._on_end = frames, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
            await self._frames.aclose()
