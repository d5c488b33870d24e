"""Local continuation: the thread that advanced a run executes the next activation itself (docs/decisions/0019).

The advance with the thread's report writes one of the activations that it makes ready as claimed, under the lease of an
attempt that is registered here before anything is written. That activation needs no task message, claim or wait in a
queue. The thread executes it as a Celery task of its own (`worker/fastpath/inline_tasks.py`). After a while the thread
lets the queue decide again, so that no run keeps others waiting.

    reserve(): the attempt is registered, and the advance writes its activation
    confirm(): after the commit, the thread has the claim and executes the activation
    release(): the attempt is forgotten, because nothing was written or nothing will be executed
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID, uuid4

from canvas.ids import ActivationId, LeaseId, RunId
from store.runs.activations import Claim
from store.runs.new_activations import ContinuationRequest
from store.runs.prepared_claims import CachedRun
from worker.leases.leases import Attempt, LeaseKeeper

UNKNOWN_ID = ActivationId(UUID(int=0))
"""Activation id of an attempt whose activation the database chooses."""


@dataclass(slots=True)
class LocalContinuation:
    """What one thread executes next. Its creator also executes `next`, until there is none."""

    leases: LeaseKeeper
    until: float  # time.monotonic() from which on everything that becomes ready goes through the queue
    next: "Continuation | None" = None  # claimed

    def has_room(self) -> bool:
        """Whether the thread may continue with one more activation."""
        return self.next is None and time.monotonic() < self.until

    def pop(self, activation_id: ActivationId) -> "Continuation | None":
        """Return the continuation for the caller to execute now; None if there is none for that activation."""
        continuation = self.next
        if continuation is None or continuation.attempt.activation_id != activation_id:
            return None
        self.next = None
        return continuation

    def release(self) -> None:
        """Give up the next activation. Its lease expires, and another worker executes it."""
        if self.next is not None:
            self.next.release()


class ContinuationState(StrEnum):
    """How far a continuation is."""

    RELEASED = "released"  # no attempt is registered
    RESERVED = "reserved"  # an attempt is registered, and an advance may have written its activation
    CLAIMED = "claimed"  # the activation is running under the attempt's lease, for this thread to execute


class Continuation:
    """The activation that a thread executes after the one it reports."""

    def __init__(self, thread: LocalContinuation, worker: str, run_id: RunId) -> None:
        self.state = ContinuationState.RELEASED
        self.claim: Claim | None = None  # None, although claimed: the commit was not answered; claim by the lease id
        self.cached_run: CachedRun | None = None  # the run as the advance before this activation wrote it
        self.may_be_stored = False  # a commit that wrote the activation was not answered
        self._thread = thread
        self._worker = worker
        self._run_id = run_id
        self._attempt: Attempt | None = None

    @property
    def attempt(self) -> Attempt:
        """The registered attempt. Only if reserved or claimed."""
        assert self._attempt is not None, f"a {self.state} continuation has no attempt"
        return self._attempt

    @property
    def component(self) -> str:
        """The component of the activation, as far as it is known."""
        return self.claim.component if self.claim is not None else "?"

    @property
    def node_id(self) -> str:
        """The node of the activation, as far as it is known."""
        return self.claim.node_id if self.claim is not None else "?"

    @property
    def request(self) -> ContinuationRequest:
        """What the advance gets."""
        return ContinuationRequest(self._worker, self._thread.leases.lease, self.reserve)

    def reserve(self, activation_id: ActivationId | None) -> LeaseId | None:
        """Register an attempt and return its lease id; None if the thread does not want the activation.

        It is registered before anything is written, so that no request to stop is missed. Without an id the database
        chooses the activation.
        """
        if self.state is not ContinuationState.RELEASED or not self._thread.has_room():
            return None
        attempt = Attempt(self._run_id, activation_id or UNKNOWN_ID, LeaseId(uuid4()))
        if not self._thread.leases.register(attempt):
            return None
        self._attempt, self.state = attempt, ContinuationState.RESERVED
        return attempt.lease_id

    def confirm(self, claim: Claim | None) -> None:
        """Keep what the advance has written, after its commit; None: it has written nothing for this thread."""
        if claim is None or self.state is not ContinuationState.RESERVED:
            self.release_reservation()
            return
        self.claim = claim
        self._keep_for_thread(claim.id)

    def confirm_by_lease(self, find_activation: Callable[[LeaseId], ActivationId | None]) -> None:
        """Keep what a commit without an answer has written: `find_activation` returns the activation under a lease."""
        is_reserved = self.state is ContinuationState.RESERVED
        activation_id = find_activation(self.attempt.lease_id) if is_reserved else None
        if activation_id is None:
            self.release_reservation()
            return
        self._keep_for_thread(activation_id)

    def _keep_for_thread(self, activation_id: ActivationId) -> None:
        self.attempt.activation_id = activation_id
        self.state, self._thread.next = ContinuationState.CLAIMED, self

    def release_reservation(self) -> None:
        """Forget the attempt if its activation was not written. A claimed continuation stays."""
        if self.state is ContinuationState.RESERVED:
            self.release()

    def release_unless_stored(self) -> None:
        """Forget the attempt, unless a commit without an answer may have written its activation."""
        if not self.may_be_stored:
            self.release_reservation()

    def release(self) -> None:
        """Forget the attempt: this thread does not execute its activation."""
        if self._attempt is not None:
            self._thread.leases.forget(self._attempt)
        if self._thread.next is self:
            self._thread.next = None
        self._attempt, self.state = None, ContinuationState.RELEASED
