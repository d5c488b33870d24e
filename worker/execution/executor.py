"""Executes one task message, from claim to report: claim the activation, run its component, report, advance the run.

Every write of the attempt is guarded by its lease. Whatever happens between claim and report, the run continues: the
lease of a lost worker expires, and a report that cannot be stored becomes a failure (`worker/execution/reporter.py`).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.ids import ActivationId, LeaseId, RunId
from canvas.outcome import Failed
from components import registry
from providers.isolation.limited_process import OWNER
from store.db.db_errors import is_outage
from store.primitives import outcome_codec
from store.runs import activations, reports
from store.runs.activations import Claim, Deferral
from store.runs.prepared_claims import ReceivedClaim
from store.runs.reports import ReportPayload
from worker.context import outcomes
from worker.execution.attempt import AttemptDependencies, AttemptRunner
from worker.fastpath.claim_batcher import ClaimBatcher
from worker.fastpath.continuation import Continuation, LocalContinuation
from worker.fastpath.message_fetcher import THREAD_TASKS
from worker.leases.attempt_handle import Attempt
from worker.leases.poison_tasks import ISOLATE_AFTER_CRASHES, PoisonTaskSlot, TaskRef
from worker.task_end import NOT_CLAIMED, TaskEnd, TaskState

log = structlog.get_logger()

CLAIM_PAUSES = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # seconds before each further try; PostgreSQL restarts in 0.3


@dataclass(kw_only=True)
class Executor(AttemptDependencies):
    """Executes the activations that task messages name. One per process."""

    worker_name: str
    claims: ClaimBatcher
    poison_slot: PoisonTaskSlot = field(default_factory=PoisonTaskSlot)

    def execute(
        self,
        run_id: RunId,
        activation_id: ActivationId,
        continuation: LocalContinuation | None = None,
        prepared: ReceivedClaim | None = None,
    ) -> TaskEnd | None:
        """Execute an activation if it is still ready. Safe to call twice at the same time, or without need.

        A suspected poison task waits, without a lease, while the process executes another one; the thread that ends the
        other executes it next. Returns None if the process is shutting down: another worker must have the message. If
        `continuation.next` is set afterwards, the caller must execute it.

        `prepared`: the claim that the message carries.
        """
        task: TaskRef | None = (run_id, activation_id)
        end: TaskEnd | None = None  # of the message's own activation
        claimed = continuation.pop(activation_id) if continuation is not None else None
        while task is not None:
            attempt = claimed.attempt if claimed is not None else Attempt(*task, LeaseId(uuid4()))
            if claimed is None and not self.leases.register(attempt):
                return end
            try:
                ended = self._execute_attempt(attempt, claimed, continuation, prepared)
            except BaseException:
                if continuation is not None:
                    continuation.release()
                raise
            finally:
                self.leases.forget(attempt)
                task, claimed, prepared = self.poison_slot.release(attempt), None, None
                if task is not None:
                    THREAD_TASKS.requeue_message()  # this thread has other work first
                structlog.contextvars.clear_contextvars()
            end = end or ended
        return end

    def new_continuation(self) -> LocalContinuation:
        """Return a continuation for a thread that has just received a task message and will execute what it claims."""
        return LocalContinuation(self.leases, time.monotonic() + self.fast_path.continue_locally_for.total_seconds())

    def _execute_attempt(
        self,
        attempt: Attempt,
        claimed: Continuation | None,
        continuation: LocalContinuation | None,
        prepared: ReceivedClaim | None,
    ) -> TaskEnd:
        claim = claimed.claim if claimed is not None else self._defer_claim(attempt, prepared)
        claim = claim or self._claim_with_retries(attempt)
        if claim is None:
            if claimed is None:
                return TaskEnd(TaskState.SUCCEEDED, NOT_CLAIMED)
            self._report_cancelled(attempt)
            return TaskEnd(TaskState.CANCELLED, outcomes.CANCELLED)
        self.leases.start_renewing(attempt, claim.conversation_id)
        OWNER.set(str(claim.tenant_id))
        structlog.contextvars.bind_contextvars(
            run_id=str(claim.run_id), activation_id=str(claim.id), node=claim.node_id, attempt=claim.attempt
        )
        reservation = None
        if continuation is not None and self.fast_path.continues_locally:
            reservation = Continuation(continuation, self.worker_name, claim.run_id)
        cached_run = claimed.cached_run if claimed is not None else None
        if prepared is not None and self.fast_path.cache_run_state:
            cached_run = prepared.cached_run()
        return AttemptRunner(self, attempt, claim, reservation, cached_run).run()

    def _defer_claim(self, attempt: Attempt, prepared: ReceivedClaim | None) -> Claim | None:
        """Return the claim that a message carries, to be written later; None if the activation is claimed first.

        Only the claim of a node that computes and reaches nothing outside may be deferred.
        """
        if prepared is None or not self.may_defer_claim(prepared):
            return None
        attempt.deferral = Deferral(self.worker_name, time.monotonic())
        return prepared.claim(attempt.lease_id, attempt.deferral)

    def may_defer_claim(self, prepared: ReceivedClaim) -> bool:
        """Whether an attempt may begin before its claim is written."""
        component = registry.find(prepared.component)
        return self.fast_path.defer_claims and component is not None and component.only_computes

    def _report_cancelled(self, attempt: Attempt) -> None:
        """Report an activation as cancelled that was claimed by a commit without an answer, and cancelled since."""
        stopped = Failed(outcomes.CANCELLED, "cancelled")
        payload = ReportPayload(
            outcome_codec.encode_outcome(stopped, error=stopped.error, restarts_text=False, has_written=False),
            {},
            [],
            [],
        )
        with self.coordinator.database.transaction() as tx:
            was_held = reports.report(tx, attempt.run_id, attempt.activation_id, attempt.lease_id, payload).count()
        if was_held:
            self.coordinator.advance_run(attempt.run_id)

    def _claim_with_retries(self, attempt: Attempt) -> Claim | None:
        """Claim an activation. Waits for a database that is away for a moment, because the message would be lost."""
        for pause in CLAIM_PAUSES:
            try:
                return self.claims.claim(attempt, self._claim, self._claim_batch)
            except SQLAlchemyError as error:
                if not is_outage(error) or self.leases.is_closed:
                    raise
            time.sleep(pause)
        return self.claims.claim(attempt, self._claim, self._claim_batch)

    def _claim_batch(self, attempts: Sequence[Attempt]) -> Mapping[LeaseId, Claim]:
        """Claim several activations in one statement; return the claims by lease id, {} if the database fails."""
        tasks = [(attempt.run_id, attempt.activation_id, attempt.lease_id) for attempt in attempts]
        try:
            with self.coordinator.database.statements() as tx:
                return activations.claim_batch(
                    tx,
                    tasks,
                    lease=self.leases.lease,
                    worker=self.worker_name,
                    max_crash_count=ISOLATE_AFTER_CRASHES - 1,
                )
        except SQLAlchemyError:
            return {}  # each claim is made alone then, and fails alone

    def _claim(self, attempt: Attempt) -> Claim | None:
        """Claim one activation; None if it is not ready, or was set aside as a suspected poison task."""
        task = attempt.run_id, attempt.activation_id
        with self.coordinator.database.statements() as tx:
            take = partial(
                activations.claim,
                tx,
                *task,
                lease_id=attempt.lease_id,
                lease=self.leases.lease,
                worker=self.worker_name,
            )
            claim = take(max_crash_count=ISOLATE_AFTER_CRASHES - 1)
            if claim is None and activations.is_ready(tx, *task) and self.poison_slot.acquire(attempt):
                claim = take()
            return claim
