"""Timeouts that count only work: they pause while a request waits for a rate limit.

    async with PausableTimeout(12):
        ...                      # somewhere below: `with pause_timeouts(): await limiter.acquire(...)`

A timeout applies to the task that entered it and to all tasks that this one starts. When it has expired, leaving the
block raises TimeoutError, as `asyncio.timeout` does.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType


class PausableTimeout:
    """One timeout, in seconds; None only measures how long it was paused."""

    def __init__(self, seconds: float | None) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._paused_seconds = 0.0  # seconds of pauses that are over
        self._waiting = 0  # number of concurrent waits
        self._paused_at = 0.0  # on the loop's clock: start of the first of them
        self._remaining: float | None = None  # seconds of work that were left at that time
        self._entered: Token[tuple[PausableTimeout, ...]] | None = None

    async def __aenter__(self) -> "PausableTimeout":
        await self._timeout.__aenter__()
        self._entered = _limits.set((*_limits.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._entered is not None:
            _limits.reset(self._entered)
        return await self._timeout.__aexit__(kind, error, trace)

    @property
    def paused_seconds(self) -> float:
        """Return the seconds that did not count."""
        return self._paused_seconds + (_now() - self._paused_at if self._waiting else 0.0)

    def has_expired(self) -> bool:
        """Return whether this timeout ended the work."""
        return self._timeout.expired()

    def pause(self) -> None:
        """Pause the timeout; call it at the start of each wait."""
        self._waiting += 1
        if self._waiting == 1:
            self._paused_at, ends_at = _now(), self._timeout.when()
            self._remaining = ends_at - self._paused_at if ends_at is not None else None
            self._reschedule(None)

    def resume(self) -> None:
        """Continue the timeout after the last concurrent wait; call it at the end of each wait."""
        self._waiting -= 1
        if self._waiting == 0:
            now = _now()
            self._paused_seconds += now - self._paused_at
            self._reschedule(now + self._remaining if self._remaining is not None else None)

    def _reschedule(self, ends_at: float | None) -> None:
        if not self.has_expired():
            self._timeout.reschedule(ends_at)


_limits: ContextVar[tuple[PausableTimeout, ...]] = ContextVar("limits of work", default=())


@contextmanager
def pause_timeouts() -> Generator[None]:
    """Pause all timeouts of the current task during a wait that is not work."""
    limits = _limits.get()
    for limit in limits:
        limit.pause()
    try:
        yield
    finally:
        for limit in limits:
            limit.resume()


def _now() -> float:
    return asyncio.get_running_loop().time()
