"""A call that is cancelled while it waits for the rate limiter uses nothing of its budget."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from canvas.budget import TOKENS, CostEstimate
from providers.models.billing.budgeted_model import BudgetedModel
from providers.models.billing.cost_estimates import CostModel, estimate_chat
from providers.models.billing.fixed_price import FixedPrice
from providers.models.text.context_window import count_tokens
from providers.models.types.chat import ChatRequest, Completion, ContentDelta, Delta, ModelSpec, Usage

SPEC = ModelSpec("m@Vendor", "m", "Vendor", None)
REQUEST = ChatRequest([{"role": "user", "content": "How are you today?"}])


class FakeBudget:
    """Accept every reservation and record the settled usage."""

    cost_model = CostModel()

    def __init__(self) -> None:
        self.settled: list[Usage] = []

    async def is_limited(self) -> bool:
        return True

    async def reserve(self, spec: ModelSpec, estimates: Mapping[str, CostEstimate], price: FixedPrice | None) -> Any:
        return "reservation"

    async def settle(self, reservation: Any, usage: Usage) -> None:
        self.settled.append(usage)


class FakeRateLimitWait:
    """Wait until the call is cancelled."""

    is_postponed = True

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()

    def mark_sent(self) -> None:
        pass

    async def wait(self, seconds: float, title: str) -> None:
        self.has_begun.set()
        await asyncio.Event().wait()


class Model:
    """Wait for the rate limit if `is_rate_limited`, then stream one word and never end."""

    spec = SPEC

    def __init__(self, *, is_rate_limited: bool) -> None:
        self._is_rate_limited = is_rate_limited

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        assert request.rate_limit_wait is not None
        if self._is_rate_limited:
            await request.rate_limit_wait.wait(40, "Vendor (default)")
        request.rate_limit_wait.mark_sent()
        yield ContentDelta("Fine")
        await asyncio.Event().wait()

    async def complete(self, request: ChatRequest) -> Completion:
        async for _ in self.stream(request):
            pass
        raise AssertionError("it never ends")


@pytest.mark.parametrize("streamed", [True, False])
def test_call_cancelled_while_it_waits_for_its_rate_limit_uses_nothing(streamed: bool):
    budget = FakeBudget()

    asyncio.run(cancel_call(budget, streamed=streamed, is_rate_limited=True))

    assert budget.settled == [Usage()]


def test_call_cancelled_while_it_streams_is_charged_for_the_streamed_tokens():
    budget = FakeBudget()

    asyncio.run(cancel_call(budget, streamed=True, is_rate_limited=False))

    (used,) = budget.settled
    assert used.calls == 1
    assert used.total_tokens > 5


def test_request_that_offers_tools_reserves_tokens_for_their_schemas():
    offered = {"type": "function", "function": {"name": "search", "description": "Search the web for a query."}}
    plain = estimate_chat(SPEC, REQUEST, None, default_answer=1000)[TOKENS]

    with_tools = estimate_chat(SPEC, replace(REQUEST, tools=[offered]), None, default_answer=1000)[TOKENS]

    assert with_tools.least - plain.least >= count_tokens("Search the web for a query.")


async def cancel_call(budget: FakeBudget, *, streamed: bool, is_rate_limited: bool) -> None:
    rate_limit_wait, first_delta = FakeRateLimitWait(), asyncio.Event()
    model = BudgetedModel(Model(is_rate_limited=is_rate_limited), budget)
    request = ChatRequest(REQUEST.messages, rate_limit_wait=rate_limit_wait)

    async def read() -> None:
        async for _ in model.stream(request):
            first_delta.set()

    call = asyncio.ensure_future(read() if streamed else model.complete(request))
    await (rate_limit_wait.has_begun if is_rate_limited else first_delta).wait()
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
