"""Claims of a process that come together are one statement and one commit.

Claims use a part of the connections only, so that reports find one. Who finds one of them free claims by himself, at
once. Who does not stands in line, and the first in line claims for all of it as soon as one is free. Whoever gets
nothing in that way asks by himself: what is taken, locked or on its last chance is told apart there.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from store.runs.activations import Claim
from worker.leases.attempt_handle import Attempt

Alone = Callable[[Attempt], Claim | None]
Together = Callable[[Sequence[Attempt]], Mapping[UUID, Claim]]
"""Claims of some attempts; those that were had, by lease id."""


@dataclass(eq=False)
class _Wanted:
    """A claim that stands in line."""

    attempt: Attempt
    done: threading.Event | None = None  # of those behind the first
    claim: Claim | None = None


class ClaimBatcher:
    """The claims of a process, as many at once as there are `places`."""

    def __init__(self, places: int, *, batches: bool = True) -> None:
        self._batches = batches
        self._places = threading.BoundedSemaphore(places)
        self._lock = threading.Lock()
        self._line: list[_Wanted] = []

    def claim(self, attempt: Attempt, alone: Alone, together: Together) -> Claim | None:
        """What `alone` gives, unless claiming with others gives a claim before that. Raises what `alone` raises."""
        if not self._places.acquire(blocking=False):
            claim = self._in_line(attempt, together) if self._batches else None
            if claim is not None:
                return claim
            self._places.acquire()
        try:
            return alone(attempt)
        finally:
            self._places.release()

    def _in_line(self, attempt: Attempt, together: Together) -> Claim | None:
        wanted = _Wanted(attempt)
        with self._lock:
            if self._line:
                wanted.done = threading.Event()
            self._line.append(wanted)
        if wanted.done is not None:
            wanted.done.wait()
        else:
            self._claim_all(together)
        return wanted.claim

    def _claim_all(self, together: Together) -> None:
        """Claim for all that stand in line once there is a place. Called by the first of them."""
        self._places.acquire()
        with self._lock:
            line, self._line = self._line, []
        try:
            if len(line) > 1:
                claims = together([wanted.attempt for wanted in line])
                for wanted in line:
                    wanted.claim = claims.get(wanted.attempt.lease_id)
        finally:
            self._places.release()
            for wanted in line:
                if wanted.done is not None:
                    wanted.done.set()
