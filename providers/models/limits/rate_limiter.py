"""One pace for all workers: who may send a request with a credential, and when (docs/decisions/0027).

The vendors of tools that want to be asked slowly are asked at such a pace as well, each host by all tenants together.

What has left, and who waits, is in Redis, where every process sees it; a script decides in one round trip
(`providers/models/limits/rate_limiter.lua`). Nothing there is a fact: a Redis that was emptied begins anew without a
burst, and while it keeps silent each process goes by its own watch. A slot of a worker that died ends with its lease.
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

from providers.errors import Code, ProviderError
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.limits.gated_wire import PermitRequest
from providers.models.types.chat import RateLimitWait
from providers.models.types.rate_limits import MINUTE, RateLimitKey, reset_delay

log = structlog.get_logger()

WINDOW = MINUTE
LEASE = 30.0  # seconds that a slot is kept for a call of which nothing is heard
RENEWED_EVERY = 10.0  # seconds
CLOSE_TIMEOUT = 1.0  # seconds for what is still to be told when the process goes down
NO_COMPLETION = -1  # in place of tokens, to the script
LONGEST_PAUSE = 30.0  # seconds that a vendor can hold all back for, where two of its spans are less
QUICKLY_COUNTED = 50_000  # characters, whose tokens take some ten milliseconds to count
MOST_ALONE = 1000  # paces that a process keeps by itself; beyond that those are forgotten whose time is over

_SCRIPT = Path(__file__).with_name("rate_limiter.lua")
_KEYS = ("state", "queue", "due", "log", "cost", "slots", "tags")


class Silence(Protocol):
    """Whether a server has kept silent of late (scheduler/messaging/circuit_breaker.py)."""

    def holds(self) -> bool: ...

    def begins(self) -> None: ...

    def ends(self) -> None: ...


class Counters(Protocol):
    """What a process counts of requests with a limit (scheduler/metrics.py)."""

    @property
    def waited(self) -> Callable[[], None]: ...

    @property
    def refused(self) -> Callable[[], None]: ...


class RateLimiter:
    """A process's way to the paces, by a client of its event loop. It asks nobody before a request that has a limit."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        silence: Silence,
        counters: Counters,
        *,
        window: float = WINDOW,
        clock: Callable[[], float] | None = None,  # for tests, in seconds; None: the server's own
    ) -> None:
        self.window = window
        self._clock = clock
        self._redis = client
        self._script: Any = self._redis.register_script(_SCRIPT.read_text(encoding="utf-8"))
        self._silence = silence
        self._telling: set[asyncio.Task[Any]] = set()
        self._alone_at: dict[str, float] = {}  # by key: when the next request may leave while Redis keeps silent
        self.counters = counters

    def gate(self, paced: RateLimitKey, tenant: str) -> "AccountLimiter":
        """The limits of a credential, as requests of a tenant meet them."""
        return AccountLimiter(self, paced, tenant)

    async def call(self, paced: RateLimitKey, verb: str, *given: Any) -> float | None:
        """What the script says; None if it cannot be asked."""
        if self._silence.holds():
            return None
        keys = [f"easel:pace:{{{paced.key}}}:{name}" for name in _KEYS]
        now = self._clock() * 1000 if self._clock is not None else 0
        try:
            said = cast(int, await self._script(keys, [verb, now, self.span(paced) * 1000, *given]))
        except redis.RedisError as error:
            self._silence.begins()
            log.warning("rate_limiter_unavailable", account=paced.title, error=str(error))
            return None
        self._silence.ends()
        return float(said)

    def span(self, paced: RateLimitKey) -> float:
        """Seconds in which these limits may be used up."""
        return self.window * paced.minute / MINUTE

    def alone(self, paced: RateLimitKey) -> float:
        """Seconds to wait where nobody can be asked: this process keeps the pace by itself, and others do likewise."""
        now, requests = time.monotonic(), paced.rates.requests_per_minute
        wait = self._alone_at.get(paced.key, now) - now
        if requests and wait <= 0:
            if len(self._alone_at) >= MOST_ALONE:
                self._alone_at = {key: at for key, at in self._alone_at.items() if at > now}
            self._alone_at[paced.key] = now + self.span(paced) / requests
        return max(0.0, wait)

    def tell(self, telling: Awaitable[Any]) -> "asyncio.Task[Any]":
        """Do something that nobody waits for."""
        task = asyncio.ensure_future(telling)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        return task

    async def close(self) -> None:
        """Tell what is still to be told, and close the connections."""
        telling = [task for task in self._telling if not task.done()]
        if telling:
            _, late = await asyncio.wait(telling, timeout=CLOSE_TIMEOUT)
            for task in late:  # of calls that did not let go: their slots end with their leases
                task.cancel()
        await self._redis.aclose()


@dataclass
class AccountLimiter:
    """One credential's limits, on their way to the script."""

    governor: RateLimiter
    paced: RateLimitKey
    tenant: str
    _pause: float = 0.0  # seconds that the vendor wants to be left alone, not yet told

    async def enter(self, leaving: PermitRequest) -> "AccountPermit":
        """Wait until the request may leave; in place, or by being cancelled, as its patience has it."""
        prompt = await _counted(leaving) if self.paced.rates.tokens_per_minute else 0
        most = NO_COMPLETION if leaving.answer is None else leaving.answer
        return await self.admit(leaving.key or uuid4().hex, leaving.patience, prompt, most)

    async def admit(
        self, ticket: str, patience: RateLimitWait | None, prompt: int = 0, most: int = 0
    ) -> "AccountPermit":
        """The same for any request, whose ticket is known again in another attempt at it."""
        admitted = uuid4().hex
        asked = [*self._limits, ticket, admitted, self.tenant, prompt, most, LEASE * 1000]
        has_waited = False
        try:
            while True:
                said = await self.governor.call(self.paced, "ask", *asked)
                wait = self.governor.alone(self.paced) if said is None else said / 1000
                if wait <= 0:
                    break
                if not has_waited:
                    has_waited = True
                    self.governor.counters.waited()
                if patience is not None:
                    await patience.wait(wait, self.paced.title)
                else:
                    await asyncio.sleep(min(wait, 1.0))
        except asyncio.CancelledError:
            if patience is None or not patience.comes_back:
                self.governor.tell(self.governor.call(self.paced, "forget", ticket, admitted))
            raise
        if patience is not None:
            patience.sends()
        return AccountPermit(self, admitted, NO_COMPLETION if most == NO_COMPLETION else prompt)

    def hear(self, headers: Mapping[str, str]) -> None:
        """Note that the vendor says that nothing is left; it is told with the next request that is over."""
        self._pause = max(self._pause, reset_delay(headers) or 0.0)

    def pause(self) -> float:
        """The seconds that were noted, once."""
        noted, self._pause = self._pause, 0.0
        return noted

    @property
    def _limits(self) -> tuple[int, int, int]:
        rates = self.paced.rates
        return rates.requests_per_minute or 0, rates.tokens_per_minute or 0, rates.concurrency or 0


@dataclass
class AccountPermit:
    """One request that has left."""

    gate: AccountLimiter
    id: str
    prompt: int
    began: float = field(default_factory=time.monotonic)
    _renewing: "asyncio.Task[Any] | None" = None

    def __post_init__(self) -> None:
        if self.gate.paced.rates.concurrency:
            self._renewing = self.gate.governor.tell(self._renew())

    def leave(self, tokens: int | None, failed: ProviderError | None) -> None:
        """The request is over. Nobody waits for this to be told."""
        if self._renewing is not None:
            self._renewing.cancel()
        is_refused = failed is not None and failed.code is Code.RATE_LIMIT_EXCEEDED
        governor, pause = self.gate.governor, self.gate.pause()
        if is_refused and failed is not None:
            governor.counters.refused()
            tokens, pause = 0, failed.retry_after or 0.0
            log.warning("request_refused", account=self.gate.paced.title, retry_after=failed.retry_after)
        total = -1 if tokens is None else tokens
        took = (time.monotonic() - self.began) * 1000
        limit = self.gate.paced.rates.tokens_per_minute or 0
        longest = LONGEST_PAUSE * governor.window / MINUTE
        told = [self.id, limit, total, self.prompt, took, int(is_refused), pause * 1000, longest * 1000]
        governor.tell(governor.call(self.gate.paced, "settle", *told))

    async def _renew(self) -> None:
        """Keep the slot as long as the call goes on."""
        while True:
            await asyncio.sleep(RENEWED_EVERY)
            await self.gate.governor.call(self.gate.paced, "renew", self.id, LEASE * 1000)


@dataclass(frozen=True, slots=True)
class VendorLimiter:
    """The paces of tools' vendors, as the requests of one attempt meet them
    (providers/models/limits/idempotency_keys.py).
    """

    governor: RateLimiter
    tenant: str
    patience: RateLimitWait

    async def take(self, paced: RateLimitKey, ticket: str) -> AccountPermit:
        """Wait until a request may leave; in place, or by being cancelled, as the attempt's patience has it."""
        return await self.governor.gate(paced, self.tenant).admit(ticket, self.patience)


async def _counted(leaving: PermitRequest) -> int:
    """The tokens of a prompt; those of a long one are counted beside the loop."""
    return leaving.count() if leaving.letters <= QUICKLY_COUNTED else await in_untrusted_thread(leaving.count)
