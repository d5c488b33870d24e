"""A wire that waits for rate limits: each request is sent only when the limits of its credential allow it.

    wire = RateLimitedWire(OpenAIWire(...), limiter)

Every request needs a permit, repeated ones included; requests of other models than chat get theirs in
providers/models/billing/metering.py. The tokens used are reported afterwards, so that the limiter returns what was
reserved too much. `PermitRequest.rate_limit_wait` decides how the caller waits.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from providers.errors import ProviderError
from providers.models.text.context_window import count_tokens, message_tokens
from providers.models.types.chat import (
    ChatRequest,
    ContentDelta,
    Delta,
    RateLimitWait,
    ReasoningDelta,
    Usage,
    UsageDelta,
    Wire,
)


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """A request that needs a permit: its size, and how the caller waits.

    `count_tokens` returns the tokens that are sent, and may take a while for many `characters`.
    `max_answer_tokens` is the largest number of tokens of an answer; 0: not known; None: answers have no tokens.
    `key` is the same for every attempt at the same request.
    """

    characters: int
    count_tokens: Callable[[], int]
    max_answer_tokens: int | None = 0
    key: str | None = None
    rate_limit_wait: RateLimitWait | None = None


class Permit(Protocol):
    """The permission to send one request."""

    def release(self, tokens: int | None, failed: ProviderError | None) -> None:
        """Report the end of the request and the tokens it used; None: not known. Does not wait."""
        ...


class RequestLimiter(Protocol):
    """The limits of one credential."""

    async def acquire(self, request: PermitRequest) -> Permit:
        """Wait until the request may be sent."""
        ...

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        """Read the rate limit headers of a response."""
        ...


class RateLimitedWire:
    """A wire whose requests wait for a permit. `prepare` does slow preparations before the wait."""

    def __init__(
        self, wire: Wire, limiter: RequestLimiter, prepare: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._wire = wire
        self._limiter = limiter
        self._prepare = prepare

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        """Wait for a permit, and send one request, once."""
        if self._prepare is not None:
            await self._prepare()
        permit = await self._acquire(request)
        usage: Usage | None = None
        failed: ProviderError | None = None
        texts: list[str] = []
        is_whole = False
        try:
            async with aclosing(self._wire.send(request, streamed=streamed)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, UsageDelta):
                        usage = delta.usage
                    elif isinstance(delta, ContentDelta | ReasoningDelta):
                        texts.append(delta.text)
                    yield delta
            is_whole = True
        except ProviderError as problem:
            failed = problem
            raise
        finally:
            permit.release(_used_tokens(request, usage, texts) if usage or is_whole else None, failed)

    async def _acquire(self, request: ChatRequest) -> Permit:
        """Wait for a permit, and count the wait. While it waits, the request does not count as a try."""
        progress = request.progress
        if progress is None:
            return await self._limiter.acquire(_permit_request(request))
        began = time.monotonic()
        progress.tries -= 1
        try:
            permit = await self._limiter.acquire(_permit_request(request))
        finally:
            progress.waited += time.monotonic() - began
        progress.tries += 1
        return permit


def _permit_request(request: ChatRequest) -> PermitRequest:
    max_tokens = request.params.get("max_tokens")
    return PermitRequest(
        sum(len(str(message.get("content") or "")) for message in request.messages),
        lambda: prompt_tokens(request),
        max_tokens if isinstance(max_tokens, int) else 0,
        request.key,
        request.rate_limit_wait,
    )


def _used_tokens(request: ChatRequest, usage: Usage | None, texts: list[str]) -> int:
    """Return the tokens that a request used of a rate limit, as counted by the vendor or estimated."""
    if usage is not None:
        return usage.total_tokens or usage.prompt_tokens + usage.completion_tokens
    return prompt_tokens(request) + count_tokens("".join(texts))


def prompt_tokens(request: ChatRequest) -> int:
    """Return the estimated tokens of a request's messages and tools."""
    return message_tokens(request.messages) + count_tokens("".join(str(tool) for tool in request.tools))
