"""The types of chat models: requests with messages, deltas and usage as answers.

A component gets a ChatModel from `ctx.model(llm_id)`. Its two methods do not raise for failures of a provider: a
failed call ends in an `ErrorDelta`, whose `str()` is the text form `**ERROR**: <CODE> - <detail>`. Only configuration
mistakes raise (ModelError).
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from providers.rate_limits import RateLimitKey

_SECRET = re.compile(r"(?i)key|secret|token|password|_sk$|_ak$")  # names of fields of an account


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as counted by the provider, or estimated if it does not report them; `calls` counts requests.

    `cached_tokens` are prompt tokens from the provider's cache. `costs` are amounts by currency, in billionths
    (providers/models/billing/prices.py); `unpriced_calls` are calls without a known price. `characters` were spoken.
    `kinds` has the part of models other than chat: calls, tokens and characters by kind of model, under names like
    `embedding_tokens`.
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
    """A tool call of the model. `arguments` is the text as the model wrote it, which may not be valid JSON.

    `extra` is opaque data that the vendor requires back with the call, such as signed thoughts. It is returned as
    `extra_content` of the call.
    """

    id: str
    name: str
    arguments: str
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """Visible text of an answer, to be appended. It contains no NUL, lone surrogates or `<think>` tags."""

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
    """The call failed finally; the last delta except for usage. Text that was sent before remains valid."""

    code: str  # a `ErrorCode` of providers/errors.py: RATE_LIMIT_EXCEEDED, AUTH_ERROR, INVALID_REQUEST, ...
    detail: str

    def __str__(self) -> str:
        return f"**ERROR**: {self.code} - {self.detail}"


Delta: TypeAlias = ContentDelta | ReasoningDelta | CallsDelta | UsageDelta | ErrorDelta


class RateLimitWait(Protocol):
    """How the requests of one attempt wait for rate limits (providers/models/limits/rate_limited_wire.py)."""

    def mark_sent(self) -> None:
        """Note that a request is being sent: from now on, restarting the attempt would lose its answer."""
        ...

    async def wait(self, seconds: float, title: str) -> None:
        """Wait for `seconds`, or for a part of them, for the limits that `title` names; or postpone the attempt.

        An attempt is postponed by cancelling it.
        """
        ...

    @property
    def is_postponed(self) -> bool:
        """Return whether the waiting attempt was cancelled in order to continue later."""
        ...


@dataclass(slots=True, eq=False)
class CallProgress:
    """What a call has taken so far: requests that were sent, and seconds of waiting for rate limits."""

    tries: int = 0
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One call. `messages` have OpenAI's form: {role, content} with a text or parts as content, tool messages included.

    `params` are generation parameters with RAGFlow's names (temperature, top_p, max_tokens, presence_penalty,
    frequency_penalty, thinking); providers/models/vendors/families.py renames or drops them for each model family.
    `retries` is the number of repeats of a request that failed temporarily; waits start at `retry_delay` seconds and
    double, up to 60.
    """

    messages: Sequence[Mapping[str, Any]]
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    images: Sequence[str] = ()  # data URLs; they are added to the last user message
    tools: Sequence[Mapping[str, Any]] = ()  # OpenAI function schemas
    chat_template_kwargs: Mapping[str, Any] | None = None
    retries: int | None = 0  # None: the default (LLM_MAX_RETRIES)
    retry_delay: float = 2.0
    key: str | None = None  # idempotency key (providers/models/limits/idempotency_keys.py)
    rate_limit_wait: "RateLimitWait | None" = None  # how the caller waits for rate limits; None: it blocks
    progress: CallProgress | None = field(default=None, compare=False)  # where tries and waits of the call are counted


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A resolved model: its server, abilities and context size. Only `providers` uses the key."""

    id: str  # as the canvas names it, e.g. "gpt-5@OpenAI"
    name: str
    factory: str
    base_url: str | None
    api_key: str = field(repr=False, default="")
    kinds: frozenset[str] = frozenset({"chat"})
    context_tokens: int = 8192
    is_tools: bool = False
    rate_limit: RateLimitKey | None = None  # the rate limits, if there are any
    is_builtin: bool = False  # True for the built-in models `scripted` and `echo`
    account: str = ""  # the account's name for people: "OpenAI (default)"
    extra: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])  # api_version, provider_order, ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values that must be masked in every text."""
        others = (value for name, value in self.extra.items() if _SECRET.search(name) and isinstance(value, str))
        return (self.api_key, *others)


class Wire(Protocol):
    """Sends requests to a model in the protocol of its vendor (providers/models/wires/)."""

    def send(self, request: ChatRequest, *, streamed: bool) -> AsyncGenerator[Delta, None]:
        """Send one request, once, and yield the answer, and the usage if the provider reports it.

        Raises ProviderError for every failure of the provider, and never yields an ErrorDelta. Closing the generator
        closes the connection.
        """
        ...


class ChatModel(Protocol):
    """A chat model with the credentials to use it."""

    @property
    def spec(self) -> ModelSpec: ...

    def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Yield deltas as they arrive, one UsageDelta at the end. Cancelling the reader closes the connection."""
        ...

    async def complete(self, request: ChatRequest) -> "Completion":
        """Return the whole answer without streaming."""
        ...


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer. `text` contains no reasoning; after a failure it is the `**ERROR**` text and `error` is set."""

    text: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    error: ErrorDelta | None = None
