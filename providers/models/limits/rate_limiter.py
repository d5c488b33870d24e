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
from providers.models.limits.rate_limited_wire import PermitRequest
from providers.models.types.chat import RateLimitWait
from providers.rate_limits import MINUTE, RateLimitKey, reset_delay

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

    def is_open(self) -> bool: ...

    def record_failure(self) -> None: ...

    def record_success(self) -> None: ...


class RateLimiterMetrics(Protocol):
    """The metrics of rate-limited requests (implemented in scheduler/metrics.py)."""

    @property
    def count_rate_limit_wait(self) -> Callable[[], None]: ...

    @property
    def count_rate_limit_refusal(self) -> Callable[[], None]: ...


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
        self._breaker = breaker
        self._background: set[asyncio.Task[Any]] = set()
        self._local_next: dict[str, float] = {}  # by key: time of the next request while Redis does not answer
        self.metrics = metrics

    def account_limiter(self, limit: RateLimitKey, tenant: str) -> "AccountLimiter":
        """Return the limiter of a credential for the requests of a tenant."""
        return AccountLimiter(self, limit, tenant)

    async def run_script(self, limit: RateLimitKey, verb: str, *arguments: Any) -> float | None:
        """Run the script and return its result; None if Redis does not answer."""
        if self._breaker.is_open():
            return None
        keys = [f"easel:pace:{{{limit.key}}}:{name}" for name in _KEYS]
        now = self._clock() * 1000 if self._clock is not None else 0
        try:
            result = cast(int, await self._script(keys, [verb, now, self.window_of(limit) * 1000, *arguments]))
        except redis.RedisError as error:
            self._breaker.record_failure()
            log.warning("rate_limiter_unavailable", account=limit.title, error=str(error))
            return None
        self._breaker.record_success()
        return float(result)

    def window_of(self, limit: RateLimitKey) -> float:
        """Return the seconds in which these limits may be used up."""
        return self.window * limit.window / MINUTE

    def local_delay(self, limit: RateLimitKey) -> float:
        """Return the seconds to wait while Redis does not answer; each process then limits only its own requests."""
        now, requests = time.monotonic(), limit.limits.requests_per_minute
        wait = self._local_next.get(limit.key, now) - now
        if requests and wait <= 0:
            if len(self._local_next) >= MAX_LOCAL_LIMITS:
                self._local_next = {key: at for key, at in self._local_next.items() if at > now}
            self._local_next[limit.key] = now + self.window_of(limit) / requests
        return max(0.0, wait)

    def run_in_background(self, call: Awaitable[Any]) -> "asyncio.Task[Any]":
        """Run a call in the background; `close` waits for it."""
        task = asyncio.ensure_future(call)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def close(self) -> None:
        """Wait for background calls, at most CLOSE_TIMEOUT, and close the connections."""
        running = [task for task in self._background if not task.done()]
        if running:
            _, late = await asyncio.wait(running, timeout=CLOSE_TIMEOUT)
            for task in late:  # slots that these do not release end with their leases
                task.cancel()
        await self._redis.aclose()


@dataclass
class AccountLimiter:
    """The limiter of one credential, for the requests of one tenant."""

    limiter: RateLimiter
    limit: RateLimitKey
    tenant: str
    _pause: float = 0.0  # seconds that the vendor asks all callers to wait, not yet reported to the script

    async def acquire(self, request: PermitRequest) -> "AccountPermit":
        """Wait until the request may be sent; `request.rate_limit_wait` waits or cancels the attempt."""
        prompt = await _count_prompt(request) if self.limit.limits.tokens_per_minute else 0
        most = NO_COMPLETION if request.max_answer_tokens is None else request.max_answer_tokens
        return await self.acquire_ticket(request.key or uuid4().hex, request.rate_limit_wait, prompt, most)

    async def acquire_ticket(
        self, ticket: str, rate_limit_wait: RateLimitWait | None, prompt: int = 0, most: int = 0
    ) -> "AccountPermit":
        """Do the same for any request; another attempt with the same ticket keeps its place in the queue."""
        permit_id = uuid4().hex
        arguments = [*self._limits, ticket, permit_id, self.tenant, prompt, most, LEASE * 1000]
        has_waited = False
        try:
            while True:
                delay_ms = await self.limiter.run_script(self.limit, "ask", *arguments)
                wait = self.limiter.local_delay(self.limit) if delay_ms is None else delay_ms / 1000
                if wait <= 0:
                    break
                if not has_waited:
                    has_waited = True
                    self.limiter.metrics.count_rate_limit_wait()
                if rate_limit_wait is not None:
                    await rate_limit_wait.wait(wait, self.limit.title)
                else:
                    await asyncio.sleep(min(wait, 1.0))
        except asyncio.CancelledError:
            if rate_limit_wait is None or not rate_limit_wait.is_postponed:
                self.limiter.run_in_background(self.limiter.run_script(self.limit, "forget", ticket, permit_id))
            raise
        if rate_limit_wait is not None:
            rate_limit_wait.mark_sent()
        return AccountPermit(self, permit_id, NO_COMPLETION if most == NO_COMPLETION else prompt)

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        """Remember that the vendor reports an exhausted limit; the script learns it when the next request ends."""
        self._pause = max(self._pause, reset_delay(headers) or 0.0)

    def take_pause(self) -> float:
        """Return the remembered seconds and reset them."""
        seconds, self._pause = self._pause, 0.0
        return seconds

    @property
    def _limits(self) -> tuple[int, int, int]:
        rates = self.limit.limits
        return rates.requests_per_minute or 0, rates.tokens_per_minute or 0, rates.concurrency or 0


@dataclass
class AccountPermit:
    """The permit of one request that was sent."""

    account: AccountLimiter
    id: str
    prompt: int
    started_at: float = field(default_factory=time.monotonic)
    _renewal: "asyncio.Task[Any] | None" = None

    def __post_init__(self) -> None:
        if self.account.limit.limits.concurrency:
            self._renewal = self.account.limiter.run_in_background(self._renew())

    def release(self, tokens: int | None, failed: ProviderError | None) -> None:
        """Report the end of the request to the script, in the background."""
        if self._renewal is not None:
            self._renewal.cancel()
        is_refused = failed is not None and failed.code is ErrorCode.RATE_LIMIT_EXCEEDED
        limiter, pause = self.account.limiter, self.account.take_pause()
        if is_refused and failed is not None:
            limiter.metrics.count_rate_limit_refusal()
            tokens, pause = 0, failed.retry_after or 0.0
            log.warning("request_refused", account=self.account.limit.title, retry_after=failed.retry_after)
        total = -1 if tokens is None else tokens
        took = (time.monotonic() - self.started_at) * 1000
        limit = self.account.limit.limits.tokens_per_minute or 0
        longest = MAX_PAUSE * limiter.window / MINUTE
        arguments = [self.id, limit, total, self.prompt, took, int(is_refused), pause * 1000, longest * 1000]
        limiter.run_in_background(limiter.run_script(self.account.limit, "settle", *arguments))

    async def _renew(self) -> None:
        """Renew the lease of the slot until the request ends."""
        while True:
            await asyncio.sleep(RENEW_INTERVAL)
            await self.account.limiter.run_script(self.account.limit, "renew", self.id, LEASE * 1000)


@dataclass(frozen=True, slots=True)
class VendorLimiter:
    """The rate limits of tools' vendors, for the requests of one attempt; implements `VendorLimits`."""

    limiter: RateLimiter
    tenant: str
    rate_limit_wait: RateLimitWait

    async def acquire(self, limit: RateLimitKey, ticket: str) -> AccountPermit:
        """Wait until a request may be sent; `rate_limit_wait` waits or cancels the attempt."""
        return await self.limiter.account_limiter(limit, self.tenant).acquire_ticket(ticket, self.rate_limit_wait)


async def _count_prompt(request: PermitRequest) -> int:
    """Count the tokens of a prompt; a long prompt is counted in a thread."""
    return (
        request.count_tokens()
        if request.characters <= COUNTED_INLINE
        else await in_untrusted_thread(request.count_tokens)
    )
