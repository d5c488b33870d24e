"""Timeouts that count only work: they pause while a request waits for a rate limit.

    async with PausableTimeout(12):
        ...                      # somewhere below: `with pause_timeouts(): await limiter.take(...)`

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
        self._stood_still = 0.0  # seconds of pauses that are over
        self._waiting = 0  # number of concurrent waits
        self._since = 0.0  # on the loop's clock: start of the first of them
        self._left: float | None = None  # seconds of work that were left at that time
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
    def stood_still(self) -> float:
        """Return the seconds that did not count."""
        return self._stood_still + (_now() - self._since if self._waiting else 0.0)

    def expired(self) -> bool:
        """Return whether this timeout ended the work."""
        return self._timeout.expired()

    def stop(self) -> None:
        """Pause the timeout; call it at the start of each wait."""
        self._waiting += 1
        if self._waiting == 1:
            self._since, ends_at = _now(), self._timeout.when()
            self._left = ends_at - self._since if ends_at is not None else None
            self._set(None)

    def go_on(self) -> None:
        """Continue the timeout after the last concurrent wait; call it at the end of each wait."""
        self._waiting -= 1
        if self._waiting == 0:
            now = _now()
            self._stood_still += now - self._since
            self._set(now + self._left if self._left is not None else None)

    def _set(self, ends_at: float | None) -> None:
        if not self.expired():
            self._timeout.reschedule(ends_at)


_limits: ContextVar[tuple[PausableTimeout, ...]] = ContextVar("limits of work", default=())


@contextmanager
def pause_timeouts() -> Generator[None]:
    """Pause all timeouts of the current task during a wait that is not work."""
    limits = _limits.get()
    for limit in limits:
        limit.stop()
    try:
        yield
    finally:
        for limit in limits:
            limit.go_on()


def _now() -> float:
    return asyncio.get_running_loop().time()
