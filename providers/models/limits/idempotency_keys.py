"""How whoever is reached tells a repeated request from a new one: `Idempotency-Key`, as HTTP services know it.

    http = KeyedHttp(http, Repeats(activation_id))

The key of a request follows from the activation, from what is sent, and from how often the same was sent before. So it
is the same in every attempt of the activation and in every try that brought no good answer, and another one for every
other request. What only asks (GET, HEAD, OPTIONS) has none, and a key that was given stays as it is.

By such a key a request is also known where it waits for its vendor's pace: in another attempt it keeps its place.
"""

import json
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Protocol, cast

from providers.errors import Code, ProviderError, retry_after
from providers.http.redirects import url_of
from providers.interfaces import Call, Http, Reply
from providers.models.limits.gated_wire import Permit
from providers.models.limits.pausable_timeout import pause_timeouts
from providers.models.types.chat import ChatModel, ChatRequest, Completion, Delta, ErrorDelta, ModelSpec, RateLimitWait
from providers.models.types.rate_limits import RateLimitKey

HEADER = "Idempotency-Key"
ONLY_ASKING = frozenset({"GET", "HEAD", "OPTIONS"})
TOO_FAST = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""How vendors with a pace answer those who do not keep it; the second if it says when to come again."""


class VendorLimits(Protocol):
    """Where the requests of one activation wait for the paces of their vendors."""

    async def take(self, paced: RateLimitKey, ticket: str) -> Permit:
        """Wait until a request may leave, or be cancelled, to come back with the same ticket when it is time."""
        ...


@dataclass(slots=True)
class KeyedRequest:
    """One request under its key. Once it `is_answered`, the next one like it is another request."""

    key: str
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class IdempotencyKeys:
    """The keys of one activation's requests, or of a part of it. For one event loop."""

    space: str
    _taken: dict[str, set[int]] = field(default_factory=dict[str, set[int]])  # digest -> numbers that are used up

    @contextmanager
    def of(self, *said: Any) -> Generator[KeyedRequest]:
        """The key of a request that says this; what is JSON counts by its content, everything else by its repr."""
        digest = sha256(json.dumps(said, sort_keys=True, default=repr).encode()).hexdigest()
        taken = self._taken.setdefault(digest, set())
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        taken.add(number)
        sending = KeyedRequest(sha256(f"{self.space}\n{digest}\n{number}".encode()).hexdigest())
        try:
            yield sending
        finally:
            if not sending.is_answered:
                taken.discard(number)

    def within(self, place: str) -> "IdempotencyKeys":
        """The keys of a part of the activation: what is sent there is no repetition of anything outside of it."""
        return IdempotencyKeys(f"{self.space}/{place}")


class IdempotentHttp:
    """The way out of one activation."""

    def __init__(self, http: Http, repeats: IdempotencyKeys, turns: VendorLimits | None = None) -> None:
        self._http = http
        self._repeats = repeats
        self._turns = turns

    async def send(self, call: Call) -> Reply:
        """Raises AddressRefused, or HttpFailed when no whole answer came (`retryable` says whether more may help)."""
        if call.pace is None or self._turns is None:
            return await self._send(call)
        url = url_of(call.url)
        with self._repeats.of("turn", *_said(call)) as sending:
            with pause_timeouts():
                turn = await self._turns.take(call.pace.at(url.netloc.decode("ascii")), sending.key)
            reply = await self._send(call)
            sending.is_answered = reply.is_success
            refused = _refused(reply)
            if refused is not None:
                turn.leave(None, refused)
            return reply

    async def _send(self, call: Call) -> Reply:
        if call.method.upper() in ONLY_ASKING or any(name.strip().lower() == HEADER.lower() for name in call.headers):
            return await self._http.send(call)
        with self._repeats.of(*_said(call)) as sending:
            reply = await self._http.send(replace(call, headers={**call.headers, HEADER: sending.key}))
            sending.is_answered = reply.is_success
            return reply

    def within(self, place: str) -> "IdempotentHttp":
        """The way out of a part of the activation."""
        return IdempotentHttp(self._http, self._repeats.within(place), self._turns)


class IdempotentModel:
    """A model as one activation asks it."""

    def __init__(self, model: ChatModel, repeats: IdempotencyKeys, patience: RateLimitWait | None = None) -> None:
        self._model = model
        self._repeats = repeats
        self._patience = patience

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Deltas as they come, one UsageDelta at the end. Closing this closes the provider's connection."""
        with self._repeats.of(*_asked(request)) as sending:
            has_failed = False
            deltas = cast("AsyncGenerator[Delta, None]", self._model.stream(self._signed(request, sending)))
            async with aclosing(deltas):
                async for delta in deltas:
                    has_failed = has_failed or isinstance(delta, ErrorDelta)
                    self._has_heard()
                    yield delta
            sending.is_answered = not has_failed

    async def complete(self, request: ChatRequest) -> Completion:
        """The whole answer without streaming."""
        with self._repeats.of(*_asked(request)) as sending:
            answer = await self._model.complete(self._signed(request, sending))
            self._has_heard()
            sending.is_answered = answer.error is None
            return answer

    def _has_heard(self) -> None:
        """What was answered is lost if the attempt begins anew, also where no limit holds requests back."""
        if self._patience is not None:
            self._patience.sends()

    def _signed(self, request: ChatRequest, sending: KeyedRequest) -> ChatRequest:
        return replace(request, key=sending.key, patience=self._patience)


def within(http: Http, place: str) -> Http:
    """The way out of a part of an activation, where requests have keys."""
    return http.within(place) if isinstance(http, IdempotentHttp) else http


def _said(call: Call) -> tuple[Any, ...]:
    return call.method, call.url, call.params, call.json, call.form, call.content


def _refused(reply: Reply) -> ProviderError | None:
    """What says that all must hold back; None for every other answer."""
    seconds = retry_after(reply.headers, datetime.now(UTC))
    if reply.status not in TOO_FAST or (reply.status == HTTPStatus.SERVICE_UNAVAILABLE and seconds is None):
        return None
    return ProviderError(Code.RATE_LIMIT_EXCEEDED, f"HTTP {reply.status}", seconds)


def _digest(texts: Sequence[str]) -> str:
    """What stands for texts that may be large."""
    said = sha256()
    for text in texts:
        said.update(sha256(text.encode()).digest())
    return said.hexdigest()


def _asked(request: ChatRequest) -> tuple[Any, ...]:
    return ("chat", request.messages, request.params, _digest(request.images), request.tools)
