"""Requests that are no chat pass the gate of their account, are paid for, and are counted where somebody asked."""

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
from providers.models.billing.prices import Price
from providers.models.limits.idempotency_keys import IdempotencyKeys
from providers.models.limits.rate_limited_wire import PermitRequest
from providers.models.types.chat import ChatRequest, Completion, ModelSpec, Usage

SPEC = ModelSpec("m@Vendor", "m", "Vendor", None)
PRICE = Price(input=Decimal(2), output=Decimal(0), characters=Decimal(15), requests=Decimal(1), currency="USD")
REFUSED = ProviderError(ErrorCode.RATE_LIMIT_EXCEEDED, "slow down", 3.0)


@dataclass
class Gate:
    """Lets everybody through, unless it is `closed`; keeps what it is told."""

    closed: bool = False
    entered: list[PermitRequest] = field(default_factory=list[PermitRequest])
    told: list[tuple[int | None, ProviderError | None]] = field(default_factory=list[Any])

    async def acquire(self, request: PermitRequest) -> "Gate":
        self.entered.append(request)
        if self.closed:
            await asyncio.Event().wait()
        return self

    def release(self, tokens: int | None, failed: ProviderError | None) -> None:
        self.told.append((tokens, failed))

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        raise AssertionError("nobody has said anything")


@dataclass
class Purse:
    """Pays for everything, unless it is `empty`."""

    empty: bool = False
    cost_model: CostModel = field(default_factory=CostModel)
    asked: list[Mapping[str, CostEstimate]] = field(default_factory=list[Any])
    settled: list[Usage] = field(default_factory=list[Usage])

    async def is_limited(self) -> bool:
        return True

    async def reserve(self, spec: ModelSpec, estimates: Mapping[str, CostEstimate], price: Price | None) -> Any:
        if self.empty:
            raise BudgetExceeded("There is nothing left.")
        self.asked.append(estimates)
        return "reservation"

    async def settle(self, reservation: Any, usage: Usage) -> None:
        assert reservation == "reservation"
        self.settled.append(usage)


@dataclass
class Patience:
    """Notes that a request has left."""

    sent: int = 0
    is_postponed: bool = False

    def mark_sent(self) -> None:
        self.sent += 1

    async def wait(self, seconds: float, title: str) -> None:
        raise AssertionError("nobody waits here")


@dataclass
class World:
    """A meter, and all who have to do with it."""

    gate: Gate = field(default_factory=Gate)
    purse: Purse = field(default_factory=Purse)
    patience: Patience = field(default_factory=Patience)
    counted: list[Usage] = field(default_factory=list[Usage])
    price: Price | None = None

    @property
    def billing_context(self) -> BillingContext:
        return BillingContext(
            self.patience, self.purse, self.counted.append, idempotency_keys=IdempotencyKeys("activation")
        )

    @property
    def meter(self) -> Meter:
        return Meter(SPEC, "embedding", self.price, self.gate)

    def call(self, ask: Any, sent: RequestSize = RequestSize(("some text",)), **more: Any) -> Any:  # noqa: B008 (it is frozen)
        async def asked() -> Any:
            set_billing_context(self.billing_context)
            return await self.meter.call(ask, sent, **more)

        return asyncio.run(asked())


async def seven() -> tuple[str, int | None]:
    return "vectors", 7


async def nothing_counted() -> tuple[str, int | None]:
    return "vectors", None


async def refused() -> tuple[str, int | None]:
    raise REFUSED


def test_a_request_passes_the_gate_is_paid_for_and_counted_by_its_kind():
    world = World(price=PRICE)

    assert world.call(seven) == "vectors"

    used = Usage(7, 0, 7, 1, costs={"USD": 7 * 2_000 + 1_000_000}, kinds={"embedding_calls": 1, "embedding_tokens": 7})
    assert world.counted == world.purse.settled == [used]
    assert world.gate.told == [(7, None)]
    assert world.patience.sent == 1
    (asked,) = world.purse.asked
    assert asked.keys() == {"tokens", "calls", "USD"}
    assert all(ask.is_known for ask in asked.values())


def test_tokens_without_a_vendor_count_are_estimated():
    world = World()

    world.call(nothing_counted, RequestSize(("one two three",)))

    ((tokens, _),) = world.gate.told
    assert tokens == world.counted[0].total_tokens == 3
    assert world.counted[0].unpriced_calls == 1


def test_characters_are_counted_where_there_are_no_tokens():
    world = World(price=PRICE)

    world.call(nothing_counted, RequestSize(characters=1000))

    (used,) = world.counted
    assert (used.total_tokens, used.calls, used.characters) == (0, 1, 1000)
    assert used.costs == {"USD": 15_000_000 + 1_000_000}
    assert world.purse.asked[0]["tokens"].most == 0


def test_a_refused_request_costs_a_call_and_no_token():
    world = World()

    with pytest.raises(ProviderError):
        world.call(refused)

    assert world.gate.told == [(None, REFUSED)]
    assert [(used.calls, used.total_tokens) for used in world.counted] == [(1, 0)]
    assert world.purse.settled == world.counted


def test_a_request_that_is_called_off_at_the_gate_has_used_nothing():
    world = World(Gate(closed=True))

    async def called_off() -> None:
        set_billing_context(world.billing_context)
        asking = asyncio.ensure_future(world.meter.call(seven, RequestSize(("text",))))
        while not world.gate.entered:
            await asyncio.sleep(0)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking

    asyncio.run(called_off())

    assert world.counted == []
    assert world.purse.settled == [Usage()]
    assert world.patience.sent == 0


def test_request_beyond_the_budget_is_not_sent():
    world = World(purse=Purse(empty=True))

    with pytest.raises(BudgetExceeded):
        world.call(seven)

    assert world.gate.entered == []


def test_the_ticket_of_a_request_is_the_same_in_every_attempt_and_another_for_another_text():
    keys: list[str | None] = []
    for text in ("a", "a", "b"):
        world = World()
        world.call(seven, RequestSize((text,)))
        keys.append(world.gate.entered[0].key)

    assert keys[0] == keys[1] != keys[2]


def test_blocking_request_waits_even_if_its_attempt_could_be_postponed():
    world = World()

    world.call(seven, is_blocking=True)

    assert isinstance(world.gate.entered[0].rate_limit_wait, BlockingWait)


def test_what_a_tool_uses_is_counted_by_the_tool():
    world, by_tool = World(), list[Usage]()

    async def asked() -> None:
        set_billing_context(world.billing_context)
        with count_usage(by_tool.append):
            await world.meter.call(seven, RequestSize(("text",)))
        await world.meter.call(seven, RequestSize(("text",)))

    asyncio.run(asked())

    assert (len(by_tool), len(world.counted), len(world.purse.settled)) == (1, 1, 2)


def test_what_no_attempt_asks_for_is_paid_by_the_other_one():
    purse = Purse()
    meter = Meter(SPEC, "rerank", None, default_payer=BillingContext(budget=purse))

    asyncio.run(meter.call(seven, RequestSize(("text",))))

    assert [used.kinds for used in purse.settled] == [{"rerank_calls": 1, "rerank_tokens": 7}]


def test_a_wait_in_place_ends_with_words_that_name_the_account():
    async def waits() -> None:
        patience = BlockingWait(0.0)
        await patience.wait(5, "OpenAI (default)")

    with pytest.raises(ModelError, match=r"OpenAI \(default\)") as failed:
        asyncio.run(waits())

    assert failed.value.retryable
    assert failed.value.details["kind"] == RATE_LIMIT_TIMEOUT


def test_chat_below_a_component_is_charged_to_the_current_payer():
    class Chat:
        spec = SPEC

        async def complete(self, request: ChatRequest) -> Completion:
            return Completion("yes", usage=Usage(3, 1, 4, 1))

    world, wrapped = World(), list[Any]()

    async def asked() -> None:
        set_billing_context(
            BillingContext(record_usage=world.counted.append, wrap_model=lambda model: wrapped.append(model) or model)
        )
        await MeteredModel(Chat()).complete(ChatRequest([]))  # pyright: ignore[reportArgumentType] (only asked for a whole answer)

    asyncio.run(asked())

    assert world.counted == [Usage(3, 1, 4, 1)]
    assert len(wrapped) == 1
