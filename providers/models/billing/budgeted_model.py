"""A chat model that somebody pays for: each call reserves what it may need before it begins, and settles afterwards."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.billing.cost_estimates import Budget, estimate_chat, prompt_tokens
from providers.models.billing.metering import BlockingWait
from providers.models.billing.prices import priced
from providers.models.text.context_window import count_tokens
from providers.models.types.chat import (
    CallsDelta,
    ChatModel,
    ChatRequest,
    Completion,
    Delta,
    ModelSpec,
    RateLimitWait,
    ReasoningDelta,
    TextDelta,
    Usage,
    UsageDelta,
)


class BudgetedModel:
    """A model as a run asks it whose spending is limited. Where there is nothing left a call raises BudgetExceeded."""

    def __init__(self, model: ChatModel, purse: Budget) -> None:
        self._model = model
        self._purse = purse

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Deltas as they come, one UsageDelta at the end. A call that is broken off is paid for as far as it came."""
        reservation = await self._reserved(request)
        request, at_gate = _watched(request)
        heard: list[str] = []
        usage: Usage | None = None
        try:
            async with aclosing(cast("AsyncGenerator[Delta, None]", self._model.stream(request))) as deltas:
                async for delta in deltas:
                    if isinstance(delta, UsageDelta):
                        usage = delta.usage
                    heard += _words(delta)
                    yield delta
        finally:
            if reservation is not None:
                await self._purse.settle(reservation, usage or at_gate.usage or self._so_far(request, heard))

    async def complete(self, request: ChatRequest) -> Completion:
        """The whole answer without streaming."""
        reservation = await self._reserved(request)
        request, at_gate = _watched(request)
        usage: Usage | None = None
        try:
            answer = await self._model.complete(request)
            usage = answer.usage
        finally:
            if reservation is not None:
                await self._purse.settle(reservation, usage or at_gate.usage or self._so_far(request, ()))
        return answer

    async def _reserved(self, request: ChatRequest) -> Any:
        if not await self._purse.is_limited():
            return None
        spending = self._purse.spending
        price = spending.prices.of(self.spec)
        asks = await in_untrusted_thread(estimate_chat, self.spec, request, price, spending.answer_tokens)
        return await self._purse.reserve(self.spec, asks, price)

    def _so_far(self, request: ChatRequest, heard: Sequence[str]) -> Usage:
        """What a call has used that nobody tells the usage of: its prompt, and what was heard."""
        prompt, completion = prompt_tokens(request), count_tokens("".join(heard))
        usage = Usage(prompt, completion, prompt + completion, calls=1)
        return priced(usage, self._purse.spending.prices.of(self.spec))


class _AtGate:
    """The patience of a request that is paid for, and whether the request is still kept by it."""

    def __init__(self, patience: RateLimitWait | None) -> None:
        self._patience = patience
        self._is_kept = False

    @property
    def usage(self) -> Usage | None:
        """Nothing, as long as it has not left; None where nobody knows."""
        return Usage() if self._is_kept else None

    def sends(self) -> None:
        self._is_kept = False
        if self._patience is not None:
            self._patience.sends()

    async def wait(self, seconds: float, title: str) -> None:
        self._is_kept = True
        await (self._patience or BlockingWait()).wait(seconds, title)

    @property
    def comes_back(self) -> bool:
        return self._patience is not None and self._patience.comes_back


def _watched(request: ChatRequest) -> tuple[ChatRequest, _AtGate]:
    at_gate = _AtGate(request.patience)
    return replace(request, patience=at_gate), at_gate


def _words(delta: Delta) -> Sequence[str]:
    match delta:
        case TextDelta(text) | ReasoningDelta(text):
            return (text,)
        case CallsDelta(calls):
            return [call.name + call.arguments for call in calls]
        case _:
            return ()
