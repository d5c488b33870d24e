"""The main loop of Easel: lock a run, read its unapplied reports, decide, write, publish.

The scheduler's task `advance` does this, and so does a worker in the transaction of its report (inline advance,
docs/decisions/0008). Every holder of a run's lock re-checks after its commit, so no report is overlooked;
docs/protocol.md#no-report-is-overlooked has the proof.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import attrgetter
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from canvas.graph.canvas import Canvas
from canvas.ids import RunId
from canvas.outcome import Finished, Routed
from canvas.routing import decide
from canvas.state.run_state import Report, RunStatus
from providers.address_policy import NO_PRIVATE_HOSTS, Guard
from scheduler.coordinator import run_snapshots, run_start
from scheduler.coordinator.decision_writer import Advance, DecisionWriter, continuations_of
from scheduler.coordinator.form_answers import OutcomeResolutions
from scheduler.coordinator.run_snapshots import RunSnapshot
from scheduler.coordinator.stopping import RunStopper
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.notifications import Notifications
from store.agents.versions import VersionGone
from store.db.database import Database
from store.db.db_errors import is_outage
from store.db.transaction import Transaction
from store.files.large_values import LargeValues, ReadFirst
from store.primitives import outcome_codec
from store.runs import reports as report_rows
from store.runs import run_rows, scopes, values
from store.runs.decisions import DecisionInput
from store.runs.new_activations import InlineReport
from store.runs.run_rows import RunRow

MAX_ADVANCES = 8
ADVANCE_TIME_BUDGET = 0.05  # seconds; then a task message is sent, so that one caller is not busy for ever


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Advances runs. One per process."""

    database: Database
    dispatch: Dispatch
    versions: VersionCache
    form_expiry: timedelta = timedelta(days=30)
    max_running: int = 256
    max_activations: int = 100_000
    callback_guard: Guard = NO_PRIVATE_HOSTS  # the addresses that callbacks may have
    writer: DecisionWriter = field(init=False)
    stopper: RunStopper = field(init=False)

    def __post_init__(self) -> None:
        writer = DecisionWriter(self.database, self.dispatch, self.versions, self.form_expiry)
        object.__setattr__(self, "writer", writer)
        object.__setattr__(self, "stopper", RunStopper(writer))

    # -- the main loop ------------------------------------------------------------------------------------------
    def advance_run(self, run_id: RunId) -> None:
        """Bring a run to its next checkpoint. Safe to call too often, twice at once, or without need."""
        started = time.monotonic()
        for _ in range(MAX_ADVANCES):
            advance = self._advance_once(run_id)
            if advance is None:  # locked: one advance per run at a time, and the lock holder re-checks
                return
            self.dispatch.publish(advance.notifications)  # after the commit: nothing may act on what rolls back
            if not advance.has_unapplied_reports():  # the re-check: a report stored meanwhile is not overlooked
                return
            if time.monotonic() - started > ADVANCE_TIME_BUDGET:
                break
        self.dispatch.advance(run_id)

    def publish(self, advance: Advance) -> bool:
        """Publish an advance after its commit, re-check, and advance again if need be; return whether that happened."""
        self.dispatch.publish(advance.notifications)
        if not advance.has_unapplied_reports():
            return False
        self.advance_run(advance.run_id)
        return True

    def recheck(self, run_id: RunId) -> None:
        """Re-check: apply reports that were stored while the caller had the run locked."""
        with self.database.statements() as tx:
            has_unapplied = report_rows.has_unapplied_reports(tx, run_id)
        if has_unapplied:
            self.advance_run(run_id)

    def _advance_once(self, run_id: RunId) -> Advance | None:
        """Advance a run in a transaction of its own; return None if it is locked."""
        return self.database.run_with_large_values(lambda large: self._advance_or_cancel(run_id, large))

    def _advance_or_cancel(self, run_id: RunId, large: LargeValues) -> Advance | None:
        """Advance a run. If its stored facts contradict each other and its cancel is requested, end it by force."""
        try:
            with self.database.transaction() as tx:
                tx.large = large
                snapshot = run_snapshots.try_lock(tx, run_id)
                return self.apply_reports(tx, snapshot) if snapshot is not None else None
        except ReadFirst:
            raise
        except Exception as error:  # whatever a bug of ours raises, a cancelled run must come to its end
            if not is_invariant_violation(error):
                raise
            with self.database.transaction() as tx:
                row = run_rows.try_lock(tx, run_id)()
                if row is None or not row.is_cancel_requested or row.status.is_over:
                    raise
                return Advance(self.stopper.cancel_by_force(tx, row, error))

    # -- one advance --------------------------------------------------------------------------------------------
    def apply_reports(
        self, tx: Transaction, snapshot: RunSnapshot, inline: Sequence[InlineReport] = ()
    ) -> Advance | None:
        """Apply a run's unapplied reports, and those that are stored with this advance (`inline`).

        Returns None if there are inline reports and the run takes no reports. The caller commits, then publishes.
        """
        if inline and not snapshot.row.status.accepts_reports:
            return None
        started = time.monotonic()
        advance = self.decide_and_write(tx, snapshot, inline)
        if not advance.continuations.is_alone:
            recheck = tx.query_after_commit(report_rows.HAS_UNAPPLIED, of_run=snapshot.row.id)
            advance = replace(advance, recheck=recheck)
        self.dispatch.counters.advance(time.monotonic() - started)
        return advance

    def decide_and_write(self, tx: Transaction, snapshot: RunSnapshot, inline: Sequence[InlineReport] = ()) -> Advance:
        """Decide what follows from a run's reports, and write it."""
        row = snapshot.row
        if row.status.is_over:
            return Advance(Notifications(row.id))
        if row.status is RunStatus.QUEUED:
            return Advance(self.start_queued_run(tx, row))
        reports = _sorted_reports(snapshot.reports(), inline)
        if not reports and row.status is not RunStatus.STOPPING:
            return Advance(Notifications(row.id))
        try:
            canvas = self.versions.canvas(tx, row.version_id)
        except VersionGone as gone:
            if inline:
                raise  # the reports are first stored without an advance
            return Advance(self.stopper.end_without_version(tx, row, gone))
        state = run_rows.state_of(tx, row, reports, whole=canvas.needs_stream_order, known=snapshot.scopes)
        if not reports:
            return Advance(self.stopper.wind_down(tx, row, canvas, state))
        decision = decide.decide(canvas, state, reports)
        usage = _total_usage(row.usage, (report.usage for report in reports))
        decision_input = DecisionInput(
            usage,
            inline,
            is_locked=snapshot.is_locked,
            parent=reports[0].activation,
            has_all_scopes=canvas.needs_stream_order,
        )
        applied, notifications = self.writer.write_with(tx, row, decision, decision_input)
        if state.status is RunStatus.STOPPING:
            after = row.after(decision)._replace(usage=usage)
            notifications = notifications.followed_by(self.stopper.wind_down(tx, after, canvas, state))
        return Advance(notifications, continuations_of(applied))

    # -- lifecycle operations on a locked run -------------------------------------------------------------------
    def start_queued_run(
        self, tx: Transaction, row: RunRow, conversation: Mapping[str, Any] | None = None
    ) -> Notifications:
        """Start a queued run if its conversation is free. End it if its conversation or version was deleted.

        `conversation`: its row, if the caller has locked it.
        """
        queued = row if row.request is not None else run_rows.reload(tx, row.id)
        try:
            ready = run_start.occupy_conversation(tx, queued, self.versions, conversation)
        except run_start.ConversationDeleted:
            return self.stopper.cancel(tx, queued)
        except VersionGone as gone:
            return self.stopper.end_without_version(tx, queued, gone)
        if ready is None:
            return Notifications(row.id)
        return self._begin(tx, *ready)

    def _begin(self, tx: Transaction, row: RunRow, canvas: Canvas) -> Notifications:
        """Write the first decision of a run."""
        assert row.request is not None, "the whole row was read"
        state = run_rows.state_of(tx, row, [], whole=False, known=scopes.NO_SCOPES)
        state.status = RunStatus.RUNNING
        state.max_running = self.max_running
        state.max_activations = self.max_activations
        return self.writer.write(tx, row, decide.begin(canvas, state, row.request.get("inputs")))

    def resume(
        self, tx: Transaction, row: RunRow, answers: Any, resolutions: OutcomeResolutions | None = None
    ) -> Notifications:
        """Resume a waiting run with a person's answers to its forms (None: they stay open) and to unknown outcomes.

        What the person states to have happened is a report like any other, and is applied at once.
        """
        stated = resolutions or OutcomeResolutions()
        canvas = self.versions.canvas(tx, row.version_id)
        state = run_rows.state_of(tx, row, [], whole=True)
        node_ids = {activation: form.node_id for activation, form in state.forms.items()}
        decision = decide.resume(
            canvas, state, answered=answers is not None, again=stated.again, happened=stated.happened.keys()
        )
        notifications = self.writer.write(tx, row, decision, answers)
        for activation, outputs in stated.happened.items():
            outcome = Routed(to=()) if canvas.node(node_ids[activation]).is_router else Finished()
            column = outcome_codec.encode_outcome(outcome, error=None, restarts_text=False, has_written=False, used={})
            report_rows.overwrite_outcome(tx, row.id, activation, column)
            values.put_outputs(tx, row.id, activation, {**outputs, **_instant_outputs()})
        if not stated.happened:
            return notifications
        snapshot = run_snapshots.of_locked_row(tx, run_rows.reload(tx, row.id))
        return notifications.followed_by(self.decide_and_write(tx, snapshot).notifications)

    def show_forms_again(self, tx: Transaction, row: RunRow) -> Notifications:
        """Show the open forms of a waiting run once more."""
        canvas = self.versions.canvas(tx, row.version_id)
        state = run_rows.state_of(tx, row, [], whole=True)
        return self.writer.write(tx, row, decide.show_forms_again(canvas, state))


def is_invariant_violation(error: Exception) -> bool:
    """Whether an advance failed by what is stored, and not because the database was away."""
    return not (isinstance(error, SQLAlchemyError) and is_outage(error))


def _sorted_reports(stored: Sequence[Report], inline: Sequence[InlineReport]) -> Sequence[Report]:
    """Return stored and inline reports together, by activation id."""
    if not inline:
        return stored
    of_inline = (report_rows.report_from_claim(report.claim, report.payload) for report in inline)
    return sorted([*stored, *of_inline], key=attrgetter("activation"))


def _total_usage(before: Mapping[str, int], usages: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = dict(before)
    for usage in usages:
        for name, count in usage.items():
            total[name] = total.get(name, 0) + count
    return total


def _instant_outputs() -> dict[str, float]:
    """Return the outputs that every attempt has, for an outcome that a person states."""
    return {"_created_time": time.time(), "_elapsed_time": 0.0}
