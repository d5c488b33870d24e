"""A chat model over a wire: one call, made of as many requests as it takes (tools 10.4, components E12).

A wire sends one request, once. What every wire needs around that is here and nowhere else: cleaning the text, setting
reasoning apart, counting usage, and sending a request again when its failure may pass. This is the only layer that
repeats requests; the SDK underneath is told not to.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Protocol

import structlog

from providers.errors import TOOLS_REFUSED, ProviderError, redact, refuses_tools
from providers.models.text.context_window import count_tokens, message_tokens
from providers.models.text.sanitizer import Cleaner, ReasoningSplitter, SpokenDelta, clean, without_reasoning
from providers.models.types.chat import (
    CallsDelta,
    ChatRequest,
    Completion,
    Delta,
    ErrorDelta,
    ModelSpec,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    Usage,
    UsageDelta,
)

log = structlog.get_logger()

_LONGEST_WAIT = 60.0  # seconds; for waits of our own
_LONGEST_WAIT_ASKED = 120.0  # seconds; who asks for more is not asked again, the failure is reported at once


class ModelTransport(Protocol):
    """A way to a model."""

    def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        """Send one request, once, and give what comes back; usage too, if the provider tells.

        Raises CallFailed for whatever the provider does wrong; never gives an ErrorDelta. Closing the generator closes
        the connection.
        """
        ...


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How waits before another request pass; tests hand in their own."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random  # share of the full wait, 0 to 1
    retries: int = 5  # where a request leaves it open (LLM_MAX_RETRIES)
    base_delay: float = 2.0  # seconds, likewise (LLM_BASE_DELAY)

    def wait_before_next(
        self, failed: ProviderError, repeats: int, *, model: str, retries: int | None = None, delay: float | None = None
    ) -> float | None:
        """Seconds until a request may be sent again that was repeated so often already; None if it may not."""
        if repeats >= (self.retries if retries is None else retries) or not failed.may_be_repeated:
            return None
        first = self.base_delay if delay is None else delay
        wait = min(_LONGEST_WAIT, first * 2.0 ** min(repeats, 32)) * self.jitter()
        if failed.retry_after is not None:
            if failed.retry_after > _LONGEST_WAIT_ASKED:
                return None
            wait = max(wait, failed.retry_after)
        log.warning("model_request_repeated", model=model, code=failed.code, wait_ms=round(wait * 1000))
        return wait


@dataclass(slots=True)
class _Spoken:
    """What one request has said so far."""

    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None

    def take(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text):
                self.text.append(text)
            case ReasoningDelta(text):
                self.reasoning.append(text)
            case CallsDelta(calls):
                self.calls = calls
            case UsageDelta(usage):
                self.usage = usage
            case ErrorDelta():
                raise AssertionError("a wire raises CallFailed instead")


class RetryingModel:
    """The ChatModel of providers/models/types/chat.py over any wire."""

    def __init__(self, spec: ModelSpec, wire: ModelTransport, pace: RetryPolicy | None = None) -> None:
        self._spec = spec
        self._wire = wire
        self._pace = pace or RetryPolicy()

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Deltas as they come. Once any has been given, a failure ends the call: nothing is ever said twice."""
        spent = Usage()
        for repeats in count():
            delivered = False
            try:
                async with aclosing(self._once(request, streamed=True)) as deltas:
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
            await self._pace.sleep(wait)
        yield UsageDelta(spent)

    async def complete(self, request: ChatRequest) -> Completion:
        """The whole answer. Nobody has heard a part of it, so a request that broke off half-way may be repeated too."""
        spent = Usage()
        for repeats in count():
            spoken = _Spoken()
            try:
                async with aclosing(self._once(request, streamed=False)) as deltas:
                    async for delta in deltas:
                        spoken.take(delta)
            except ProviderError as failed:
                spent += spoken.usage or Usage()
                wait = self._wait_before_next(request, repeats, failed)
                if wait is None:
                    error = self._error(request, failed)
                    return Completion(text=str(error), usage=spent, error=error)
                await self._pace.sleep(wait)
            else:
                text = without_reasoning("".join(spoken.text))
                spent += spoken.usage or Usage()
                return Completion(text, "".join(spoken.reasoning), spoken.calls, spent)
        raise AssertionError("unreachable: counting has no end")

    async def _once(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        """One request, its text cleaned, with exactly one UsageDelta at the end, also before a CallFailed.

        A limit on how many requests this process or this provider has under way belongs around `send`.
        """
        heard = _Spoken()
        speech = _Speech()
        try:
            async with aclosing(self._wire.send(request, streamed=streamed)) as deltas:
                async for delta in deltas:
                    for cleaned in speech.cleaned(delta):
                        heard.take(cleaned)
                        if not isinstance(cleaned, UsageDelta):
                            yield cleaned
            for last in speech.rest():
                heard.take(last)
                yield last
        except ProviderError:
            for last in speech.rest():
                heard.take(last)
                yield last
            yield UsageDelta(_usage_of_failure(request, heard))
            raise
        yield UsageDelta(_usage(request, heard))

    def _wait_before_next(self, request: ChatRequest, repeats: int, failed: ProviderError) -> float | None:
        delay = None if request.retries is None else request.retry_delay
        return self._pace.wait_before_next(failed, repeats, model=self._spec.id, retries=request.retries, delay=delay)

    def _error(self, request: ChatRequest, failed: ProviderError) -> ErrorDelta:
        detail = redact(clean(failed.detail), *self._spec.secrets)
        if request.tools and refuses_tools(failed.detail):
            detail = f"{detail} {TOOLS_REFUSED}"
        return ErrorDelta(str(failed.code), detail)


class _Speech:
    """The text of one request on its way through the cleaners. A change between the two kinds of text flushes."""

    def __init__(self) -> None:
        self._answer = Cleaner()
        self._reasoning = Cleaner()
        self._thoughts = ReasoningSplitter()

    def cleaned(self, delta: Delta) -> list[Delta]:
        match delta:
            case TextDelta(text):
                return [*self._thoughts.feed(self._answer.feed(text))]
            case ReasoningDelta(text):
                reasoning = self._reasoning.feed(text)
                return [ReasoningDelta(reasoning)] if reasoning else []
            case CallsDelta(calls):
                cleaned = tuple(
                    ToolCall(clean(call.id), clean(call.name), clean(call.arguments), call.extra) for call in calls
                )
                return [*self.rest(), CallsDelta(cleaned)]
            case _:
                return [delta]

    def rest(self) -> list[SpokenDelta]:
        reasoning = self._reasoning.rest()
        spoken = [*self._thoughts.feed(self._answer.rest()), *self._thoughts.rest()]
        return [ReasoningDelta(reasoning), *spoken] if reasoning else spoken


def _usage(request: ChatRequest, heard: _Spoken) -> Usage:
    """What the provider counted, else an estimate; one call either way."""
    if heard.usage is not None:
        told = heard.usage
        return replace(told, calls=1)
    prompt = message_tokens(request.messages)
    arguments = (call.name + call.arguments for call in heard.calls)
    completion = count_tokens("".join((*heard.reasoning, *heard.text, *arguments)))
    return Usage(prompt, completion, prompt + completion, calls=1)


def _usage_of_failure(request: ChatRequest, heard: _Spoken) -> Usage:
    """A request refused at once costs nothing; one that broke off while speaking is paid for."""
    return _usage(request, heard) if heard.usage or heard.text or heard.reasoning else Usage(calls=1)
