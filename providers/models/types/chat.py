"""Chat models: messages in, deltas and usage out.

A ChatModel is what a component gets from `ctx.model(llm_id)`. Its two calls never raise for what a provider does
wrong: a failing call ends in an `ErrorDelta`, whose `str()` is the text form `**ERROR**: <CODE> - <detail>`
(tools.md 10.4). Only configuration mistakes raise (ModelError).
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from providers.models.types.rate_limits import RateLimitKey

_SECRET = re.compile(r"(?i)key|secret|token|password|_sk$|_ak$")  # names of fields of an account


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them (estimated with cl100k where it does not say); `calls` counts requests.

    `cached_tokens` are those of the prompt that the provider had at hand. `costs` is money by currency, in billionths
    (providers/models/billing/prices.py); the calls that nobody can tell the price of are `unpriced_calls`. `characters`
    were read aloud. Of all this `kinds` has what did not come of chat: calls, tokens and characters by kind of model,
    under names like `embedding_tokens`.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    calls: int = 0
    cached_tokens: int = 0
    costs: Mapping[str, int] = field(default_factory=dict[str, int])
    unpriced_calls: int = 0
    characters: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict[str, int])

    def __add__(self, other: "Usage") -> "Usage":
        currencies = {**self.costs, **other.costs}
        kinds = {**self.kinds, **other.kinds}
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.total_tokens + other.total_tokens,
            self.calls + other.calls,
            self.cached_tokens + other.cached_tokens,
            {currency: self.costs.get(currency, 0) + other.costs.get(currency, 0) for currency in currencies},
            self.unpriced_calls + other.unpriced_calls,
            self.characters + other.characters,
            {name: self.kinds.get(name, 0) + other.kinds.get(name, 0) for name in kinds},
        )


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asks for. `arguments` is the text as sent, JSON or not.

    `extra` is what the vendor wants to see again with the call and nobody else understands: signed thoughts, mostly. It
    goes back with the call, as its `extra_content`.
    """

    id: str
    name: str
    arguments: str
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Visible answer text; strictly appended (components E22). Clean: no NUL, lone surrogate or think marker."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Reasoning text (`reasoning_content` or `reasoning` on the wire)."""

    text: str


@dataclass(frozen=True, slots=True)
class CallsDelta:
    """All tool calls of a finished round, in order."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """Usage of the call; once, at the end."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class ErrorDelta:
    """The call failed for good; always the last delta but for usage. What was said before stays said."""

    code: str  # of tools.md 10.4: RATE_LIMIT_EXCEEDED, AUTH_ERROR, INVALID_REQUEST, SERVER_ERROR, TIMEOUT, ...
    detail: str

    def __str__(self) -> str:
        return f"**ERROR**: {self.code} - {self.detail}"


Delta: TypeAlias = TextDelta | ReasoningDelta | CallsDelta | UsageDelta | ErrorDelta


class RateLimitWait(Protocol):
    """How the requests of one attempt wait for their turn (providers/models/limits/gated_wire.py)."""

    def sends(self) -> None:
        """A request leaves: from here on something would be lost if the attempt began anew."""
        ...

    async def wait(self, seconds: float, title: str) -> None:
        """Wait so long, or for a part of it, for what `title` names; or be cancelled, to come back when it is time."""
        ...

    @property
    def comes_back(self) -> bool:
        """Whether the attempt that waits here was cancelled to come back later."""
        ...


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One call. `messages` are OpenAI-shaped: {role, content} with content text or parts, tool messages included.

    `params` are generation parameters under their upstream names (temperature, top_p, max_tokens,
    presence_penalty, frequency_penalty, thinking); the provider renames or drops them by family (tools.md 10.2).
    `retries` is the number of extra requests after the first that the provider layer may make for errors that
    repeating may mend; waits start at `retry_delay` seconds, double, and end at 60.
    """

    messages: Sequence[Mapping[str, Any]]
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    images: Sequence[str] = ()  # data URLs; they join the last user message
    tools: Sequence[Mapping[str, Any]] = ()  # OpenAI function schemas
    chat_template_kwargs: Mapping[str, Any] | None = None
    retries: int | None = 0  # None: as often as the provider layer does by default (LLM_MAX_RETRIES)
    retry_delay: float = 2.0
    key: str | None = (
        None  # the same for every attempt at the same request (providers/models/limits/idempotency_keys.py)
    )
    patience: "RateLimitWait | None" = None  # how whoever asks waits until the request may leave; None: where it is


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A resolved model (tools.md 10.1): where to send, what it can, how much fits. The key never leaves providers."""

    id: str  # as asked for, e.g. "gpt-5@OpenAI"
    name: str
    factory: str
    base_url: str | None
    api_key: str = field(repr=False, default="")
    kinds: frozenset[str] = frozenset({"chat"})
    context_tokens: int = 8192
    is_tools: bool = False
    paced: RateLimitKey | None = None  # what may be sent, where there is a limit
    stand_in: bool = False  # `scripted` and `echo`: shown wherever the model shows
    extra: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])  # api_version, provider_order, ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen of it."""
        beside = (value for name, value in self.extra.items() if _SECRET.search(name) and isinstance(value, str))
        return (self.api_key, *beside)


class ChatModel(Protocol):
    """A model bound to its credentials."""

    @property
    def spec(self) -> ModelSpec: ...

    def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Deltas as they come, one UsageDelta at the end. Cancelling the reader closes the provider's connection."""
        ...

    async def complete(self, request: ChatRequest) -> "Completion":
        """The whole answer without streaming."""
        ...


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer. `text` has no reasoning; on failure it is the `**ERROR**` text and `error` is set."""

    text: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    error: ErrorDelta | None = None
