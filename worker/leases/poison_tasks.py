"""The last chance: what has killed its worker twice shares its process with no other such one.

Strikes hit neighbours as well, so of the activations that a dead worker held one may be the killer and the others are
innocent. The next death under one of them is its failure; so only one of them at a time is *claimed* in a process, and
the others wait without a lease, out of reach of that death. What waits here is a memory and no promise: its row is
ready, and the sweeper sends its hint again whatever becomes of this process.
"""

from threading import Lock
from uuid import UUID

from worker.leases.attempt_handle import Attempt

ISOLATE_AFTER_CRASHES = 2
"""Strikes after which the next death would be the last."""

TaskRef = tuple[UUID, UUID]
"""(run, activation), as messages carry it."""


class PoisonTaskSlot:
    """The one place of a process for an activation on its last chance, and the hints that wait for it, each once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holder: Attempt | None = None
        self._aside: dict[TaskRef, None] = {}

    def take(self, attempt: Attempt) -> bool:
        """Take the place for an attempt; False if another has it, and then the hint is put aside.

        An attempt that was left behind is reported and holds nothing up; what it had put aside comes again.
        """
        hint = attempt.run_id, attempt.activation_id
        with self._lock:
            if self._holder is not None and not self._holder.is_left_behind:
                self._aside[hint] = None
                return False
            self._aside.pop(hint, None)
            self._holder = attempt
            return True

    def leave(self, attempt: Attempt) -> TaskRef | None:
        """Leave the place; a hint that was put aside, to be followed now."""
        with self._lock:
            if self._holder is not attempt:
                return None
            self._holder = None
            hint = next(iter(self._aside), None)
            if hint is not None:
                del self._aside[hint]
            return hint
