"""Every request passes the gate, and what it came to is told there."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from providers.errors import ErrorCode, ProviderError
from providers.models.chat.retrying_model import RetryingModel, RetryPolicy
from providers.models.limits.rate_limited_wire import PermitRequest, RateLimitedWire
from providers.models.types.chat import ChatRequest, ContentDelta, Delta, ModelSpec, Usage, UsageDelta

ASKED = ChatRequest([{"role": "user", "content": "How are you today?"}])
REFUSED = ProviderError(ErrorCode.RATE_LIMIT_EXCEEDED, "slow down", 3.0)


@dataclass
class Wire:
    """Gives what is laid ready, a request after the other."""

    replies: list[list[Delta | ProviderError]]

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        for delta in self.replies.pop(0):
            if isinstance(delta, ProviderError):
                raise delta
            yield delta


@dataclass
class Gate:
    """Lets everybody through, and keeps what it is told."""

    entered: int = 0
    told: list[tuple[int | None, ProviderError | None]] = field(default_factory=list)

    async def acquire(self, request: PermitRequest) -> "Gate":
        self.entered += 1
        return self

    def release(self, tokens: int | None, failed: ProviderError | None) -> None:
        self.told.append((tokens, failed))

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        raise AssertionError("a wire hears headers")


def test_tokens_counted_by_the_vendor_are_reported():
    gate = passed([ContentDelta("Fine."), UsageDelta(Usage(5, 2, 7))])

    assert gate.told == [(7, None)]


def test_tokens_without_a_count_are_estimated():
    ((tokens, failed),) = passed([ContentDelta("Fine, thank you.")]).told

    assert failed is None
    assert tokens is not None
    assert 5 < tokens < 30


def test_a_repeated_request_passes_once_more():
    gate = passed([REFUSED], [REFUSED], [ContentDelta("Fine."), UsageDelta(Usage(5, 2, 7))])

    assert gate.entered == 3
    assert gate.told == [(None, REFUSED), (None, REFUSED), (7, None)]


def test_cancelled_request_reports_no_tokens():
    gate = Gate()

    async def leaves_early() -> None:
        wire = RateLimitedWire(Wire([[ContentDelta("Fi"), ContentDelta("ne.")]]), gate)
        stream = wire.send(ASKED, streamed=True)
        await anext(stream)
        await stream.aclose()

    asyncio.run(leaves_early())

    assert gate.told == [(None, None)]


def passed(*replies: Any) -> Gate:
    """The gate, after a call over it."""

    async def no_wait(_: float) -> None:
        pass

    gate = Gate()
    model = RetryingModel(
        ModelSpec("m", "m", "F", None), RateLimitedWire(Wire(list(replies)), gate), RetryPolicy(sleep=no_wait)
    )
    answer = asyncio.run(model.complete(ChatRequest(ASKED.messages, retries=5)))
    assert answer.error is None
    return gate


@pytest.mark.parametrize("reply", [[REFUSED]])
def test_a_failure_comes_through(reply: list[Delta | ProviderError]):
    async def fails() -> None:
        async for _ in RateLimitedWire(Wire([reply]), Gate()).send(ASKED, streamed=False):
            raise AssertionError("nothing was said")

    with pytest.raises(ProviderError):
        asyncio.run(fails())
