"""Time limits in which only work counts: they stand still while a request waits for its vendor's pace.

    async with WorkTime(12):
        ...                      # somewhere below: `with waiting(): await its_turn()`

A limit holds for the task that has entered it and for all tasks that this one begins. Past it, leaving the block raises
TimeoutError, as `asyncio.timeout` does.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType


class PausableTimeout:
    """One limit, in seconds; None only measures how long it has stood still."""

    def __init__(self, seconds: float | None) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._stood_still = 0.0  # seconds, of waits that are over
        self._waiting = 0  # requests, side by side
        self._since = 0.0  # on the loop's clock: when the first of them began to wait
        self._left: float | None = None  # seconds of work that were left then
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
        """Seconds that have not counted."""
        return self._stood_still + (_now() - self._since if self._waiting else 0.0)

    def expired(self) -> bool:
        """Whether it was this limit that ended the work."""
        return self._timeout.expired()

    def stop(self) -> None:
        """A request begins to wait."""
        self._waiting += 1
        if self._waiting == 1:
            self._since, ends_at = _now(), self._timeout.when()
            self._left = ends_at - self._since if ends_at is not None else None
            self._set(None)

    def go_on(self) -> None:
        """A request waits no more."""
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
    """Around a wait that is no work: all limits of the task stand still."""
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
