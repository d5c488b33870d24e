"""A thread goes on with what its own step has made ready: no message, no claim, no waiting in a queue (decisions/0019).

The step writes one of the activations that it makes ready as claimed, under the lease of an attempt that is registered
here first, and sends no hint for it. The thread that took the step carries it out next, as a Celery task of its own
(`worker/fastpath/inline_tasks.py`). After a while it lets the queue decide again, so that no run keeps others waiting.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

from store.runs.activations import Claim
from store.runs.decisions import CachedRun
from store.runs.new_activations import ContinuationRequest
from worker.leases.leases import Attempt, LeaseKeeper

UNKNOWN_ID = UUID(int=0)


@dataclass(slots=True)
class ClaimedNext:
    """An activation that is ours already. Without a claim: its commit's answer got lost; claim it, under the lease."""

    attempt: Attempt
    claim: Claim | None = None
    left: CachedRun | None = None  # the run, as the step behind which it comes has left it

    @property
    def component(self) -> str:
        """What it runs, as far as it is known."""
        return self.claim.component if self.claim is not None else "?"


@dataclass(slots=True)
class LocalContinuation:
    """A thread between two looks at its queue. Whoever makes one also carries out what it has `next`."""

    leases: LeaseKeeper
    until: float  # monotonic; then what is ready goes through the queue
    next: ClaimedNext | None = None

    def wants_more(self) -> bool:
        """Whether one more activation may be taken."""
        return self.next is None and time.monotonic() < self.until

    def pop(self, activation_id: UUID) -> ClaimedNext | None:
        """What was taken, for the caller to carry out now; None if that is another activation."""
        taken = self.next
        if taken is None or taken.attempt.activation_id != activation_id:
            return None
        self.next = None
        return taken

    def let_go(self) -> None:
        """Nobody will carry out what was taken: its lease runs out, and another worker does."""
        if self.next is not None:
            self.leases.forget(self.next.attempt)
            self.next = None


@dataclass(slots=True)
class ContinuationReservation:
    """One report's chance to take what the step with it makes ready: `keep` it after the commit, else `drop` it."""

    eager: LocalContinuation
    worker: str
    run_id: UUID
    may_be_stored: bool = False  # a commit that wrote what was taken gave no answer
    _taken: ClaimedNext | None = None

    @property
    def taker(self) -> ContinuationRequest:
        """What the step is given."""
        return ContinuationRequest(self.worker, self.eager.leases.lease, self._take, self.keep)

    def _take(self, activation_id: UUID | None) -> UUID | None:
        """Register an attempt, before anything is written, so that no call to stop slips between."""
        if self._taken is not None or not self.eager.wants_more():
            return None
        attempt = Attempt(self.run_id, activation_id or UNKNOWN_ID, uuid4())
        if not self.eager.leases.register(attempt):
            return None
        self._taken = ClaimedNext(attempt)
        return attempt.lease_id

    def keep(self, claim: Claim | None) -> None:
        """The step is stored, and this was taken; None: nothing was."""
        if claim is None or self._taken is None:
            self.drop()
            return
        self._taken.claim, self._taken.attempt.activation_id = claim, claim.id
        self.eager.next, self._taken = self._taken, None

    def keep_unseen(self, found: Callable[[UUID], UUID | None]) -> None:
        """The step is stored, and nobody saw what was taken: `found` tells the activation under a lease."""
        activation_id = found(self._taken.attempt.lease_id) if self._taken is not None else None
        if self._taken is None or activation_id is None:
            self.drop()
            return
        self._taken.attempt.activation_id = activation_id
        self.eager.next, self._taken = self._taken, None

    def remember(self, left: CachedRun | None) -> None:
        """What was kept begins where this step has ended."""
        if self.eager.next is not None:
            self.eager.next.left = left

    def drop_unless_stored(self) -> None:
        """Nothing was taken, so far as is known; what a commit without an answer may have taken stays registered."""
        if not self.may_be_stored:
            self.drop()

    def drop(self) -> None:
        """Nothing was taken."""
        if self._taken is not None:
            self.eager.leases.forget(self._taken.attempt)
            self._taken = None
