"""How an attempt waits for a rate limit: in place for a short wait; for a longer one the activation is rescheduled.

For a long wait the attempt ends without counting as a crash, and the activation is executed again when the wait is
over, so that it holds neither a thread nor a lease meanwhile (docs/decisions/0027-shared-rate-limits.md). It does
so only while nothing is lost by starting again: not after a request whose answer was not recorded, and not during work
that must not be repeated. Then it waits in place. No wait counts towards the node's time limit.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from worker.context.side_effects import SideEffectGuard
from worker.leases.attempt_handle import Attempt

MAX_WAIT_IN_PLACE = 1.5  # seconds; more than RESCHEDULE_EARLY, or a rescheduled attempt would be rescheduled again
RESCHEDULE_EARLY = 1.0  # seconds, in which the sweeper finds the activation
RESCHEDULED = ("postponed", "shutdown")  # reasons after which the activation is executed again
RETRY_INTERVAL = 1.0  # seconds after which a wait in place asks again


@dataclass(eq=False)
class AttemptRateLimitWait:
    """The waits of one attempt. `stop` stops it, with a reason."""

    attempt: Attempt
    side_effects: SideEffectGuard
    stop: Callable[[str], None]
    _is_at_risk: bool = False  # a request was sent whose answer is not recorded

    def mark_sent(self) -> None:
        """Note that a request is sent."""
        self._is_at_risk = True

    def mark_recorded(self) -> None:
        """Note that every answer so far is durable, so that another attempt can continue from there."""
        self._is_at_risk = False

    async def wait(self, seconds: float, title: str) -> None:
        """Wait so long, or for a part of it. Cancelled if the activation is rescheduled."""
        if seconds > MAX_WAIT_IN_PLACE and not self._is_at_risk and not self.side_effects.is_unsafe:
            self.attempt.postponed = (time.monotonic() + seconds, title)
            self.stop("postponed")
            if self.is_postponed:
                await asyncio.get_running_loop().create_future()  # until it is cancelled
        began, planned = time.monotonic(), min(seconds, RETRY_INTERVAL)
        self._extend_deadline(planned)  # before the wait, or a short time limit would end it
        try:
            await asyncio.sleep(planned)
        finally:
            self._extend_deadline(time.monotonic() - began - planned)

    def _extend_deadline(self, seconds: float) -> None:
        """Extend the deadline of the attempt."""
        if self.attempt.deadline is not None:
            self.attempt.deadline += seconds

    @property
    def is_postponed(self) -> bool:
        """Whether the activation will be executed again: it was rescheduled, or the process is shutting down."""
        return self.attempt.stopped is not None and self.attempt.stopped.reason in RESCHEDULED


def reschedule_delay(attempt: Attempt) -> float:
    """Return the seconds until a rescheduled activation is due: a little early, as the sweeper needs a moment."""
    until = attempt.postponed[0] if attempt.postponed is not None else 0.0
    return max(0.05, until - RESCHEDULE_EARLY - time.monotonic())
