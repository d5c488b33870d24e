"""A call that is kept at the gate of its account and comes back later has used nothing of its budget."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from canvas.budget import TOKENS, CostEstimate
from providers.models.billing.budgeted_model import BudgetedModel
from providers.models.billing.cost_estimates import CostModel, estimate_chat
from providers.models.billing.prices import Price
from providers.models.text.context_window import count_tokens
from providers.models.types.chat import ChatRequest, Completion, ContentDelta, Delta, ModelSpec, Usage

SPEC = ModelSpec("m@Vendor", "m", "Vendor", None)
ASKED = ChatRequest([{"role": "user", "content": "How are you today?"}])


class Purse:
    """Pays for everything, and remembers what was used."""

    cost_model = CostModel()

    def __init__(self) -> None:
        self.settled: list[Usage] = []

    async def is_limited(self) -> bool:
        return True

    async def reserve(self, spec: ModelSpec, estimates: Mapping[str, CostEstimate], price: Price | None) -> Any:
        return "reservation"

    async def settle(self, reservation: Any, usage: Usage) -> None:
        self.settled.append(usage)


class Patience:
    """Waits until it is called off."""

    is_postponed = True

    def __init__(self) -> None:
        self.waits = asyncio.Event()

    def mark_sent(self) -> None:
        pass

    async def wait(self, seconds: float, title: str) -> None:
        self.waits.set()
        await asyncio.Event().wait()


class Model:
    """Asks its patience first, as a gate does; then it says a word and is silent."""

    spec = SPEC

    def __init__(self, *, is_kept: bool) -> None:
        self._is_kept = is_kept

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        assert request.rate_limit_wait is not None
        if self._is_kept:
            await request.rate_limit_wait.wait(40, "Vendor (default)")
        request.rate_limit_wait.mark_sent()
        yield ContentDelta("Fine")
        await asyncio.Event().wait()

    async def complete(self, request: ChatRequest) -> Completion:
        async for _ in self.stream(request):
            pass
        raise AssertionError("it never ends")


@pytest.mark.parametrize("streamed", [True, False])
def test_a_call_that_is_called_off_while_it_waits_has_used_nothing(streamed: bool):
    purse = Purse()

    asyncio.run(called_off(purse, streamed=streamed, is_kept=True))

    assert purse.settled == [Usage()]


def test_a_call_that_is_called_off_while_it_answers_is_paid_for_as_far_as_it_came():
    purse = Purse()

    asyncio.run(called_off(purse, streamed=True, is_kept=False))

    (used,) = purse.settled
    assert used.calls == 1
    assert used.total_tokens > 5


def test_request_that_offers_tools_reserves_tokens_for_their_schemas():
    offered = {"type": "function", "function": {"name": "search", "description": "Search the web for a query."}}
    plain = estimate_chat(SPEC, ASKED, None, default_answer=1000)[TOKENS]

    with_tools = estimate_chat(SPEC, replace(ASKED, tools=[offered]), None, default_answer=1000)[TOKENS]

    assert with_tools.least - plain.least >= count_tokens("Search the web for a query.")


async def called_off(purse: Purse, *, streamed: bool, is_kept: bool) -> None:
    patience, said = Patience(), asyncio.Event()
    model = BudgetedModel(Model(is_kept=is_kept), purse)
    request = ChatRequest(ASKED.messages, rate_limit_wait=patience)

    async def read() -> None:
        async for _ in model.stream(request):
            said.set()

    asking = asyncio.ensure_future(read() if streamed else model.complete(request))
    await (patience.waits if is_kept else said).wait()
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
