"""Claim batching: claims of a process that wait for a connection are made in one statement, with one commit.

Claims use only a part of the connections, so that reports always find one. A claim that finds one of them free is made
alone, at once. A claim that finds none waits in line, and the first in line claims for the whole line as soon as one is
free. A claim that gets nothing in the batch is made alone afterwards, which tells why: claimed by another worker,
locked, or a suspected poison task.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from canvas.ids import LeaseId
from store.runs.activations import Claim
from worker.leases.attempt_handle import Attempt

ClaimOne = Callable[[Attempt], Claim | None]
ClaimMany = Callable[[Sequence[Attempt]], Mapping[LeaseId, Claim]]
"""Claims for some attempts; returns those that succeeded, by lease id."""


@dataclass(eq=False)
class _PendingClaim:
    """A claim that waits in line."""

    attempt: Attempt
    done: threading.Event | None = None  # set once the batch is claimed; None for the first in line, which claims it
    claim: Claim | None = None


class ClaimBatcher:
    """Limits the claims of a process that run at the same time to `places`. `batches` off: each is made alone."""

    def __init__(self, places: int, *, batches: bool = True) -> None:
        self._batches = batches
        self._places = threading.BoundedSemaphore(places)
        self._lock = threading.Lock()
        self._line: list[_PendingClaim] = []

    def claim(self, attempt: Attempt, claim_one: ClaimOne, claim_many: ClaimMany) -> Claim | None:
        """Return the claim that a batch made for the attempt, else what `claim_one` returns. Raises what it raises."""
        if not self._places.acquire(blocking=False):
            claim = self._claim_in_batch(attempt, claim_many) if self._batches else None
            if claim is not None:
                return claim
            self._places.acquire()
        try:
            return claim_one(attempt)
        finally:
            self._places.release()

    def _claim_in_batch(self, attempt: Attempt, claim_many: ClaimMany) -> Claim | None:
        pending = _PendingClaim(attempt)
        with self._lock:
            if self._line:
                pending.done = threading.Event()
            self._line.append(pending)
        if pending.done is not None:
            pending.done.wait()
        else:
            self._claim_line(claim_many)
        return pending.claim

    def _claim_line(self, claim_many: ClaimMany) -> None:
        """Claim for the whole line, once a place is free. Called by the first in line."""
        self._places.acquire()
        with self._lock:
            line, self._line = self._line, []
        try:
            if len(line) > 1:
                claims = claim_many([pending.attempt for pending in line])
                for pending in line:
                    pending.claim = claims.get(pending.attempt.lease_id)
        finally:
            self._places.release()
            for pending in line:
                if pending.done is not None:
                    pending.done.set()
