"""Estimates the cost of model calls before they begin, and defines the protocol of a budget.

Budgets are rows (store/tenants/budgets.py), and canvas/budget.py decides whether a call may begin. The implementations
of `Budget` select the rows: worker/context/run_budget.py for a run, knowledge/billing.py for a tenant without a run.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from canvas import budget
from canvas.budget import CALLS, TOKENS, Account, CostEstimate
from providers.models.billing.fixed_price import FREE, Price
from providers.models.billing.prices import Prices
from providers.models.text.context_window import count_tokens, message_tokens
from providers.models.types.chat import ChatRequest, ModelSpec, Usage

MIN_ANSWER_TOKENS = 64  # tokens; the smallest answer that a call without `max_tokens` reserves
MESSAGE_OVERHEAD_TOKENS = 4  # tokens of overhead for each message
IMAGE_TOKENS = 1000  # assumed tokens of an image


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class CostModel:
    """How a process computes cost: prices, the longest answer to reserve for, and the clock that defines days (UTC)."""

    prices: Prices = field(default_factory=Prices)
    answer_tokens: int = 2048
    now: Callable[[], datetime] = _utc_now
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Budget(Protocol):
    """The budget that model calls are charged to."""

    @property
    def cost_model(self) -> CostModel: ...

    async def is_limited(self) -> bool:
        """Return whether any limit applies to the next call, so that an estimate is needed."""
        ...

    async def reserve(self, spec: ModelSpec, estimates: Mapping[str, CostEstimate], price: Price | None) -> Any:
        """Wait until the budget has room for a call, reserve its estimates, and return the reservation for `settle`.

        Returns None if nothing was reserved. Raises BudgetExceeded, or ModelError outside of a run, if the call must
        not begin.
        """
        ...

    async def settle(self, reservation: Any, usage: Usage) -> None:
        """Replace a reservation by the actual usage, also if the caller is cancelled meanwhile."""
        ...


def estimate_chat(
    spec: ModelSpec, request: ChatRequest, price: Price | None, default_answer: int
) -> dict[str, CostEstimate]:
    """Return the estimates of a chat call by measure; `default_answer` is the default length of an answer in tokens.

    A long prompt takes a while to count.
    """
    prompt = prompt_tokens(request)
    least, most = answer_tokens(spec, request, prompt, default_answer)
    estimates = {TOKENS: CostEstimate(prompt + least, prompt + most), CALLS: CostEstimate(1, 1, is_known=True)}
    if price is not None and price is not FREE:
        cost = [price.cost_of(Usage(prompt, answer, prompt + answer, calls=1)) for answer in (least, most)]
        estimates[price.currency] = CostEstimate(cost[0], cost[1])
    return estimates


def estimate_of(used: Usage, price: Price | None) -> dict[str, CostEstimate]:
    """Return the estimates of a request with a known usage, which is any request except chat."""
    estimates = {
        TOKENS: CostEstimate(used.total_tokens, used.total_tokens, is_known=True),
        CALLS: CostEstimate(1, 1, is_known=True),
    }
    if price is not None and price is not FREE:
        cost = used.costs.get(price.currency, 0)
        estimates[price.currency] = CostEstimate(cost, cost, is_known=True)
    return estimates


def estimates_for(
    accounts: Sequence[Account], estimates: Mapping[str, CostEstimate], price: Price | None
) -> Mapping[str, CostEstimate]:
    """Return the estimates for these accounts; a free model also has an estimate of 0 in each of their currencies."""
    if price is not FREE:
        return estimates
    return {**estimates, **{each.measure: CostEstimate(0, 0) for each in accounts if budget.is_money(each.measure)}}


def amounts_of(usage: Usage) -> dict[str, int]:
    """Return the used amounts by measure."""
    return {TOKENS: usage.total_tokens, CALLS: usage.calls, **usage.costs}


def prompt_tokens(request: ChatRequest) -> int:
    """Return the estimated tokens of a request: its messages, tools and images."""
    tools = count_tokens(json.dumps(list(request.tools), ensure_ascii=False, default=str)) if request.tools else 0
    return (
        message_tokens(request.messages)
        + tools
        + IMAGE_TOKENS * len(request.images)
        + MESSAGE_OVERHEAD_TOKENS * len(request.messages)
    )


def answer_tokens(spec: ModelSpec, request: ChatRequest, prompt: int, default_answer: int) -> tuple[int, int]:
    """Return the least and the most tokens of an answer: `max_tokens`, or up to `default_answer` within the context."""
    max_tokens = request.params.get("max_tokens")
    if isinstance(max_tokens, int) and not isinstance(max_tokens, bool) and max_tokens > 0:
        return max_tokens, max_tokens
    most = max(MIN_ANSWER_TOKENS, min(default_answer, spec.context_tokens - prompt))
    return MIN_ANSWER_TOKENS, most
