"""Adds an `Idempotency-Key` to the requests of an activation, so that servers recognise repeated requests.

    http = IdempotentHttp(http, IdempotencyKeys(activation_id))

The key follows from the activation, the content of the request, and how often the same request was answered before.
So all attempts of the activation, and all tries without a successful answer, use the same key; every other request has
another key. Requests that only read (GET, HEAD, OPTIONS) have no key, and a key that the caller has set is kept.

The rate limiter uses the same key as a ticket: a request keeps its place in the queue in the next attempt.
"""

import json
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Protocol, cast

from providers.errors import ErrorCode, ProviderError, retry_after
from providers.http.redirects import parse_url
from providers.interfaces import Http, HttpCall, HttpResponse
from providers.models.limits.pausable_timeout import pause_timeouts
from providers.models.limits.rate_limited_wire import Permit
from providers.models.types.chat import ChatModel, ChatRequest, Completion, Delta, ErrorDelta, ModelSpec, RateLimitWait
from providers.rate_limits import RateLimitKey

HEADER = "Idempotency-Key"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
RATE_LIMIT_STATUSES = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Statuses by which vendors refuse a request that exceeds their rate limit; 503 only with a `Retry-After`."""


class VendorLimits(Protocol):
    """The rate limits of vendors, for the requests of one activation."""

    async def acquire(self, limit: RateLimitKey, ticket: str) -> Permit:
        """Wait until a request may be sent; the wait may cancel the attempt, which later asks with the same ticket."""
        ...


@dataclass(slots=True)
class KeyedRequest:
    """A request with its key. After `is_answered` is set, the next equal request gets another key."""

    key: str
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class IdempotencyKeys:
    """Generates the keys for the requests of an activation, or of a part of it. For one event loop."""

    namespace: str
    _used: dict[str, set[int]] = field(default_factory=dict[str, set[int]])  # digest -> numbers in use

    @contextmanager
    def key_for(self, *content: Any) -> Generator[KeyedRequest]:
        """Return the key for a request with this content; JSON values count by value, everything else by its repr."""
        digest = sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()
        used = self._used.setdefault(digest, set())
        number = next(number for number in range(len(used) + 1) if number not in used)
        used.add(number)
        keyed = KeyedRequest(sha256(f"{self.namespace}\n{digest}\n{number}".encode()).hexdigest())
        try:
            yield keyed
        finally:
            if not keyed.is_answered:
                used.discard(number)

    def within(self, place: str) -> "IdempotencyKeys":
        """Return the keys of a part of the activation; they differ from those of equal requests elsewhere."""
        return IdempotencyKeys(f"{self.namespace}/{place}")


class IdempotentHttp:
    """The HTTP client of one activation: adds idempotency keys and waits for the rate limits of vendors."""

    def __init__(self, http: Http, keys: IdempotencyKeys, vendor_limits: VendorLimits | None = None) -> None:
        self._http = http
        self._keys = keys
        self._vendor_limits = vendor_limits

    async def send(self, call: HttpCall) -> HttpResponse:
        """Send a request and return the response.

        Raises AddressRefused, and HttpFailed if no complete response came; its `retryable` says whether to try again.
        """
        if call.rate_limit is None or self._vendor_limits is None:
            return await self._send(call)
        url = parse_url(call.url)
        with self._keys.key_for("turn", *_call_content(call)) as keyed:
            with pause_timeouts():
                permit = await self._vendor_limits.acquire(
                    call.rate_limit.for_host(url.netloc.decode("ascii")), keyed.key
                )
            reply = await self._send(call)
            keyed.is_answered = reply.is_success
            refusal = _rate_limit_error(reply)
            if refusal is not None:
                permit.release(None, refusal)
            return reply

    async def _send(self, call: HttpCall) -> HttpResponse:
        if call.method.upper() in SAFE_METHODS or any(name.strip().lower() == HEADER.lower() for name in call.headers):
            return await self._http.send(call)
        with self._keys.key_for(*_call_content(call)) as keyed:
            reply = await self._http.send(replace(call, headers={**call.headers, HEADER: keyed.key}))
            keyed.is_answered = reply.is_success
            return reply

    def within(self, place: str) -> "IdempotentHttp":
        """Return the HTTP client of a part of the activation."""
        return IdempotentHttp(self._http, self._keys.within(place), self._vendor_limits)


class IdempotentModel:
    """A chat model for the requests of one activation: adds idempotency keys, and how to wait for rate limits."""

    def __init__(self, model: ChatModel, keys: IdempotencyKeys, rate_limit_wait: RateLimitWait | None = None) -> None:
        self._model = model
        self._keys = keys
        self._rate_limit_wait = rate_limit_wait

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Yield deltas as they arrive, one UsageDelta at the end. Closing the generator closes the connection."""
        with self._keys.key_for(*_request_content(request)) as keyed:
            has_failed = False
            deltas = cast("AsyncGenerator[Delta, None]", self._model.stream(self._add_key(request, keyed)))
            async with aclosing(deltas):
                async for delta in deltas:
                    has_failed = has_failed or isinstance(delta, ErrorDelta)
                    self._mark_answered()
                    yield delta
            keyed.is_answered = not has_failed

    async def complete(self, request: ChatRequest) -> Completion:
        """Return the whole answer without streaming."""
        with self._keys.key_for(*_request_content(request)) as keyed:
            answer = await self._model.complete(self._add_key(request, keyed))
            self._mark_answered()
            keyed.is_answered = answer.error is None
            return answer

    def _mark_answered(self) -> None:
        """Note that restarting the attempt would lose an answer, also if there are no rate limits."""
        if self._rate_limit_wait is not None:
            self._rate_limit_wait.mark_sent()

    def _add_key(self, request: ChatRequest, keyed: KeyedRequest) -> ChatRequest:
        return replace(request, key=keyed.key, rate_limit_wait=self._rate_limit_wait)


def within(http: Http, place: str) -> Http:
    """Return the client of a part of an activation if its requests have keys, and the client itself otherwise."""
    return http.within(place) if isinstance(http, IdempotentHttp) else http


def _call_content(call: HttpCall) -> tuple[Any, ...]:
    return call.method, call.url, call.params, call.json, call.form, call.content


def _rate_limit_error(reply: HttpResponse) -> ProviderError | None:
    """Return the error of a response that refuses a request because of a rate limit; None for other responses."""
    seconds = retry_after(reply.headers, datetime.now(UTC))
    if reply.status not in RATE_LIMIT_STATUSES or (reply.status == HTTPStatus.SERVICE_UNAVAILABLE and seconds is None):
        return None
    return ProviderError(ErrorCode.RATE_LIMIT_EXCEEDED, f"HTTP {reply.status}", seconds)


def _digest(texts: Sequence[str]) -> str:
    """Return a digest of texts that may be large."""
    digest = sha256()
    for text in texts:
        digest.update(sha256(text.encode()).digest())
    return digest.hexdigest()


def _request_content(request: ChatRequest) -> tuple[Any, ...]:
    return ("chat", request.messages, request.params, _digest(request.images), request.tools)
