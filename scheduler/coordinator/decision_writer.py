"""Writes decisions: the rows, and what other processes and the reporting thread get after the commit."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from canvas.ids import ActivationId, RunId
from canvas.routing.decision import Decision
from canvas.state.run_state import RunStatus
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging import external_cancel_keys
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.notifications import Notifications, RunEnd
from store.agents import conversation_runs
from store.db.database import Database
from store.db.transaction import AfterCommitQuery, Transaction
from store.runs import decisions
from store.runs.decisions import AppliedDecision, DecisionInput
from store.runs.new_activations import PendingClaim
from store.runs.prepared_claims import CachedRun
from store.runs.run_rows import RunRow


@dataclass(frozen=True, slots=True)
class Continuations:
    """What reporting threads execute next, without a task message."""

    claims: Mapping[ActivationId, PendingClaim]  # by the id of the activation that the thread has reported
    cached_run: CachedRun | None  # for the next advance
    is_alone: bool  # whether what was made ready is all that is ready or running, so that no other report can arrive
    rewrites_outputs: bool  # whether outputs were written beside those of the reports

    def claim_after(self, activation_id: ActivationId) -> PendingClaim | None:
        """Return the claim of the thread that has reported an activation; None if it has none."""
        return self.claims.get(activation_id)


NO_CONTINUATIONS = Continuations({}, None, is_alone=False, rewrites_outputs=False)


def continuations_of(applied: AppliedDecision) -> Continuations:
    """Return what a decision leaves to the reporting threads."""
    return Continuations(applied.claims, applied.cached_run, applied.is_alone, applied.rewrites_outputs)


@dataclass(frozen=True, slots=True)
class Advance:
    """The result of an advance: what to do after its commit."""

    notifications: Notifications
    continuations: Continuations = NO_CONTINUATIONS
    recheck: AfterCommitQuery | None = None
    """Looks for unapplied reports right after the commit. None: no other report can have arrived."""

    @property
    def run_id(self) -> RunId:
        """The run that was advanced."""
        return self.notifications.run_id

    def has_unapplied_reports(self) -> bool:
        """Whether a report was stored that this advance did not see. Call it after the commit."""
        return self.recheck is not None and self.recheck.scalar() is not None


@dataclass(frozen=True, slots=True)
class DecisionWriter:
    """Writes decisions of locked runs. One per process."""

    database: Database
    dispatch: Dispatch
    versions: VersionCache
    form_expiry: timedelta

    def write(self, tx: Transaction, row: RunRow, decision: Decision, answers: Any = None) -> Notifications:
        """Write a decision that no report led to."""
        _, notifications = self.write_with(tx, row, decision, DecisionInput(row.usage, answers=answers))
        return notifications

    def write_with(
        self, tx: Transaction, row: RunRow, decision: Decision, decision_input: DecisionInput
    ) -> tuple[AppliedDecision, Notifications]:
        """Write a decision with the reports that led to it; at the end of the run also pass its conversation on."""
        applied = decisions.apply(tx, row, decision, decision_input, self.form_expiry)
        notifications = Notifications(
            row.id,
            applied.task_messages,
            applied.promoted,
            applied.events,
            applied.status,
            end=self._end(tx, row, decision) if applied.status.is_over else None,
        )
        return applied, notifications

    def _end(self, tx: Transaction, row: RunRow, decision: Decision) -> RunEnd:
        last = decision.run.last_node
        answer = (last[1], last[2]) if decision.run.status is RunStatus.SUCCEEDED and last is not None else None
        next_run = conversation_runs.finish_run(tx, row, last=answer, error=decision.error)
        delete_keys = None
        if external_cancel_keys.may_have_external_ids(row):
            delete_keys = external_cancel_keys.ExternalIdsOfRun(tx, row, self.database, self.dispatch.bus).delete_keys
        return RunEnd(row.conversation_id, next_run, delete_keys)
