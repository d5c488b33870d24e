"""A chat model with a budget: each call reserves its estimated cost before it begins, and settles it afterwards."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.billing.cost_estimates import Budget, estimate_chat, prompt_tokens
from providers.models.billing.metering import BlockingWait
from providers.models.billing.prices import add_cost
from providers.models.text.context_window import count_tokens
from providers.models.types.chat import (
    CallsDelta,
    ChatModel,
    ChatRequest,
    Completion,
    ContentDelta,
    Delta,
    ModelSpec,
    RateLimitWait,
    ReasoningDelta,
    Usage,
    UsageDelta,
)


class BudgetedModel:
    """A chat model for a run with a budget. A call that exceeds the budget raises BudgetExceeded."""

    def __init__(self, model: ChatModel, budget: Budget) -> None:
        self._model = model
        self._budget = budget

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Yield deltas as they arrive, one UsageDelta at the end. A cancelled call pays for what it received."""
        reservation = await self._reserve(request)
        request, observed_wait = _observe_wait(request)
        received: list[str] = []
        usage: Usage | None = None
        try:
            async with aclosing(cast("AsyncGenerator[Delta, None]", self._model.stream(request))) as deltas:
                async for delta in deltas:
                    if isinstance(delta, UsageDelta):
                        usage = delta.usage
                    received += _texts_of(delta)
                    yield delta
        finally:
            if reservation is not None:
                await self._budget.settle(
                    reservation, usage or observed_wait.usage or self._estimate_usage(request, received)
                )

    async def complete(self, request: ChatRequest) -> Completion:
        """Return the whole answer without streaming."""
        reservation = await self._reserve(request)
        request, observed_wait = _observe_wait(request)
        usage: Usage | None = None
        try:
            answer = await self._model.complete(request)
            usage = answer.usage
        finally:
            if reservation is not None:
                await self._budget.settle(
                    reservation, usage or observed_wait.usage or self._estimate_usage(request, ())
                )
        return answer

    async def _reserve(self, request: ChatRequest) -> Any:
        if not await self._budget.is_limited():
            return None
        spending = self._budget.cost_model
        price = spending.prices.price_of(self.spec)
        estimates = await in_untrusted_thread(estimate_chat, self.spec, request, price, spending.answer_tokens)
        return await self._budget.reserve(self.spec, estimates, price)

    def _estimate_usage(self, request: ChatRequest, received: Sequence[str]) -> Usage:
        """Estimate the usage of a call that ended without reporting it: its prompt and the text received."""
        prompt, completion = prompt_tokens(request), count_tokens("".join(received))
        usage = Usage(prompt, completion, prompt + completion, calls=1)
        return add_cost(usage, self._budget.cost_model.prices.price_of(self.spec))


class _ObservedWait:
    """Wraps how a request waits for rate limits, and knows whether it is still waiting."""

    def __init__(self, rate_limit_wait: RateLimitWait | None) -> None:
        self._wait = rate_limit_wait
        self._is_waiting = False

    @property
    def usage(self) -> Usage | None:
        """Return zero usage while the request has not been sent; None afterwards, when it is not known."""
        return Usage() if self._is_waiting else None

    def mark_sent(self) -> None:
        self._is_waiting = False
        if self._wait is not None:
            self._wait.mark_sent()

    async def wait(self, seconds: float, title: str) -> None:
        self._is_waiting = True
        await (self._wait or BlockingWait()).wait(seconds, title)

    @property
    def is_postponed(self) -> bool:
        return self._wait is not None and self._wait.is_postponed


def _observe_wait(request: ChatRequest) -> tuple[ChatRequest, _ObservedWait]:
    observed_wait = _ObservedWait(request.rate_limit_wait)
    return replace(request, rate_limit_wait=observed_wait), observed_wait


def _texts_of(delta: Delta) -> Sequence[str]:
    match delta:
        case ContentDelta(text) | ReasoningDelta(text):
            return (text,)
        case CallsDelta(calls):
            return [call.name + call.arguments for call in calls]
        case _:
            return ()
