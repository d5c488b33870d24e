"""What every request to a model passes, and who pays for it: vectors, ranks, speech, and chat that nodes do not see.

    charge(Payer(patience, purse, spent=context.spent))     # once, in the task of an attempt
    ...
    meter = Meter(spec, "embedding", price, gate, otherwise=tenant)
    vectors = await meter.passed(ask, sent)                 # anywhere below, however deep

A request waits for the limits of its account (providers/models/limits/gated_wire.py), is reserved in the budgets that
count for it, and is counted as it was used, repeated ones each by themselves. Who pays goes along with the task and not
from hand to hand: between a node and the model that turns its question into a vector there are four modules that have
nothing to do with money. What no attempt asks for (documents that are read, commands, searches over HTTP) is its
tenant's, who waits where he is, for a while.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TypeVar, cast

from canvas.errors import ModelError
from providers.errors import ProviderError
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.billing.cost_estimates import Budget, estimate_of
from providers.models.billing.prices import FREE, Price, priced
from providers.models.limits.gated_wire import PermitRequest, RateLimitGate
from providers.models.limits.idempotency_keys import IdempotencyKeys, KeyedRequest
from providers.models.text.context_window import count_tokens
from providers.models.types.chat import (
    ChatModel,
    ChatRequest,
    Completion,
    Delta,
    ModelSpec,
    RateLimitWait,
    Usage,
    UsageDelta,
)

T = TypeVar("T")

LONGEST_WAIT = 120.0  # seconds that one request of nobody's attempt waits for its turn
STEP = 1.0  # seconds after which it asks again
RATE_LIMIT_TIMEOUT = "ALLOWANCE_EXHAUSTED"


@dataclass(frozen=True, slots=True)
class RequestSize:
    """What a request brings along: texts, characters that are read aloud, or bytes of something else.

    `tokens` counts those of the texts, which may take a while.
    """

    texts: tuple[str, ...] = ()
    characters: int = 0
    content: bytes = b""

    def tokens(self) -> int:
        """About how many tokens the texts have."""
        return sum(map(count_tokens, self.texts))

    def digest(self) -> str:
        """What tells it from another request."""
        said = sha256(self.content)
        for text in self.texts:
            said.update(sha256(text.encode("utf-8", "surrogatepass")).digest())
        return said.hexdigest()


def _nobody(_: Usage) -> None:
    return None


def _as_it_is(model: ChatModel) -> ChatModel:
    return model


@dataclass(frozen=True, slots=True)
class BillingContext:
    """For whom requests leave: how they wait, what they may spend, and where what they used is counted.

    `chat` makes a chat model one that the payer's own calls of it would go through. `repeats` has the keys of requests.
    `longest` is how many seconds one of them waits at most where there is no patience.
    """

    patience: RateLimitWait | None = None
    purse: Budget | None = None
    spent: Callable[[Usage], None] = _nobody
    chat: Callable[[ChatModel], ChatModel] = _as_it_is
    repeats: IdempotencyKeys | None = None
    longest: float = LONGEST_WAIT


_payer: ContextVar[BillingContext | None] = ContextVar("payer", default=None)


def set_billing_context(payer: BillingContext) -> None:
    """Have this task's requests, and those of the tasks it begins from here on, paid by him."""
    _payer.set(payer)


@contextmanager
def count_usage(spent: Callable[[Usage], None]) -> Generator[None]:
    """Count what is used within the block here, whoever pays for it."""
    payer = _payer.get()
    if payer is None:
        yield
        return
    token = _payer.set(replace(payer, spent=spent))
    try:
        yield
    finally:
        _payer.reset(token)


class BlockingWait:
    """The patience of whoever has no place to give up: it waits where it is, and not for ever."""

    comes_back = False

    def __init__(self, longest: float = LONGEST_WAIT) -> None:
        self._left = longest

    def sends(self) -> None:
        pass

    async def wait(self, seconds: float, title: str) -> None:
        """Wait a part of it. Raises ModelError once it has taken too long."""
        if self._left <= 0:
            told = f"The limits of {title} let no request leave in time. Try again later, or raise them if they may be."
            raise ModelError(told, retryable=True, kind=RATE_LIMIT_TIMEOUT)
        step = min(seconds, STEP)
        self._left -= step
        await asyncio.sleep(step)


@dataclass(frozen=True, slots=True)
class Meter:
    """What requests to one model pass. `otherwise` pays for those of no attempt."""

    spec: ModelSpec
    kind: str
    price: Price | None = FREE
    gate: RateLimitGate | None = None
    otherwise: BillingContext = field(default_factory=BillingContext)

    async def passed(
        self, ask: Callable[[], Awaitable[tuple[T, int | None]]], sent: RequestSize, *, stays: bool = False
    ) -> T:
        """What a request gives that is sent once, when it may leave.

        `ask` also tells the tokens that the vendor has counted, if it has. `stays`: it waits where it is, though who
        asks could give his place up.
        """
        payer = _payer.get() or self.otherwise
        expected = self._usage(sent, await _counted(sent))
        reservation = None
        if payer.purse is not None and await payer.purse.is_limited():
            reservation = await payer.purse.reserve(self.spec, estimate_of(expected, self.price), self.price)
        used = Usage()  # nothing, until it leaves
        try:
            with _sending(payer, self.kind, self.spec.id, sent.digest()) as sending:
                key = sending.key if sending is not None else None
                patience = payer.patience if payer.patience is not None and not stays else BlockingWait(payer.longest)
                leaving = PermitRequest(len("".join(sent.texts)), lambda: expected.total_tokens, None, key, patience)
                admitted = await self.gate.enter(leaving) if self.gate is not None else None
                used, failed, told = expected, None, None
                if payer.patience is not None:
                    payer.patience.sends()
                try:
                    given, told = await ask()
                    used = self._usage(sent, expected.total_tokens if told is None else told)
                    told = used.total_tokens
                except ProviderError as problem:
                    failed, used = problem, self._usage(RequestSize(), 0)
                    raise
                finally:
                    if admitted is not None:
                        admitted.leave(told, failed)
                if sending is not None:
                    sending.is_answered = True
            return given
        finally:
            if used.calls:
                payer.spent(used)
            if payer.purse is not None and reservation is not None:
                await payer.purse.settle(reservation, used)

    def hear(self, headers: Mapping[str, str]) -> None:
        """What a vendor says beside an answer."""
        if self.gate is not None:
            self.gate.hear(headers)

    def _usage(self, sent: RequestSize, tokens: int) -> Usage:
        """One request that has used so many tokens, with what that costs."""
        told = {"calls": 1, "tokens": tokens, "characters": sent.characters}
        kinds = {f"{self.kind}_{name}": count for name, count in told.items() if count}
        usage = Usage(tokens, 0, tokens, calls=1, characters=sent.characters, kinds=kinds)
        return priced(usage, self.price)


class MeteredModel:
    """A chat model for steps that no component sees: whoever pays here pays for it, and it is counted there."""

    def __init__(self, model: ChatModel, otherwise: BillingContext | None = None) -> None:
        self._model = model
        self._otherwise = otherwise or BillingContext()

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Deltas as they come, one UsageDelta at the end. Closing this closes the provider's connection."""
        payer = _payer.get() or self._otherwise
        deltas = cast("AsyncGenerator[Delta, None]", payer.chat(self._model).stream(_patient(request, payer)))
        async with aclosing(deltas):
            async for delta in deltas:
                if isinstance(delta, UsageDelta):
                    payer.spent(delta.usage)
                yield delta

    async def complete(self, request: ChatRequest) -> Completion:
        """The whole answer without streaming."""
        payer = _payer.get() or self._otherwise
        answer = await payer.chat(self._model).complete(_patient(request, payer))
        payer.spent(answer.usage)
        return answer


def _patient(request: ChatRequest, payer: BillingContext) -> ChatRequest:
    """For whoever is not given a patience of his own on the way."""
    return request if request.patience is not None else replace(request, patience=BlockingWait(payer.longest))


def _sending(payer: BillingContext, *said: str) -> AbstractContextManager[KeyedRequest | None]:
    return payer.repeats.of(*said) if payer.repeats is not None else nullcontext()


async def _counted(sent: RequestSize) -> int:
    """Tokens of texts; many are counted beside the loop."""
    if sum(map(len, sent.texts)) <= 50_000:  # some ten milliseconds
        return sent.tokens()
    return await in_untrusted_thread(sent.tokens)
