"""What an attempt may be doing outside, on disk before it does it (protocol.md, invariant 9).

A row says `keyed` or `unsafe` from before the first request of such a node on. So whoever finds a lease run out knows
whether the work may be given to another, and nothing leaves a worker under a lease that the disk does not know.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from components.base import Effect

DURABLE_EFFECTS = frozenset({"keyed", "unsafe"})
"""Effects for which the claim is made durable first."""


class SideEffectGuard:
    """One attempt's word on what it does. `write` waits for the disk; it raises AttemptStopped if nothing may leave."""

    def __init__(self, write: Callable[[Effect], None]) -> None:
        self._write = write
        self._effect: Effect = "pure"
        self._at_work = 0
        self._lock = asyncio.Lock()

    @property
    def is_unsafe(self) -> bool:
        """Whether something may be happening now that nobody may do twice."""
        return self._effect == "unsafe" or self._at_work > 0

    def begins(self, effect: Effect) -> None:
        """The node is about to do its work. On the attempt's thread, before anything leaves."""
        if effect in DURABLE_EFFECTS:
            self._write(effect)
            self._effect = effect

    @asynccontextmanager
    async def unrepeatable(self) -> AsyncGenerator[None]:
        """Around work that may not be done twice, and the record of what came of it.

        Work that ends without a record, however it ends, stays what may have happened.
        """
        if self._effect == "unsafe":
            yield
            return
        async with self._lock:
            if not self._at_work:
                await asyncio.to_thread(self._write, "unsafe")
            self._at_work += 1
        yield
        async with self._lock:
            if self._at_work == 1:
                await asyncio.to_thread(self._write, "keyed")
            self._at_work -= 1
