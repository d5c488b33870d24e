"""Stops runs: cancels and fails them, winds them down, and ends those that no decision can end.

All functions work on a run that the transaction has locked.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from canvas.budget import EXCEEDED
from canvas.events.run_events import CANCELLED_TEXT, RUN_FAILED, WORKFLOW_FINISHED, Event
from canvas.graph.canvas import Canvas
from canvas.routing import decide
from canvas.routing.decision import Decision
from canvas.state.run_state import RunFailure, RunState, RunStatus
from scheduler.coordinator.decision_writer import DecisionWriter
from scheduler.messaging.notifications import Notifications
from store.agents.versions import VersionGone
from store.db.transaction import Transaction
from store.runs import activations, run_rows
from store.runs.activations import Claim
from store.runs.run_rows import RunRow

log = structlog.get_logger()

UNSTORABLE_REPORT = "unstorable_report"
"""Code of a run that failed because one of its nodes could not report."""

NO_LEVEL = -1
"""Level of a failure that is not a node's: nothing of the run is carried out before the run ends."""


@dataclass(frozen=True, slots=True)
class RunStopper:
    """Stops locked runs. One per process."""

    writer: DecisionWriter

    def cancel(self, tx: Transaction, row: RunRow) -> Notifications:
        """Cancel a run that is not over: close what has not begun, and request the cancel of running attempts."""
        run_rows.mark_cancelled(tx, row.id)
        cancelled = row.with_cancel_requested()

        def stop(state: RunState) -> Decision:
            if state.status is RunStatus.QUEUED:
                state.status = RunStatus.CANCELLED
                finished = Event(WORKFLOW_FINISHED, {"outputs": CANCELLED_TEXT})
                return Decision(state, events=[finished], error=CANCELLED_TEXT)
            state.status = RunStatus.STOPPING
            return Decision(state)

        return self._stop(tx, cancelled, stop)

    def fail(self, tx: Transaction, row: RunRow, reason: str, code: str) -> Notifications:
        """Fail a run that has begun, for a reason that is not a node's. A run out of time also stops its attempts."""

        def stop(state: RunState) -> Decision:
            state.status = RunStatus.STOPPING
            state.failure = RunFailure(NO_LEVEL, "", "", reason, code)
            return Decision(state)

        return self._stop(tx, row, stop)

    def _stop(self, tx: Transaction, row: RunRow, stop: Callable[[RunState], Decision]) -> Notifications:
        try:
            canvas = self.writer.versions.canvas(tx, row.version_id)
        except VersionGone as gone:
            return self.end_without_version(tx, row, gone)
        state = run_rows.state_of(tx, row, [], whole=True)
        stopping = stop(state)
        notifications = self.writer.write(tx, row, stopping)
        if state.status.is_over:
            return notifications
        return notifications.followed_by(self.wind_down(tx, row.after(stopping), canvas, state))

    def wind_down(self, tx: Transaction, row: RunRow, canvas: Canvas, state: RunState) -> Notifications:
        """Close what need not run, stop attempts that must stop at once, and end the run if nothing is running."""
        failing = state.failure
        run_rows.close(tx, row, after_level=_last_level(row, failing), everything=False)
        is_out_of_time = failing is not None and failing.level == NO_LEVEL and failing.code == EXCEEDED
        must_stop = row.is_cancel_requested or is_out_of_time
        cancel_requested = must_stop and run_rows.request_cancel(tx, row.id)
        before = (state.in_flight, state.queued)
        state.in_flight, state.queued = run_rows.count_open(tx, row.id)
        decision = decide.finish_stopping(canvas, state, state.in_flight + state.queued)
        cancel = Notifications(row.id, cancel_requested=cancel_requested)
        if not decision.is_over and before == (state.in_flight, state.queued):
            return cancel
        notifications = self.writer.write(tx, row, decision)
        if decision.is_over:
            run_rows.close(tx, row.after(decision), after_level=None, everything=True)
        return notifications.followed_by(cancel)

    # -- runs that no decision can end --------------------------------------------------------------------------
    def cancel_by_force(self, tx: Transaction, row: RunRow, problem: Exception) -> Notifications:
        """End a cancelled run whose stored facts contradict each other. Reports of running attempts are refused."""
        log.error("cancelled_by_force", run_id=str(row.id), error=_first_line(problem))
        run_rows.mark_cancelled(tx, row.id)
        return self._end_undecided(tx, row.with_cancel_requested())

    def fail_by_force(self, claim: Claim, reason: str, problem: Exception) -> bool:
        """Fail the run of an attempt of which neither the outputs nor a failure can be stored, in a transaction.

        Another attempt, or the sweeper, would meet the same error. Returns False if the attempt's lease is gone.
        """

        def end(tx: Transaction) -> Notifications | None:
            row = run_rows.lock(tx, claim.run_id)
            has_lease = activations.is_held(tx, claim)
            if row is None or row.status.is_over or not has_lease:
                return None
            return self._end_undecided(tx, row, RunFailure(NO_LEVEL, "", claim.node_id, reason, UNSTORABLE_REPORT))

        log.error("failed_by_force", run_id=str(claim.run_id), error=_first_line(problem))
        notifications = self.writer.database.run_with_retry(end)
        if notifications is None:
            return False
        self.writer.dispatch.publish(notifications)
        return True

    def end_without_version(self, tx: Transaction, row: RunRow, gone: VersionGone) -> Notifications:
        """End a run whose version is gone: as cancelled if that was requested, else as failed."""
        log.error("ended_without_version", run_id=str(row.id), version_id=str(row.version_id))
        failure = None if row.is_cancel_requested else RunFailure(NO_LEVEL, "", "", gone.message, gone.code)
        return self._end_undecided(tx, row, failure)

    def _end_undecided(self, tx: Transaction, row: RunRow, failure: RunFailure | None = None) -> Notifications:
        """Close everything that is stored of a run; without a failure it ends as cancelled."""
        was_running = run_rows.close_all(tx, row)
        if failure is None:
            status, error = RunStatus.CANCELLED, CANCELLED_TEXT
            last = Event(WORKFLOW_FINISHED, {"outputs": CANCELLED_TEXT})
        else:
            status, error = RunStatus.FAILED, failure.error
            last = Event(RUN_FAILED, {"error": error, "code": failure.code}, node_id=failure.node_id or None)
        state = RunState(row.id, status, row.revision, row.last_event, row.is_cancel_requested)
        closed = {row.open_stream: 1} if row.open_stream is not None else {}  # before the last event
        notifications = self.writer.write(tx, row, Decision(state, events=[last], closed_streams=closed, error=error))
        return notifications.followed_by(Notifications(row.id, cancel_requested=was_running))


def _last_level(row: RunRow, failing: RunFailure | None) -> int | None:
    """Return the last level whose activations are still carried out; None: no further activation begins."""
    return None if row.is_cancel_requested or failing is None else failing.level


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
