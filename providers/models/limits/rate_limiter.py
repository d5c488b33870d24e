"""The rate limiter that all workers share: when a request with a credential may be sent.

The same limiter applies the rate limits of tools' vendors, for each host and all tenants together. See
docs/decisions/0027-shared-rate-limits.md.

Sent and waiting requests are stored in Redis, where every process sees them; a script decides in one round trip
(`providers/models/limits/rate_limiter.lua`). Nothing stored there is a durable fact: an emptied Redis starts again
without a burst, and while Redis does not answer each process limits its own requests. A slot of a worker that died ends
with its lease.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast
from uuid import uuid4

import redis
import redis.asyncio
import structlog

from providers.errors import ErrorCode, ProviderError
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.limits.gated_wire import PermitRequest
from providers.models.types.chat import RateLimitWait
from providers.models.types.rate_limits import MINUTE, RateLimitKey, reset_delay

log = structlog.get_logger()

WINDOW = MINUTE
LEASE = 30.0  # seconds that a slot stays reserved without a renewal
RENEW_INTERVAL = 10.0  # seconds
CLOSE_TIMEOUT = 1.0  # seconds for pending script calls when the process shuts down
NO_COMPLETION = -1  # number of answer tokens, for the script, of a request without an answer in tokens
MAX_PAUSE = 30.0  # seconds that a vendor can pause all requests, if two of its windows are shorter
COUNTED_INLINE = 50_000  # characters, whose tokens take some ten milliseconds to count
MAX_LOCAL_LIMITS = 1000  # limits that a process tracks without Redis; beyond that, expired ones are dropped

_SCRIPT = Path(__file__).with_name("rate_limiter.lua")
_KEYS = ("state", "queue", "due", "log", "cost", "slots", "tags")


class RedisBreaker(Protocol):
    """The circuit breaker of a Redis server (implemented in scheduler/messaging/circuit_breaker.py)."""

    def holds(self) -> bool: ...

    def begins(self) -> None: ...

    def ends(self) -> None: ...


class RateLimiterMetrics(Protocol):
    """The metrics of rate-limited requests (implemented in scheduler/metrics.py)."""

    @property
    def waited(self) -> Callable[[], None]: ...

    @property
    def refused(self) -> Callable[[], None]: ...


class RateLimiter:
    """The rate limiter of a process, with the Redis client of its event loop. Connects on the first limited request."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        breaker: RedisBreaker,
        metrics: RateLimiterMetrics,
        *,
        window: float = WINDOW,
        clock: Callable[[], float] | None = None,  # for tests, in seconds; None: the server's own
    ) -> None:
        self.window = window
        self._clock = clock
        self._redis = client
        self._script: Any = self._redis.register_script(_SCRIPT.read_text(encoding="utf-8"))
        self._silence = breaker
        self._telling: set[asyncio.Task[Any]] = set()
        self._alone_at: dict[str, float] = {}  # by key: time of the next request while Redis does not answer
        self.counters = metrics

    def gate(self, limit: RateLimitKey, tenant: str) -> "AccountLimiter":
        """Return the limiter of a credential for the requests of a tenant."""
        return AccountLimiter(self, limit, tenant)

    async def call(self, limit: RateLimitKey, verb: str, *arguments: Any) -> float | None:
        """Run the script and return its result; None if Redis does not answer."""
        if self._silence.holds():
            return None
        keys = [f"easel:pace:{{{limit.key}}}:{name}" for name in _KEYS]
        now = self._clock() * 1000 if self._clock is not None else 0
        try:
            result = cast(int, await self._script(keys, [verb, now, self.span(limit) * 1000, *arguments]))
        except redis.RedisError as error:
            self._silence.begins()
            log.warning("rate_limiter_unavailable", account=limit.title, error=str(error))
            return None
        self._silence.ends()
        return float(result)

    def span(self, limit: RateLimitKey) -> float:
        """Return the seconds in which these limits may be used up."""
        return self.window * limit.minute / MINUTE

    def alone(self, limit: RateLimitKey) -> float:
        """Return the seconds to wait while Redis does not answer; each process then limits only its own requests."""
        now, requests = time.monotonic(), limit.rates.requests_per_minute
        wait = self._alone_at.get(limit.key, now) - now
        if requests and wait <= 0:
            if len(self._alone_at) >= MAX_LOCAL_LIMITS:
                self._alone_at = {key: at for key, at in self._alone_at.items() if at > now}
            self._alone_at[limit.key] = now + self.span(limit) / requests
        return max(0.0, wait)

    def tell(self, call: Awaitable[Any]) -> "asyncio.Task[Any]":
        """Run a call in the background; `close` waits for it."""
        task = asyncio.ensure_future(call)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        return task

    async def close(self) -> None:
        """Wait for background calls, at most CLOSE_TIMEOUT, and close the connections."""
        running = [task for task in self._telling if not task.done()]
        if running:
            _, late = await asyncio.wait(running, timeout=CLOSE_TIMEOUT)
            for task in late:  # slots that these do not release end with their leases
                task.cancel()
        await self._redis.aclose()


@dataclass
class AccountLimiter:
    """The limiter of one credential, for the requests of one tenant."""

    governor: RateLimiter
    paced: RateLimitKey
    tenant: str
    _pause: float = 0.0  # seconds that the vendor asks all callers to wait, not yet reported to the script

    async def enter(self, request: PermitRequest) -> "AccountPermit":
        """Wait until the request may be sent; `request.patience` waits or cancels the attempt."""
        prompt = await _count_prompt(request) if self.paced.rates.tokens_per_minute else 0
        most = NO_COMPLETION if request.answer is None else request.answer
        return await self.admit(request.key or uuid4().hex, request.patience, prompt, most)

    async def admit(
        self, ticket: str, rate_limit_wait: RateLimitWait | None, prompt: int = 0, most: int = 0
    ) -> "AccountPermit":
        """Do the same for any request; another attempt with the same ticket keeps its place in the queue."""
        permit_id = uuid4().hex
        arguments = [*self._limits, ticket, permit_id, self.tenant, prompt, most, LEASE * 1000]
        has_waited = False
        try:
            while True:
                delay_ms = await self.governor.call(self.paced, "ask", *arguments)
                wait = self.governor.alone(self.paced) if delay_ms is None else delay_ms / 1000
                if wait <= 0:
                    break
                if not has_waited:
                    has_waited = True
                    self.governor.counters.waited()
                if rate_limit_wait is not None:
                    await rate_limit_wait.wait(wait, self.paced.title)
                else:
                    await asyncio.sleep(min(wait, 1.0))
        except asyncio.CancelledError:
            if rate_limit_wait is None or not rate_limit_wait.comes_back:
                self.governor.tell(self.governor.call(self.paced, "forget", ticket, permit_id))
            raise
        if rate_limit_wait is not None:
            rate_limit_wait.sends()
        return AccountPermit(self, permit_id, NO_COMPLETION if most == NO_COMPLETION else prompt)

    def hear(self, headers: Mapping[str, str]) -> None:
        """Remember that the vendor reports an exhausted limit; the script learns it when the next request ends."""
        self._pause = max(self._pause, reset_delay(headers) or 0.0)

    def pause(self) -> float:
        """Return the remembered seconds and reset them."""
        seconds, self._pause = self._pause, 0.0
        return seconds

    @property
    def _limits(self) -> tuple[int, int, int]:
        rates = self.paced.rates
        return rates.requests_per_minute or 0, rates.tokens_per_minute or 0, rates.concurrency or 0


@dataclass
class AccountPermit:
    """The permit of one request that was sent."""

    gate: AccountLimiter
    id: str
    prompt: int
    began: float = field(default_factory=time.monotonic)
    _renewing: "asyncio.Task[Any] | None" = None

    def __post_init__(self) -> None:
        if self.gate.paced.rates.concurrency:
            self._renewing = self.gate.governor.tell(self._renew())

    def leave(self, tokens: int | None, failed: ProviderError | None) -> None:
        """Report the end of the request to the script, in the background."""
        if self._renewing is not None:
            self._renewing.cancel()
        is_refused = failed is not None and failed.code is ErrorCode.RATE_LIMIT_EXCEEDED
        governor, pause = self.gate.governor, self.gate.pause()
        if is_refused and failed is not None:
            governor.counters.refused()
            tokens, pause = 0, failed.retry_after or 0.0
            log.warning("request_refused", account=self.gate.paced.title, retry_after=failed.retry_after)
        total = -1 if tokens is None else tokens
        took = (time.monotonic() - self.began) * 1000
        limit = self.gate.paced.rates.tokens_per_minute or 0
        longest = MAX_PAUSE * governor.window / MINUTE
        arguments = [self.id, limit, total, self.prompt, took, int(is_refused), pause * 1000, longest * 1000]
        governor.tell(governor.call(self.gate.paced, "settle", *arguments))

    async def _renew(self) -> None:
        """Renew the lease of the slot until the request ends."""
        while True:
            await asyncio.sleep(RENEW_INTERVAL)
            await self.gate.governor.call(self.gate.paced, "renew", self.id, LEASE * 1000)


@dataclass(frozen=True, slots=True)
class VendorLimiter:
    """The rate limits of tools' vendors, for the requests of one attempt; implements `VendorLimits`."""

    governor: RateLimiter
    tenant: str
    patience: RateLimitWait

    async def take(self, paced: RateLimitKey, ticket: str) -> AccountPermit:
        """Wait until a request may be sent; `patience` waits or cancels the attempt."""
        return await self.governor.gate(paced, self.tenant).admit(ticket, self.patience)


async def _count_prompt(request: PermitRequest) -> int:
    """Count the tokens of a prompt; a long prompt is counted in a thread."""
    return request.count() if request.letters <= COUNTED_INLINE else await in_untrusted_thread(request.count)
