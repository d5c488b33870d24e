"""Meters requests to models other than the chat models of nodes: embeddings, ranks, speech, and chat below a node.

    set_billing_context(BillingContext(rate_limit_wait, budget, record_usage=...))  # once, in the task of an attempt
    ...
    meter = Meter(spec, "embedding", price, limiter, default_payer=tenant)
    vectors = await meter.call(ask, sent)                                           # anywhere below

Each request, repeated ones included, waits for the rate limits of its account (providers/models/limits/),
is reserved in the budgets that apply, and is counted by its actual usage. The payer is a context variable of the task
and not an argument, because the four modules between a node and its embedding model have nothing to do with money
(docs/decisions/0028-billing-context-of-a-task.md). Requests outside of an attempt (ingestion, commands,
searches over HTTP) are charged to the tenant, and block for a limited time.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeVar, cast

from canvas.errors import BudgetExceeded, ModelError
from providers.errors import ProviderError, redact
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.billing.cost_estimates import Budget, estimate_of
from providers.models.billing.fixed_price import FREE, Price
from providers.models.billing.prices import add_cost
from providers.models.limits.idempotency_keys import IdempotencyKeys, KeyedRequest
from providers.models.limits.rate_limited_wire import PermitRequest, RequestLimiter
from providers.models.recording.model_calls import CallRecorder, ModelCall
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

MAX_WAIT = 120.0  # seconds that a request outside of an attempt waits for rate limits
WAIT_STEP = 1.0  # seconds between two checks of the limits
RATE_LIMIT_TIMEOUT = "ALLOWANCE_EXHAUSTED"
RECORDED_KINDS: Mapping[str, str] = {"tts": "speech", "asr": "transcription"}
"""The kinds of calls in records, where they differ from the kinds of models."""


@dataclass(frozen=True, slots=True)
class RequestSize:
    """The content of a request: texts, characters to speak, or other bytes.

    `tokens` counts the tokens of the texts, which may take a while.
    """

    texts: tuple[str, ...] = ()
    characters: int = 0
    content: bytes = b""

    def tokens(self) -> int:
        """Return the estimated tokens of the texts."""
        return sum(map(count_tokens, self.texts))

    def digest(self) -> str:
        """Return a digest of the content."""
        digest = sha256(self.content)
        for text in self.texts:
            digest.update(sha256(text.encode("utf-8", "surrogatepass")).digest())
        return digest.hexdigest()


def _ignore_usage(_: Usage) -> None:
    return None


def _same_model(model: ChatModel) -> ChatModel:
    return model


@dataclass(frozen=True, slots=True)
class BillingContext:
    """The payer of requests: how they wait for rate limits, their budget, and where their usage is counted.

    `wrap_model` wraps a chat model like the payer's own models. `idempotency_keys` generates the keys of requests.
    `max_wait` is the longest wait of a request in seconds if there is no `rate_limit_wait`. `recorder` records calls.
    """

    rate_limit_wait: RateLimitWait | None = None
    budget: Budget | None = None
    record_usage: Callable[[Usage], None] = _ignore_usage
    wrap_model: Callable[[ChatModel], ChatModel] = _same_model
    idempotency_keys: IdempotencyKeys | None = None
    max_wait: float = MAX_WAIT
    recorder: CallRecorder | None = None


_payer: ContextVar[BillingContext | None] = ContextVar("payer", default=None)


def set_billing_context(context: BillingContext) -> None:
    """Set the payer of the current task, and of all tasks that it starts from now on."""
    _payer.set(context)


@contextmanager
def count_usage(record_usage: Callable[[Usage], None]) -> Generator[None]:
    """Count the usage within the block with this function, for the same payer."""
    payer = _payer.get()
    if payer is None:
        yield
        return
    token = _payer.set(replace(payer, record_usage=record_usage))
    try:
        yield
    finally:
        _payer.reset(token)


class BlockingWait:
    """Waits for rate limits by blocking, for a limited time: for callers that cannot be rescheduled."""

    is_postponed = False

    def __init__(self, max_wait: float = MAX_WAIT) -> None:
        self._remaining = max_wait

    def mark_sent(self) -> None:
        pass

    async def wait(self, seconds: float, title: str) -> None:
        """Wait for `seconds`, or for a part of them. Raises ModelError once all waits together took too long."""
        if self._remaining <= 0:
            message = (
                f"The rate limits of {title} did not allow a request in time. Try again later, or raise these limits."
            )
            raise ModelError(message, retryable=True, kind=RATE_LIMIT_TIMEOUT)
        step = min(seconds, WAIT_STEP)
        self._remaining -= step
        await asyncio.sleep(step)


@dataclass(frozen=True, slots=True)
class Meter:
    """Meters the requests to one model. `default_payer` is the payer of requests outside of an attempt."""

    spec: ModelSpec
    kind: str
    price: Price | None = FREE
    limiter: RequestLimiter | None = None
    default_payer: BillingContext = field(default_factory=BillingContext)

    @contextmanager
    def recording(self, sent: RequestSize) -> Generator["MeteredCall"]:
        """Record the block as one call, which may take several requests, if the payer records its calls."""
        payer = _payer.get() or self.default_payer
        call = ModelCall(RECORDED_KINDS.get(self.kind, self.kind), self.spec, texts=sent.texts, content=sent.content)
        recorded = MeteredCall(call)
        if payer.recorder is None:
            yield recorded
            return
        payer.recorder.add(call)
        try:
            yield recorded
            call.end("ok", "", recorded.response)
        except (ModelError, ProviderError) as failed:
            call.end("failed", redact(str(failed), *self.spec.secrets))
            raise
        except BudgetExceeded:
            if not call.progress.tries:
                payer.recorder.discard(call)
            raise
        finally:
            wait = payer.rate_limit_wait
            if call.status is None and not call.progress.tries and wait is not None and wait.is_postponed:
                payer.recorder.discard(call)
            call.end("cancelled")

    async def call(
        self, ask: Callable[[], Awaitable[tuple[T, int | None]]], sent: RequestSize, *, is_blocking: bool = False
    ) -> T:
        """Send one request as `send` does, and record it as a call of its own."""
        with self.recording(sent) as recorded:
            result = await self.send(ask, sent, recorded.call, is_blocking=is_blocking)
            recorded.response = describe_result(self.kind, result)
        return result

    async def send(
        self,
        ask: Callable[[], Awaitable[tuple[T, int | None]]],
        sent: RequestSize,
        call: ModelCall,
        *,
        is_blocking: bool = False,
    ) -> T:
        """Reserve, wait for the rate limits, send the request once with `ask`, count its usage and return its result.

        `ask` also returns the tokens that the vendor has counted, or None. `call` is the call that the request is a
        part of.
        `is_blocking`: block in the wait for rate limits even if the attempt could be rescheduled.
        """
        payer = _payer.get() or self.default_payer
        expected = self._usage(sent, await _count_tokens(sent))
        reservation = None
        if payer.budget is not None and await payer.budget.is_limited():
            reservation = await payer.budget.reserve(self.spec, estimate_of(expected, self.price), self.price)
        used = Usage()  # zero until the request is sent
        try:
            with _key_for(payer, self.kind, self.spec.id, sent.digest()) as keyed:
                key = keyed.key if keyed is not None else None
                rate_limit_wait = (
                    payer.rate_limit_wait
                    if payer.rate_limit_wait is not None and not is_blocking
                    else BlockingWait(payer.max_wait)
                )
                request = PermitRequest(
                    len("".join(sent.texts)), lambda: expected.total_tokens, None, key, rate_limit_wait
                )
                began = time.monotonic()
                try:
                    permit = await self.limiter.acquire(request) if self.limiter is not None else None
                finally:
                    call.progress.waited += time.monotonic() - began
                call.progress.tries += 1
                used, failed, tokens = expected, None, None
                if payer.rate_limit_wait is not None:
                    payer.rate_limit_wait.mark_sent()
                try:
                    result, tokens = await ask()
                    used = self._usage(sent, expected.total_tokens if tokens is None else tokens)
                    tokens = used.total_tokens
                except ProviderError as problem:
                    failed, used = problem, self._usage(RequestSize(), 0)
                    raise
                finally:
                    if permit is not None:
                        permit.release(tokens, failed)
                if keyed is not None:
                    keyed.is_answered = True
            return result
        finally:
            if used.calls:
                payer.record_usage(used)
                call.usage += used
            if payer.budget is not None and reservation is not None:
                await payer.budget.settle(reservation, used)

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        """Read the rate limit headers of a response."""
        if self.limiter is not None:
            self.limiter.observe_headers(headers)

    def _usage(self, sent: RequestSize, tokens: int) -> Usage:
        """Return the usage of one request with so many tokens, including its cost."""
        counts = {"calls": 1, "tokens": tokens, "characters": sent.characters}
        kinds = {f"{self.kind}_{name}": count for name, count in counts.items() if count}
        usage = Usage(tokens, 0, tokens, calls=1, characters=sent.characters, kinds=kinds)
        return add_cost(usage, self.price)


@dataclass(slots=True)
class MeteredCall:
    """A call that is being recorded, and what to record of its result (JSON)."""

    call: ModelCall
    response: Mapping[str, Any] | None = None


def describe_result(kind: str, result: Any) -> Mapping[str, Any]:
    """Return what is recorded of a result: of vectors their number and length, of audio its size."""
    match kind:
        case "embedding":
            vectors: Sequence[Any] = getattr(result, "vectors", ())
            return {"vectors": len(vectors), "dimensions": len(vectors[0]) if vectors else 0}
        case "rerank":
            return {"scores": list(result)}
        case "tts":
            return {"bytes": len(result)}
        case _:
            return {"text": result} if isinstance(result, str) else {}


class MeteredModel:
    """A chat model for calls that no component makes itself: charged to the payer of the current task."""

    def __init__(self, model: ChatModel, default_payer: BillingContext | None = None) -> None:
        self._model = model
        self._default_payer = default_payer or BillingContext()

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Yield deltas as they arrive, one UsageDelta at the end. Closing the generator closes the connection."""
        payer = _payer.get() or self._default_payer
        deltas = cast("AsyncGenerator[Delta, None]", payer.wrap_model(self._model).stream(_with_wait(request, payer)))
        async with aclosing(deltas):
            async for delta in deltas:
                if isinstance(delta, UsageDelta):
                    payer.record_usage(delta.usage)
                yield delta

    async def complete(self, request: ChatRequest) -> Completion:
        """Return the whole answer without streaming."""
        payer = _payer.get() or self._default_payer
        answer = await payer.wrap_model(self._model).complete(_with_wait(request, payer))
        payer.record_usage(answer.usage)
        return answer


def _with_wait(request: ChatRequest, payer: BillingContext) -> ChatRequest:
    """Return the request with a blocking wait for rate limits if it has no other."""
    if request.rate_limit_wait is not None:
        return request
    return replace(request, rate_limit_wait=BlockingWait(payer.max_wait))


def _key_for(payer: BillingContext, *content: str) -> AbstractContextManager[KeyedRequest | None]:
    return payer.idempotency_keys.key_for(*content) if payer.idempotency_keys is not None else nullcontext()


async def _count_tokens(sent: RequestSize) -> int:
    """Count the tokens of texts; long texts are counted in a thread."""
    if sum(map(len, sent.texts)) <= 50_000:  # some ten milliseconds
        return sent.tokens()
    return await in_untrusted_thread(sent.tokens)
