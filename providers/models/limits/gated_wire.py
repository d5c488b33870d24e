"""A gate in front of a wire: no request leaves before the credential's limits allow it, whoever else sends.

    wire = GatedWire(OpenAIWire(...), gate)

Every request passes, repeated ones too, those that are no chat by way of providers/models/billing/metering.py. What a
request came to is told to the gate afterwards, so that a reservation which was too large is given back. How long may be
waited in place is a matter of whoever asks: `PermitRequest.patience`.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from providers.errors import ProviderError
from providers.models.text.context_window import count_tokens, message_tokens
from providers.models.types.chat import ChatRequest, Delta, RateLimitWait, ReasoningDelta, TextDelta, Usage, UsageDelta


class Wire(Protocol):
    """What stands behind a gate (providers/models/chat/retrying_model.py)."""

    def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]: ...


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """A request that wants to leave: what it brings along, and how whoever asks waits.

    `count` gives the tokens of what it sends, and may take a while where there are many `letters`. `answer` is how many
    an answer may have at most: 0 where nobody knows, None where answers have none. `key` is the same for every attempt
    at the same request.
    """

    letters: int
    count: Callable[[], int]
    answer: int | None = 0
    key: str | None = None
    patience: RateLimitWait | None = None


class Permit(Protocol):
    """One request's right to leave."""

    def leave(self, tokens: int | None, failed: ProviderError | None) -> None:
        """The request is over, and this is what it came to; None: nobody has said. Waits for nothing."""
        ...


class RateLimitGate(Protocol):
    """The limits of one credential."""

    async def enter(self, leaving: PermitRequest) -> Permit:
        """Wait until the request may leave."""
        ...

    def hear(self, headers: Mapping[str, str]) -> None:
        """What a vendor says beside an answer."""
        ...


class GatedWire:
    """A wire whose requests pass a gate. `prepare` has at hand what would keep a request that may leave."""

    def __init__(self, wire: Wire, gate: RateLimitGate, prepare: Callable[[], Awaitable[None]] | None = None) -> None:
        self._wire = wire
        self._gate = gate
        self._prepare = prepare

    async def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        """Send one request, once, when it may leave."""
        if self._prepare is not None:
            await self._prepare()
        admitted = await self._gate.enter(_leaving(request))
        usage: Usage | None = None
        failed: ProviderError | None = None
        said: list[str] = []
        is_whole = False
        try:
            async with aclosing(self._wire.send(request, streamed=streamed)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, UsageDelta):
                        usage = delta.usage
                    elif isinstance(delta, TextDelta | ReasoningDelta):
                        said.append(delta.text)
                    yield delta
            is_whole = True
        except ProviderError as problem:
            failed = problem
            raise
        finally:
            admitted.leave(_tokens(request, usage, said) if usage or is_whole else None, failed)


def _leaving(request: ChatRequest) -> PermitRequest:
    asked_for = request.params.get("max_tokens")
    return PermitRequest(
        sum(len(str(message.get("content") or "")) for message in request.messages),
        lambda: prompt_tokens(request),
        asked_for if isinstance(asked_for, int) else 0,
        request.key,
        request.patience,
    )


def _tokens(request: ChatRequest, usage: Usage | None, said: list[str]) -> int:
    """What a request took of an allowance: as counted by the vendor, else as we count."""
    if usage is not None:
        return usage.total_tokens or usage.prompt_tokens + usage.completion_tokens
    return prompt_tokens(request) + count_tokens("".join(said))


def prompt_tokens(request: ChatRequest) -> int:
    """About how many tokens a request brings along."""
    return message_tokens(request.messages) + count_tokens("".join(str(tool) for tool in request.tools))
