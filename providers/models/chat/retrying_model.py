"""A chat model over a wire: one call, made of one or more requests.

A wire sends one request, once. This module does everything that all wires need around that: it cleans the text,
separates reasoning from the answer, counts usage, and repeats a request whose failure may be temporary. No other layer
repeats requests; retries of the SDK are turned off.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import count

import structlog

from providers.errors import TOOLS_REFUSED, ProviderError, is_tools_refusal, redact
from providers.models.text.context_window import count_tokens, message_tokens
from providers.models.text.sanitizer import ReasoningSplitter, SpokenDelta, TextCleaner, clean, without_reasoning
from providers.models.types.chat import (
    CallsDelta,
    ChatRequest,
    Completion,
    ContentDelta,
    Delta,
    ErrorDelta,
    ModelSpec,
    ReasoningDelta,
    ToolCall,
    Usage,
    UsageDelta,
    Wire,
)

log = structlog.get_logger()

_MAX_BACKOFF = 60.0  # seconds; limit for the exponential backoff
_MAX_RETRY_AFTER = 120.0  # seconds; if a provider asks for a longer wait, the failure is reported at once


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is repeated, and how to wait before; tests pass their own clock."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random  # share of the full wait, 0 to 1
    retries: int = 5  # default for requests that set none (LLM_MAX_RETRIES)
    base_delay: float = 2.0  # seconds; default for requests that set none (LLM_BASE_DELAY)

    def wait_before_next(
        self, failed: ProviderError, repeats: int, *, model: str, retries: int | None = None, delay: float | None = None
    ) -> float | None:
        """Return the seconds to wait before the next repeat of a request; None if it must not be repeated again."""
        if repeats >= (self.retries if retries is None else retries) or not failed.is_retryable:
            return None
        first = self.base_delay if delay is None else delay
        wait = min(_MAX_BACKOFF, first * 2.0 ** min(repeats, 32)) * self.jitter()
        if failed.retry_after is not None:
            if failed.retry_after > _MAX_RETRY_AFTER:
                return None
            wait = max(wait, failed.retry_after)
        log.warning("model_request_repeated", model=model, code=failed.code, wait_ms=round(wait * 1000))
        return wait


@dataclass(slots=True)
class _ReceivedAnswer:
    """The answer to one request as far as it has been received."""

    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None

    def add(self, delta: Delta) -> None:
        match delta:
            case ContentDelta(text):
                self.text.append(text)
            case ReasoningDelta(text):
                self.reasoning.append(text)
            case CallsDelta(calls):
                self.calls = calls
            case UsageDelta(usage):
                self.usage = usage
            case ErrorDelta():
                raise AssertionError("a wire raises ProviderError instead")


class RetryingModel:
    """A `ChatModel` over any wire."""

    def __init__(self, spec: ModelSpec, wire: Wire, retry_policy: RetryPolicy | None = None) -> None:
        self._spec = spec
        self._wire = wire
        self._retry_policy = retry_policy or RetryPolicy()

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Yield deltas as they arrive. A failure after the first delta ends the call, so no text is sent twice."""
        spent = Usage()
        for repeats in count():
            delivered = False
            try:
                async with aclosing(self._send_once(request, streamed=True)) as deltas:
                    async for delta in deltas:
                        if isinstance(delta, UsageDelta):
                            spent += delta.usage
                        else:
                            delivered = True
                            yield delta
                break
            except ProviderError as failed:
                wait = None if delivered else self._wait_before_next(request, repeats, failed)
                if wait is None:
                    yield self._error(request, failed)
                    break
            await self._retry_policy.sleep(wait)
        yield UsageDelta(spent)

    async def complete(self, request: ChatRequest) -> Completion:
        """Return the whole answer. A request that fails in the middle may be repeated, since no text was passed on."""
        spent = Usage()
        for repeats in count():
            received = _ReceivedAnswer()
            try:
                async with aclosing(self._send_once(request, streamed=False)) as deltas:
                    async for delta in deltas:
                        received.add(delta)
            except ProviderError as failed:
                spent += received.usage or Usage()
                wait = self._wait_before_next(request, repeats, failed)
                if wait is None:
                    error = self._error(request, failed)
                    return Completion(text=str(error), usage=spent, error=error)
                await self._retry_policy.sleep(wait)
            else:
                text = without_reasoning("".join(received.text))
                spent += received.usage or Usage()
                return Completion(text, "".join(received.reasoning), received.calls, spent)
        raise AssertionError("unreachable: counting has no end")

    async def _send_once(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        """Send one request and yield its cleaned text, and exactly one UsageDelta at the end or before a ProviderError.

        A limit on the number of concurrent requests of a process or provider belongs around `send`.
        """
        received = _ReceivedAnswer()
        cleaner = _DeltaCleaner()
        if request.progress is not None:
            request.progress.tries += 1
        try:
            async with aclosing(self._wire.send(request, streamed=streamed)) as deltas:
                async for delta in deltas:
                    for cleaned in cleaner.clean(delta):
                        received.add(cleaned)
                        if not isinstance(cleaned, UsageDelta):
                            yield cleaned
            for last in cleaner.flush():
                received.add(last)
                yield last
        except ProviderError:
            for last in cleaner.flush():
                received.add(last)
                yield last
            yield UsageDelta(_usage_of_failure(request, received))
            raise
        yield UsageDelta(_usage(request, received))

    def _wait_before_next(self, request: ChatRequest, repeats: int, failed: ProviderError) -> float | None:
        delay = None if request.retries is None else request.retry_delay
        return self._retry_policy.wait_before_next(
            failed, repeats, model=self._spec.id, retries=request.retries, delay=delay
        )

    def _error(self, request: ChatRequest, failed: ProviderError) -> ErrorDelta:
        detail = redact(clean(failed.detail), *self._spec.secrets)
        if request.tools and is_tools_refusal(failed.detail):
            detail = f"{detail} {TOOLS_REFUSED}"
        return ErrorDelta(str(failed.code), detail)


class _DeltaCleaner:
    """Cleans the text of one request and separates reasoning from the answer. Tool calls flush what is held back."""

    def __init__(self) -> None:
        self._answer = TextCleaner()
        self._reasoning = TextCleaner()
        self._splitter = ReasoningSplitter()

    def clean(self, delta: Delta) -> list[Delta]:
        match delta:
            case ContentDelta(text):
                return [*self._splitter.feed(self._answer.feed(text))]
            case ReasoningDelta(text):
                reasoning = self._reasoning.feed(text)
                return [ReasoningDelta(reasoning)] if reasoning else []
            case CallsDelta(calls):
                cleaned = tuple(
                    ToolCall(clean(call.id), clean(call.name), clean(call.arguments), call.extra) for call in calls
                )
                return [*self.flush(), CallsDelta(cleaned)]
            case _:
                return [delta]

    def flush(self) -> list[SpokenDelta]:
        reasoning = self._reasoning.flush()
        spoken = [*self._splitter.feed(self._answer.flush()), *self._splitter.flush()]
        return [ReasoningDelta(reasoning), *spoken] if reasoning else spoken


def _usage(request: ChatRequest, received: _ReceivedAnswer) -> Usage:
    """Return the usage that the provider counted, or an estimate; `calls` is 1 in both cases."""
    if received.usage is not None:
        return replace(received.usage, calls=1)
    prompt = message_tokens(request.messages)
    arguments = (call.name + call.arguments for call in received.calls)
    completion = count_tokens("".join((*received.reasoning, *received.text, *arguments)))
    return Usage(prompt, completion, prompt + completion, calls=1)


def _usage_of_failure(request: ChatRequest, received: _ReceivedAnswer) -> Usage:
    """Return the usage of a failed request: no tokens if it failed at once, otherwise those received so far."""
    return _usage(request, received) if received.usage or received.text or received.reasoning else Usage(calls=1)
