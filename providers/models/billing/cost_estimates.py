"""What calls of models may cost, before they begin: what each asks of budgets, and how a process counts.

The budgets themselves are rows (store/tenants/budgets.py), the rule is in canvas/budget.py. Whoever keeps a purse says
which of them count: worker/context/run_budget.py those of a run, knowledge/billing.py those of a tenant where no run
asks.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from canvas import budget
from canvas.budget import CALLS, TOKENS, Account, CostEstimate
from providers.models.billing.prices import FREE, Price, Prices
from providers.models.text.context_window import count_tokens, message_tokens
from providers.models.types.chat import ChatRequest, ModelSpec, Usage

LEAST_ANSWER = 64  # tokens; a call does not begin for less, where its author has not said how long it may get
AROUND = 4  # tokens around each message
IMAGE = 1000  # tokens that an image is taken for


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class CostModel:
    """How a process counts: prices, the longest answer that is reserved for, and the clock whose days count (UTC)."""

    prices: Prices = field(default_factory=Prices)
    answer_tokens: int = 2048
    now: Callable[[], datetime] = _utc_now
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Budget(Protocol):
    """What may be spent."""

    @property
    def spending(self) -> CostModel: ...

    async def is_limited(self) -> bool:
        """Whether any limit counts for the next call; asked before it is worked out what the call may need."""
        ...

    async def reserve(self, spec: ModelSpec, asks: Mapping[str, CostEstimate], price: Price | None) -> Any:
        """Reserve what a call asks for, once there is room for it; what `settle` wants to see again, None for nothing.

        Raises BudgetExceeded, or ModelError where no run asks, if it must not begin.
        """
        ...

    async def settle(self, reservation: Any, usage: Usage) -> None:
        """Tell what the call has used, whatever happens to whoever asks meanwhile."""
        ...


def estimate_chat(spec: ModelSpec, request: ChatRequest, price: Price | None, usual: int) -> dict[str, CostEstimate]:
    """What a call of a chat model asks for, whose answer nobody knows yet. May take a while for a long prompt."""
    prompt = prompt_tokens(request)
    least, most = answer_tokens(spec, request, prompt, usual)
    asks = {TOKENS: CostEstimate(prompt + least, prompt + most), CALLS: CostEstimate(1, 1, is_known=True)}
    if price is not None and price is not FREE:
        cost = [price.of(Usage(prompt, answer, prompt + answer, calls=1)) for answer in (least, most)]
        asks[price.currency] = CostEstimate(cost[0], cost[1])
    return asks


def estimate_of(used: Usage, price: Price | None) -> dict[str, CostEstimate]:
    """What a request asks for that will use about so much: one that is no chat."""
    asks = {
        TOKENS: CostEstimate(used.total_tokens, used.total_tokens, is_known=True),
        CALLS: CostEstimate(1, 1, is_known=True),
    }
    if price is not None and price is not FREE:
        cost = used.costs.get(price.currency, 0)
        asks[price.currency] = CostEstimate(cost, cost, is_known=True)
    return asks


def asked_of(
    accounts: Sequence[Account], asks: Mapping[str, CostEstimate], price: Price | None
) -> Mapping[str, CostEstimate]:
    """The same as these accounts see it: what costs nothing asks for nothing, in any currency."""
    if price is not FREE:
        return asks
    return {**asks, **{each.measure: CostEstimate(0, 0) for each in accounts if budget.is_money(each.measure)}}


def amounts_of(usage: Usage) -> dict[str, int]:
    """What was used, by measure."""
    return {TOKENS: usage.total_tokens, CALLS: usage.calls, **usage.costs}


def prompt_tokens(request: ChatRequest) -> int:
    """About how many tokens a request sends: its messages, the functions it offers, and its images."""
    offered = count_tokens(json.dumps(list(request.tools), ensure_ascii=False, default=str)) if request.tools else 0
    return message_tokens(request.messages) + offered + IMAGE * len(request.images) + AROUND * len(request.messages)


def answer_tokens(spec: ModelSpec, request: ChatRequest, prompt: int, usual: int) -> tuple[int, int]:
    """The least and the most tokens of an answer: what its author allows, else a usual one as far as the model goes."""
    asked = request.params.get("max_tokens")
    if isinstance(asked, int) and not isinstance(asked, bool) and asked > 0:
        return asked, asked
    most = max(LEAST_ANSWER, min(usual, spec.context_tokens - prompt))
    return LEAST_ANSWER, most
