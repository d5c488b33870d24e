"""Keeps the responses that an SDK opens for a call, for SDKs that do not let go of a response when their stream ends.

    httpx2.AsyncClient(event_hooks=EVENT_HOOKS)  # the client that the SDK is given
    call = OpenResponses(connect_timeout=10.0)
    ...  # a call of the SDK
    await call.close()

The hooks find the call in the context of its task, so calls of several tasks are kept apart. They limit what the SDK
does not: the time to connect, and the size of a line, which it collects in memory.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import Any

import httpx2

MAX_LINE_BYTES = 32 * 1024 * 1024  # bytes of a line of a response; an event, which may contain an image, is one line

_current: ContextVar["OpenResponses | None"] = ContextVar("open_responses", default=None)


class OpenResponses:
    """The responses of one call of an SDK, of this task from now on.

    `connect_timeout` is in seconds. `observe_headers` is called with the headers of each response with status 2xx.
    """

    def __init__(
        self, connect_timeout: float, observe_headers: Callable[[Mapping[str, str]], None] | None = None
    ) -> None:
        self.connect_timeout = connect_timeout
        self.observe_headers = observe_headers
        self._responses: list[httpx2.Response] = []
        _current.set(self)

    def add(self, response: httpx2.Response) -> None:
        """Keep a response until the call is closed."""
        self._responses.append(response)

    async def close(self) -> None:
        """Close the connections of all responses, except those that are complete."""
        while self._responses:
            await self._responses.pop().aclose()


async def _limit_connect_time(request: httpx2.Request) -> None:
    if (call := _current.get()) is not None:
        timeout = request.extensions.get("timeout")
        request.extensions["timeout"] = {**(timeout or {}), "connect": call.connect_timeout}


async def _keep_response(response: httpx2.Response) -> None:
    if "content-encoding" in response.headers:
        await response.aclose()
        raise httpx2.DecodingError("The response is compressed, which was not asked for.", request=response.request)
    if (call := _current.get()) is not None:
        call.add(response)
        if response.is_success and call.observe_headers is not None:
            call.observe_headers(response.headers)
    response.stream = _LimitedLines(response.stream)


EVENT_HOOKS: Mapping[str, list[Callable[..., Any]]] = {"request": [_limit_connect_time], "response": [_keep_response]}
"""Hooks of a client whose responses are kept; its requests should accept no content encoding."""


class _LimitedLines(httpx2.AsyncByteStream):
    """A stream whose lines are limited. Raises RemoteProtocolError if one is longer than MAX_LINE_BYTES."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            newline = part.rfind(b"\n")
            size = size + len(part) if newline < 0 else len(part) - newline - 1
            if size > MAX_LINE_BYTES:
                raise httpx2.RemoteProtocolError(f"The response has a line of more than {MAX_LINE_BYTES:,} bytes.")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
