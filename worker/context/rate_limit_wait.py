"""How one attempt waits until its request may leave: in place for a moment, else it gives its place up.

A wait of a second is waited. For a longer one the attempt ends without a strike and comes back when it is time, so that
it holds neither a thread nor a lease meanwhile (docs/decisions/0027). It does so only while nothing would be lost by
beginning anew: not behind a request that was sent and whose answer nobody has recorded, and not beside something that
may be done once only. Then it waits in place. No wait counts towards the node's time limit.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from worker.context.side_effects import SideEffectGuard
from worker.leases.attempt_handle import Attempt

IN_PLACE = 1.5  # seconds; above what an attempt comes back early, or it would have to leave again
EARLY = 1.0  # seconds, in which the sweeper finds what is due
COMES_BACK = ("postponed", "shutdown")
STEP = 1.0  # seconds after which one who waits in place asks again


@dataclass(eq=False)
class RateLimitWait:
    """One attempt's. `stop` ends it with a reason."""

    attempt: Attempt
    acting: SideEffectGuard
    stop: Callable[[str], None]
    _is_at_risk: bool = False  # something was sent, and nobody has recorded what came of it

    def sends(self) -> None:
        """A request leaves."""
        self._is_at_risk = True

    def has_recorded(self) -> None:
        """What was answered so far is on disk, and another attempt goes on from there."""
        self._is_at_risk = False

    async def wait(self, seconds: float, title: str) -> None:
        """Wait so long, or for a part of it. Where the attempt gives its place up, this is cancelled."""
        if seconds > IN_PLACE and not self._is_at_risk and not self.acting.is_unsafe:
            self.attempt.postponed = (time.monotonic() + seconds, title)
            self.stop("postponed")
            if self.comes_back:
                await asyncio.get_running_loop().create_future()  # until it is cancelled
        began, planned = time.monotonic(), min(seconds, STEP)
        self._give(planned)  # at once, or a short limit would end the wait
        try:
            await asyncio.sleep(planned)
        finally:
            self._give(time.monotonic() - began - planned)

    def _give(self, seconds: float) -> None:
        """Let the attempt's time be up so much later."""
        if self.attempt.deadline is not None:
            self.attempt.deadline += seconds

    @property
    def comes_back(self) -> bool:
        """Whether the attempt has given its place up for a while, or has to go on in another process."""
        return self.attempt.stopped is not None and self.attempt.stopped.reason in COMES_BACK


def reschedule_delay(attempt: Attempt) -> float:
    """In how many seconds a postponed attempt is to be sent again: a little early, since finding it takes a moment."""
    until = attempt.postponed[0] if attempt.postponed is not None else 0.0
    return max(0.05, until - EARLY - time.monotonic())
