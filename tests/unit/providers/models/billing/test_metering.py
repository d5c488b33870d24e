"""Requests other than chat: they acquire a permit, reserve budget, and their usage is recorded."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from canvas.budget import CostEstimate
from canvas.errors import BudgetExceeded, ModelError
from providers.errors import ErrorCode, ProviderError
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.fixed_price import FixedPrice, Price
from providers.models.billing.metering import (
    RATE_LIMIT_TIMEOUT,
    BillingContext,
    BlockingWait,
    Meter,
    MeteredModel,
    RequestSize,
    count_usage,
    set_billing_context,
)
from providers.models.limits.idempotency_keys import IdempotencyKeys
from providers.models.limits.rate_limited_wire import PermitRequest
from providers.models.types.chat import ChatRequest, Completion, ModelSpec, Usage

SPEC = ModelSpec("m@Vendor", "m", "Vendor", None)
PRICE = FixedPrice(input=Decimal(2), output=Decimal(0), characters=Decimal(15), requests=Decimal(1), currency="USD")
REFUSED = ProviderError(ErrorCode.RATE_LIMIT_EXCEEDED, "slow down", 3.0)


@dataclass
class FakeRateLimiter:
    """Permit every request, unless it is `closed`; record the requests and the releases."""

    closed: bool = False
    entered: list[PermitRequest] = field(default_factory=list[PermitRequest])
    releases: list[tuple[int | None, ProviderError | None]] = field(default_factory=list[Any])

    async def acquire(self, request: PermitRequest) -> "FakeRateLimiter":
        self.entered.append(request)
        if self.closed:
            await asyncio.Event().wait()
        return self

    def release(self, tokens: int | None, failed: ProviderError | None) -> None:
        self.releases.append((tokens, failed))

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        raise AssertionError("no response has headers")


@dataclass
class FakeBudget:
    """Accept every reservation, unless it is `empty`."""

    empty: bool = False
    cost_model: CostModel = field(default_factory=CostModel)
    estimates: list[Mapping[str, CostEstimate]] = field(default_factory=list[Any])
    settled: list[Usage] = field(default_factory=list[Usage])

    async def is_limited(self) -> bool:
        return True

    async def reserve(self, spec: ModelSpec, estimates: Mapping[str, CostEstimate], price: Price | None) -> Any:
        if self.empty:
            raise BudgetExceeded("There is nothing left.")
        self.estimates.append(estimates)
        return "reservation"

    async def settle(self, reservation: Any, usage: Usage) -> None:
        assert reservation == "reservation"
        self.settled.append(usage)


@dataclass
class FakeRateLimitWait:
    """Count the requests that were sent."""

    sent: int = 0
    is_postponed: bool = False

    def mark_sent(self) -> None:
        self.sent += 1

    async def wait(self, seconds: float, title: str) -> None:
        raise AssertionError("no request waits")


@dataclass
class World:
    """A meter with a fake rate limiter, budget and wait."""

    limiter: FakeRateLimiter = field(default_factory=FakeRateLimiter)
    budget: FakeBudget = field(default_factory=FakeBudget)
    rate_limit_wait: FakeRateLimitWait = field(default_factory=FakeRateLimitWait)
    counted: list[Usage] = field(default_factory=list[Usage])
    price: Price | None = None

    @property
    def billing_context(self) -> BillingContext:
        return BillingContext(
            self.rate_limit_wait, self.budget, self.counted.append, idempotency_keys=IdempotencyKeys("activation")
        )

    @property
    def meter(self) -> Meter:
        return Meter(SPEC, "embedding", self.price, self.limiter)

    def call(self, send: Any, size: RequestSize = RequestSize(("some text",)), **more: Any) -> Any:  # noqa: B008 (it is frozen)
        async def run_call() -> Any:
            set_billing_context(self.billing_context)
            return await self.meter.call(send, size, **more)

        return asyncio.run(run_call())


async def send_with_seven_tokens() -> tuple[str, int | None]:
    return "vectors", 7


async def send_without_token_count() -> tuple[str, int | None]:
    return "vectors", None


async def send_refused() -> tuple[str, int | None]:
    raise REFUSED


def test_request_acquires_a_permit_and_is_charged_and_counted_by_its_kind():
    world = World(price=PRICE)

    assert world.call(send_with_seven_tokens) == "vectors"

    used = Usage(7, 0, 7, 1, costs={"USD": 7 * 2_000 + 1_000_000}, kinds={"embedding_calls": 1, "embedding_tokens": 7})
    assert world.counted == world.budget.settled == [used]
    assert world.limiter.releases == [(7, None)]
    assert world.rate_limit_wait.sent == 1
    (estimates,) = world.budget.estimates
    assert estimates.keys() == {"tokens", "calls", "USD"}
    assert all(estimate.is_known for estimate in estimates.values())


def test_tokens_without_a_vendor_count_are_estimated():
    world = World()

    world.call(send_without_token_count, RequestSize(("one two three",)))

    ((tokens, _),) = world.limiter.releases
    assert tokens == world.counted[0].total_tokens == 3
    assert world.counted[0].unpriced_calls == 1


def test_characters_are_counted_where_there_are_no_tokens():
    world = World(price=PRICE)

    world.call(send_without_token_count, RequestSize(characters=1000))

    (used,) = world.counted
    assert (used.total_tokens, used.calls, used.characters) == (0, 1, 1000)
    assert used.costs == {"USD": 15_000_000 + 1_000_000}
    assert world.budget.estimates[0]["tokens"].most == 0


def test_a_refused_request_costs_a_call_and_no_token():
    world = World()

    with pytest.raises(ProviderError):
        world.call(send_refused)

    assert world.limiter.releases == [(None, REFUSED)]
    assert [(used.calls, used.total_tokens) for used in world.counted] == [(1, 0)]
    assert world.budget.settled == world.counted


def test_request_cancelled_while_it_waits_for_a_permit_uses_nothing():
    world = World(FakeRateLimiter(closed=True))

    async def cancel_call() -> None:
        set_billing_context(world.billing_context)
        call = asyncio.ensure_future(world.meter.call(send_with_seven_tokens, RequestSize(("text",))))
        while not world.limiter.entered:
            await asyncio.sleep(0)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call

    asyncio.run(cancel_call())

    assert world.counted == []
    assert world.budget.settled == [Usage()]
    assert world.rate_limit_wait.sent == 0


def test_request_beyond_the_budget_is_not_sent():
    world = World(budget=FakeBudget(empty=True))

    with pytest.raises(BudgetExceeded):
        world.call(send_with_seven_tokens)

    assert world.limiter.entered == []


def test_permit_key_is_the_same_in_every_attempt_and_differs_by_text():
    keys: list[str | None] = []
    for text in ("a", "a", "b"):
        world = World()
        world.call(send_with_seven_tokens, RequestSize((text,)))
        keys.append(world.limiter.entered[0].key)

    assert keys[0] == keys[1] != keys[2]


def test_blocking_request_waits_even_if_its_attempt_could_be_postponed():
    world = World()

    world.call(send_with_seven_tokens, is_blocking=True)

    assert isinstance(world.limiter.entered[0].rate_limit_wait, BlockingWait)


def test_usage_inside_a_tool_is_recorded_by_the_tool():
    world, by_tool = World(), list[Usage]()

    async def run_call() -> None:
        set_billing_context(world.billing_context)
        with count_usage(by_tool.append):
            await world.meter.call(send_with_seven_tokens, RequestSize(("text",)))
        await world.meter.call(send_with_seven_tokens, RequestSize(("text",)))

    asyncio.run(run_call())

    assert (len(by_tool), len(world.counted), len(world.budget.settled)) == (1, 1, 2)


def test_request_without_an_attempt_is_charged_to_the_default_payer():
    budget = FakeBudget()
    meter = Meter(SPEC, "rerank", None, default_payer=BillingContext(budget=budget))

    asyncio.run(meter.call(send_with_seven_tokens, RequestSize(("text",))))

    assert [used.kinds for used in budget.settled] == [{"rerank_calls": 1, "rerank_tokens": 7}]


def test_blocking_wait_that_times_out_names_the_account():
    async def wait() -> None:
        blocking_wait = BlockingWait(0.0)
        await blocking_wait.wait(5, "OpenAI (default)")

    with pytest.raises(ModelError, match=r"OpenAI \(default\)") as failed:
        asyncio.run(wait())

    assert failed.value.retryable
    assert failed.value.details["kind"] == RATE_LIMIT_TIMEOUT


def test_chat_below_a_component_is_charged_to_the_current_payer():
    class Chat:
        spec = SPEC

        async def complete(self, request: ChatRequest) -> Completion:
            return Completion("yes", usage=Usage(3, 1, 4, 1))

    world, wrapped = World(), list[Any]()

    async def run_call() -> None:
        set_billing_context(
            BillingContext(record_usage=world.counted.append, wrap_model=lambda model: wrapped.append(model) or model)
        )
        await MeteredModel(Chat()).complete(ChatRequest([]))  # pyright: ignore[reportArgumentType] (only complete() is called)

    asyncio.run(run_call())

    assert world.counted == [Usage(3, 1, 4, 1)]
    assert len(wrapped) == 1
