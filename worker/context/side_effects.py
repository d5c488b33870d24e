"""Records what an attempt may be doing outside, durably, before it does it (docs/protocol.md).

The activation's row says `keyed` or `unsafe` before the first request of such a node. So the sweeper knows for an
expired lease whether the work may be repeated, and nothing leaves a worker under a claim that is not durable.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from components.base import Effect

DURABLE_EFFECTS = frozenset({"keyed", "unsafe"})
"""Effects for which the claim is made durable first."""


class SideEffectGuard:
    """The effect class of what one attempt does. `write` records it durably, or raises AttemptStopped."""

    def __init__(self, write: Callable[[Effect], None]) -> None:
        self._write = write
        self._effect: Effect = "pure"
        self._open_blocks = 0
        self._lock = asyncio.Lock()

    @property
    def is_unsafe(self) -> bool:
        """Whether the attempt may be doing something that must not be done twice."""
        return self._effect == "unsafe" or self._open_blocks > 0

    def declare_effect(self, effect: Effect) -> None:
        """Declare the effect class of the node, on the attempt's thread, before its component runs."""
        if effect in DURABLE_EFFECTS:
            self._write(effect)
            self._effect = effect

    @asynccontextmanager
    async def non_repeatable(self) -> AsyncGenerator[None]:
        """Enclose work that must not be done twice, and the record of its result.

        If the work ends without a record, it stays unknown whether it took place.
        """
        if self._effect == "unsafe":
            yield
            return
        async with self._lock:
            if not self._open_blocks:
                await asyncio.to_thread(self._write, "unsafe")
            self._open_blocks += 1
        yield
        async with self._lock:
            if self._open_blocks == 1:
                await asyncio.to_thread(self._write, "keyed")
            self._open_blocks -= 1
