"""Every request acquires a permit, and its release reports the tokens or the failure."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from providers.errors import ErrorCode, ProviderError
from providers.models.chat.retrying_model import RetryingModel, RetryPolicy
from providers.models.limits.rate_limited_wire import PermitRequest, RateLimitedWire
from providers.models.types.chat import ChatRequest, ContentDelta, Delta, ModelSpec, Usage, UsageDelta

REQUEST = ChatRequest([{"role": "user", "content": "How are you today?"}])
REFUSED = ProviderError(ErrorCode.RATE_LIMIT_EXCEEDED, "slow down", 3.0)


@dataclass
class Wire:
    """Replay one prepared reply for each request."""

    replies: list[list[Delta | ProviderError]]

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        for delta in self.replies.pop(0):
            if isinstance(delta, ProviderError):
                raise delta
            yield delta


@dataclass
class FakeRateLimiter:
    """Permit every request and record the releases."""

    acquired: int = 0
    releases: list[tuple[int | None, ProviderError | None]] = field(default_factory=list)

    async def acquire(self, request: PermitRequest) -> "FakeRateLimiter":
        self.acquired += 1
        return self

    def release(self, tokens: int | None, failed: ProviderError | None) -> None:
        self.releases.append((tokens, failed))

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        raise AssertionError("observe_headers was called")


def test_tokens_counted_by_the_vendor_are_reported():
    limiter = limiter_after([ContentDelta("Fine."), UsageDelta(Usage(5, 2, 7))])

    assert limiter.releases == [(7, None)]


def test_tokens_without_a_count_are_estimated():
    ((tokens, failed),) = limiter_after([ContentDelta("Fine, thank you.")]).releases

    assert failed is None
    assert tokens is not None
    assert 5 < tokens < 30


def test_every_retry_acquires_another_permit():
    limiter = limiter_after([REFUSED], [REFUSED], [ContentDelta("Fine."), UsageDelta(Usage(5, 2, 7))])

    assert limiter.acquired == 3
    assert limiter.releases == [(None, REFUSED), (None, REFUSED), (7, None)]


def test_cancelled_request_reports_no_tokens():
    limiter = FakeRateLimiter()

    async def leaves_early() -> None:
        wire = RateLimitedWire(Wire([[ContentDelta("Fi"), ContentDelta("ne.")]]), limiter)
        stream = wire.send(REQUEST, streamed=True)
        await anext(stream)
        await stream.aclose()

    asyncio.run(leaves_early())

    assert limiter.releases == [(None, None)]


def limiter_after(*replies: Any) -> FakeRateLimiter:
    """Make one model call with `replies` and return its rate limiter."""

    async def no_wait(_: float) -> None:
        pass

    limiter = FakeRateLimiter()
    model = RetryingModel(
        ModelSpec("m", "m", "F", None), RateLimitedWire(Wire(list(replies)), limiter), RetryPolicy(sleep=no_wait)
    )
    answer = asyncio.run(model.complete(ChatRequest(REQUEST.messages, retries=5)))
    assert answer.error is None
    return limiter


@pytest.mark.parametrize("reply", [[REFUSED]])
def test_failure_of_a_request_is_raised(reply: list[Delta | ProviderError]):
    async def fails() -> None:
        async for _ in RateLimitedWire(Wire([reply]), FakeRateLimiter()).send(REQUEST, streamed=False):
            raise AssertionError("a delta arrived")

    with pytest.raises(ProviderError):
        asyncio.run(fails())
