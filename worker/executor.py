"""One hint, from claim to report: claim, build the context, run the component, report, and take the run's next step.

Everything the attempt writes is guarded by its lease. Whatever happens between claim and report, the run goes on: a
lost worker's lease runs out, and a report that cannot be stored is refused (`worker/reporter.py`).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID, uuid4

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.outcome import Failed
from providers.isolation.limited_process import OWNER
from store.primitives import outcome_codec
from store.primitives.db_errors import is_outage
from store.runs import activations, reports
from store.runs.activations import Claim
from store.runs.reports import ReportPayload
from worker.attempt import AttemptDependencies, AttemptRunner
from worker.context import outcomes
from worker.fastpath.claim_batcher import ClaimBatcher
from worker.fastpath.continuation import Continuation, LocalContinuation
from worker.leases.attempt_handle import Attempt
from worker.leases.poison_tasks import ISOLATE_AFTER_CRASHES, PoisonTaskSlot, TaskRef

log = structlog.get_logger()

CLAIM_PAUSES = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # seconds between tries to claim; a restart of PostgreSQL takes 0.3


@dataclass(kw_only=True)
class Executor(AttemptDependencies):
    """How a process carries out hints. One per process."""

    worker_name: str
    claims: ClaimBatcher
    last_chance: PoisonTaskSlot = field(default_factory=PoisonTaskSlot)  # who kills a process takes no innocent along

    def execute(self, run_id: UUID, activation_id: UUID, eager: LocalContinuation | None = None) -> bool:
        """Carry out an activation if it is still to be had. Safe to call twice at once, or for nothing.

        What is on its last chance waits, without a lease, for another that is; whoever ends that one goes on with it.
        False: the process goes down, and the hint is for another. `eager` then has what the caller must go on with.
        """
        hint: TaskRef | None = (run_id, activation_id)
        taken = eager.pop(activation_id) if eager is not None else None
        while hint is not None:
            attempt = taken.attempt if taken is not None else Attempt(*hint, uuid4())
            if taken is None and not self.leases.register(attempt):
                return False
            try:
                self._work_on(attempt, taken, eager)
            except BaseException:
                if eager is not None:
                    eager.let_go()
                raise
            finally:
                self.leases.forget(attempt)
                hint, taken = self.last_chance.leave(attempt), None
                structlog.contextvars.clear_contextvars()
        return True

    def eager(self) -> LocalContinuation:
        """Return a continuation for a thread that has just received a task message and will execute what it claims."""
        return LocalContinuation(self.leases, time.monotonic() + self.fast_path.continue_locally_for.total_seconds())

    def _work_on(self, attempt: Attempt, taken: Continuation | None, eager: LocalContinuation | None) -> None:
        claim = (taken.claim if taken is not None else None) or self._claim_patiently(attempt)
        if claim is None:
            if taken is not None:
                self._let_go(attempt)
            return
        self.leases.claimed(attempt, claim.conversation_id)
        OWNER.set(str(claim.tenant_id))
        structlog.contextvars.bind_contextvars(
            run_id=str(claim.run_id), activation_id=str(claim.id), node=claim.node_id, attempt=claim.attempt
        )
        taking = None
        if eager is not None and self.fast_path.continues_locally:
            taking = Continuation(eager, self.worker_name, claim.run_id)
        AttemptRunner(self, attempt, claim, taking, taken.cached_run if taken is not None else None).carry_out()

    def _let_go(self, attempt: Attempt) -> None:
        """What a commit took whose answer got lost was called off before anybody knew of it: its run need not wait."""
        stopped = Failed(outcomes.CANCELLED, "cancelled")
        told = ReportPayload(
            outcome_codec.encode_outcome(stopped, error=stopped.error, retake=False, spoke=False), {}, [], []
        )
        with self.coordinator.database.transaction() as tx:
            was_held = reports.report(tx, attempt.run_id, attempt.activation_id, attempt.lease_id, told).count()
        if was_held:
            self.coordinator.advance_run(attempt.run_id)

    def _claim_patiently(self, attempt: Attempt) -> Claim | None:
        """The same as `_claim`; a database that comes back soon is waited for, since the hint would be lost."""
        for pause in CLAIM_PAUSES:
            try:
                return self.claims.claim(attempt, self._claim, self._claim_together)
            except SQLAlchemyError as error:
                if not is_outage(error) or self.leases.is_closed:
                    raise
            time.sleep(pause)
        return self.claims.claim(attempt, self._claim, self._claim_together)

    def _claim_together(self, attempts: Sequence[Attempt]) -> Mapping[UUID, Claim]:
        """The leases of some attempts, as far as they are to be had at once; nothing if the database fails."""
        wanted = [(attempt.run_id, attempt.activation_id, attempt.lease_id) for attempt in attempts]
        try:
            with self.coordinator.database.statements() as tx:
                return activations.claim_together(
                    tx, wanted, lease=self.leases.lease, worker=self.worker_name, most_strikes=ISOLATE_AFTER_CRASHES - 1
                )
        except SQLAlchemyError:
            return {}  # each asks by himself, and fails by himself

    def _claim(self, attempt: Attempt) -> Claim | None:
        """The lease; None if the activation is not to be had, or has been put aside."""
        wanted = attempt.run_id, attempt.activation_id
        with self.coordinator.database.statements() as tx:
            take = partial(
                activations.claim,
                tx,
                *wanted,
                lease_id=attempt.lease_id,
                lease=self.leases.lease,
                worker=self.worker_name,
            )
            claim = take(most_strikes=ISOLATE_AFTER_CRASHES - 1)
            if claim is None and activations.is_ready(tx, *wanted) and self.last_chance.take(attempt):
                claim = take()
            return claim
