"""advance_run: lock, load, decide, save, send. THE MAIN LOOP.

A fold takes a run's unseen reports into its state, in one transaction under the run's lock. The scheduler's task folds,
and so does a worker that has just reported (decisions.md 3). Everyone who held a run looks again after the commit, so
no report is overlooked; protocol.md has the proof.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.budget import EXCEEDED
from canvas.events.run_events import CANCELLED_TEXT, RUN_FAILED, WORKFLOW_FINISHED, Event
from canvas.graph.canvas import Canvas
from canvas.outcome import Finished, Routed
from canvas.routing import decide
from canvas.routing.decision import Decision
from canvas.state.run_state import Report, RunFailure, RunState, RunStatus
from scheduler.coordinator import run_start
from scheduler.coordinator.form_answers import OutcomeResolutions
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging import external_cancel_keys
from scheduler.messaging.dispatch import Dispatch
from store.agents import conversation_runs
from store.agents.versions import VersionGone
from store.db.database import Database
from store.db.transaction import Transaction
from store.files.large_values import LargeValues, ReadFirst
from store.primitives import outcome_codec
from store.primitives.db_errors import is_outage
from store.runs import activations, decisions, run_rows, scopes, values
from store.runs import reports as report_rows
from store.runs.activations import Claim
from store.runs.decisions import AppliedDecision, CachedRun
from store.runs.new_activations import InlineReport

log = structlog.get_logger()

MAX_ADVANCES = 8
LOCK_WAIT = timedelta(milliseconds=50)  # that a report waits for a run; a step takes some milliseconds
ADVANCE_TIME_BUDGET = 0.05  # seconds; then a hint goes on, so that one caller is not kept for ever


UNSTORABLE_REPORT = "unstorable_report"
"""Code of a run that failed since one of its nodes could not report."""

TOP = frozenset({""})
"""The scope outside of all containers."""


@dataclass(frozen=True, slots=True)
class PrefetchedRun:
    """A try for a run, and what a fold reads of it, on their way together: its row, its reports, some scopes."""

    row: Callable[[], Mapping[str, Any] | None]
    reports: Callable[[], list[Report]]
    scopes: scopes.PrefetchedScopes
    is_taken: bool = True  # else the run is as a step has left it, as far as this process knows


@dataclass(frozen=True, slots=True)
class Coordinator:
    """What every fold needs. One per process."""

    database: Database
    dispatch: Dispatch
    versions: VersionCache
    form_expiry: timedelta = timedelta(days=30)
    max_running: int = 256
    max_activations: int = 100_000

    def advance_run(self, run_id: UUID) -> None:
        """Carry a run to its next checkpoint. Safe to call too often, twice at once, or for nothing."""
        started = time.monotonic()
        for _ in range(MAX_ADVANCES):
            applied = self._try_step(run_id)
            if applied is None:
                return  # somebody holds the run, and will look
            self.dispatch.flush(applied)
            if not self.sees_more(applied):
                return
            if time.monotonic() - started > ADVANCE_TIME_BUDGET:
                break
        self.dispatch.advance(run_id)

    def _try_step(self, run_id: UUID) -> AppliedDecision | None:
        """Fold in a transaction of its own; None if somebody holds the run."""
        return self.database.reading_ahead(lambda large: self._step(run_id, large))

    def _step(self, run_id: UUID, large: LargeValues) -> AppliedDecision | None:
        try:
            with self.database.transaction() as tx:
                tx.large = large
                return self.try_fold(tx, run_id)
        except ReadFirst:
            raise
        except Exception as error:  # whatever a bug of ours raises must not keep a cancelled run from its end
            if not is_invariant_violation(error):
                raise
            with self.database.transaction() as tx:
                row = run_rows.try_lock(tx, run_id)()
                if row is None or row["asked"] != "cancel" or RunStatus(row["status"]).is_over:
                    raise
                return self.end_by_force(tx, row, error)

    def look(self, run_id: UUID) -> None:
        """What everyone does who held a run: take in what was reported meanwhile."""
        with self.database.statements() as tx:
            sees_more = report_rows.has_unapplied_reports(tx, run_id)
        if sees_more:
            self.advance_run(run_id)

    def follow(self, applied: AppliedDecision) -> bool:
        """After the commit of a fold: send what it has decided, and look. Whether the run may have moved on by that."""
        self.dispatch.flush(applied)
        if not self.sees_more(applied):
            return False
        self.advance_run(applied.run_id)
        return True

    def sees_more(self, applied: AppliedDecision) -> bool:
        """Whether something was reported that no fold had seen when this one was committed."""
        return applied.reported is not None and applied.reported.scalar() is not None

    def ask(self, tx: Transaction, run_id: UUID, near: frozenset[str] | None = TOP) -> PrefetchedRun:
        """Try to take a run and ask for what a fold reads, in one go; `near`: keys of the scopes, None for all."""
        row = run_rows.try_lock(tx, run_id)
        return PrefetchedRun(row, report_rows.unapplied_reports(tx, run_id), scopes.prefetch(tx, run_id, near))

    def _await(self, tx: Transaction, run_id: UUID, near: frozenset[str] | None) -> PrefetchedRun:
        row = run_rows.lock_with_timeout(tx, run_id, LOCK_WAIT)
        return PrefetchedRun(row, report_rows.unapplied_reports(tx, run_id), scopes.prefetch(tx, run_id, near))

    def try_fold(
        self,
        tx: Transaction,
        run_id: UUID,
        near: frozenset[str] | None = TOP,
        owns: Sequence[InlineReport] = (),
        left: CachedRun | None = None,
        *,
        waits: bool = False,
    ) -> AppliedDecision | None:
        """Fold if nobody holds the run; None if somebody does (or there is no such run).

        `near`: keys of the scopes that a fold will probably read, None for all. `owns`: reports that are not stored
        yet; they are stored with the step that takes them in. None then also for a run that takes no reports.
        `left`: the run as a step of the caller's has left it; nothing is read then, and if somebody holds the run or
        has held it since, the transaction fails (`decisions.is_stale_cache`). What others have reported is for the next
        step.
        `waits`: somebody who holds the run is waited for, for a moment, if this transaction holds nothing yet; in vain,
        the transaction fails (`run_rows.is_lock_timeout`).
        """
        asked = self.ask(tx, run_id, near) if left is None else _as_left(left)
        row = asked.row()
        if row is None and waits:
            asked = self._await(tx, run_id, near)
            row = asked.row()
        if row is None or (owns and not RunStatus(row["status"]).takes_reports):
            return None
        started = time.monotonic()
        applied = self.fold(tx, row, asked, owns)
        if not applied.is_last_at_work:
            applied.reported = tx.behind_commit(report_rows.HAS_REPORTED, of_run=run_id)
        self.dispatch.counters.advance(time.monotonic() - started)
        return applied

    def fold(
        self,
        tx: Transaction,
        row: Mapping[str, Any],
        ahead: PrefetchedRun | None = None,
        owns: Sequence[InlineReport] = (),
    ) -> AppliedDecision:
        """Take a locked run's unseen reports into its state. What was asked for ahead is not asked for again."""
        nothing = AppliedDecision(row["id"])
        status = RunStatus(row["status"])
        if status.is_over:
            return nothing
        if status is RunStatus.QUEUED:
            return self.set_going(tx, row)
        reports = (ahead.reports if ahead is not None else report_rows.unapplied_reports(tx, row["id"]))()
        if owns:
            told = (report_rows.report_from_claim(own.claim, own.written) for own in owns)
            reports = sorted([*reports, *told], key=attrgetter("activation"))
        if not reports and status is not RunStatus.STOPPING:
            return nothing
        try:
            canvas = self.versions.canvas(tx, row["version_id"])
        except VersionGone as gone:
            if owns:
                raise  # the reports are stored alone first
            return self.end_without_version(tx, row, gone)
        known = ahead.scopes if ahead is not None else None
        state = run_rows.state_of(tx, row, reports, whole=canvas.orders_speech, known=known)
        if not reports:
            return self._wind_down(tx, row, canvas, state)
        decision = decide.decide(canvas, state, reports)
        usage = _total(row["usage"], (report.usage for report in reports))
        is_taken = ahead is None or ahead.is_taken
        applied = self._apply(tx, row, decision, usage=usage, owns=owns, is_taken=is_taken)
        if applied.left is not None and canvas.orders_speech:  # then every scope is known
            applied.left = replace(applied.left, scopes=replace(applied.left.scopes, keys=None))
        if state.status is RunStatus.STOPPING:
            applied.merge(self._wind_down(tx, {**row_after(row, decision), "usage": usage}, canvas, state))
        return applied

    def cancel(self, tx: Transaction, row: Mapping[str, Any]) -> AppliedDecision:
        """Stop a locked run that is not over: what has not begun is closed, what runs is called off."""
        run_rows.mark_cancelled(tx, row["id"])
        asked = {**row, "asked": "cancel"}
        try:
            canvas = self.versions.canvas(tx, row["version_id"])
        except VersionGone as gone:
            return self.end_without_version(tx, asked, gone)
        state = run_rows.state_of(tx, asked, [], whole=True)
        if state.status is RunStatus.QUEUED:
            state.status = RunStatus.CANCELLED
            told = Event(WORKFLOW_FINISHED, {"outputs": CANCELLED_TEXT})
            return self._apply(tx, asked, Decision(state, events=[told], error=CANCELLED_TEXT))
        state.status = RunStatus.STOPPING
        stopping = Decision(state)
        applied = self._apply(tx, asked, stopping)
        applied.merge(self._wind_down(tx, row_after(asked, stopping), canvas, state))
        return applied

    def end_by_force(self, tx: Transaction, row: Mapping[str, Any], problem: Exception) -> AppliedDecision:
        """End a locked run that was cancelled and that no decision can end, since what is stored contradicts itself.

        What of it is at work is called off, and its reports are refused.
        """
        log.error("cancelled_by_force", run_id=str(row["id"]), error=str(problem).partition("\n")[0])
        run_rows.mark_cancelled(tx, row["id"])
        return self._end_undecided(tx, {**row, "asked": "cancel"})

    def fail_by_force(self, claim: Claim, reason: str, problem: Exception) -> bool:
        """End the run of an attempt of which neither the outputs nor a failure can be stored.

        Carried out again, the node would meet the same, and its sweeper too. False if the attempt's lease is gone.
        """

        def end(tx: Transaction) -> AppliedDecision | None:
            row = run_rows.lock(tx, claim.run_id)
            is_held = activations.find_by_lease(tx, claim.run_id, claim.lease_id) is not None
            if row is None or RunStatus(row["status"]).is_over or not is_held:
                return None
            return self._end_undecided(tx, row, RunFailure(-1, "", claim.node_id, reason, UNSTORABLE_REPORT))

        log.error("failed_by_force", run_id=str(claim.run_id), error=str(problem).partition("\n")[0])
        applied = self.database.carry_out(end)
        if applied is None:
            return False
        self.dispatch.flush(applied)
        return True

    def end_without_version(self, tx: Transaction, row: Mapping[str, Any], gone: VersionGone) -> AppliedDecision:
        """End a locked run whose version is gone, so that nothing can be decided: as failed, or as cancelled if asked.

        What of it is at work is called off, and its reports are refused.
        """
        log.error("ended_without_version", run_id=str(row["id"]), version_id=str(row["version_id"]))
        failing = None if row["asked"] == "cancel" else RunFailure(-1, "", "", gone.message, gone.code)
        return self._end_undecided(tx, row, failing)

    def _end_undecided(
        self, tx: Transaction, row: Mapping[str, Any], failing: RunFailure | None = None
    ) -> AppliedDecision:
        """Close everything of a run, whatever is stored of it; without a failure it ends as cancelled."""
        status = RunStatus.CANCELLED if failing is None else RunStatus.FAILED
        state = RunState(row["id"], status, row["revision"], row["last_event"], row["asked"])
        was_at_work = run_rows.close_all(tx, row)
        told = (
            Event(WORKFLOW_FINISHED, {"outputs": CANCELLED_TEXT})
            if failing is None
            else Event(RUN_FAILED, {"error": failing.error, "code": failing.code}, node_id=failing.node_id or None)
        )
        error = CANCELLED_TEXT if failing is None else failing.error
        closed = {row["turn"]: 1} if row["turn"] is not None else {}  # what was being said ends before that event
        applied = self._apply(tx, row, Decision(state, events=[told], closed=closed, error=error))
        applied.calls_off = was_at_work
        return applied

    def fail(self, tx: Transaction, row: Mapping[str, Any], reason: str, code: str) -> AppliedDecision:
        """End a locked run that has begun, for a reason that is no node's; what runs out of time is called off."""
        try:
            canvas = self.versions.canvas(tx, row["version_id"])
        except VersionGone as gone:
            return self.end_without_version(tx, row, gone)
        state = run_rows.state_of(tx, row, [], whole=True)
        state.status = RunStatus.STOPPING
        state.failing = RunFailure(-1, "", "", reason, code)
        stopping = Decision(state)
        applied = self._apply(tx, row, stopping)
        applied.merge(self._wind_down(tx, row_after(row, stopping), canvas, state))
        return applied

    def resume(
        self, tx: Transaction, row: Mapping[str, Any], answers: Any, verdicts: OutcomeResolutions | None = None
    ) -> AppliedDecision:
        """A locked run that waits goes on with a person's answers (None: its forms stay open) and verdicts.

        What the person knows to have happened is a report like any other, and is folded at once.
        """
        told = verdicts or OutcomeResolutions()
        canvas = self.versions.canvas(tx, row["version_id"])
        state = run_rows.state_of(tx, row, [], whole=True)
        asked = {activation: form.node_id for activation, form in state.forms.items()}
        decision = decide.resume(
            canvas, state, answered=answers is not None, again=told.again, happened=told.happened.keys()
        )
        applied = self._apply(tx, row, decision, answers=answers)
        for activation, outputs in told.happened.items():
            outcome = Routed(to=()) if canvas.node(asked[activation]).chooses else Finished()
            column = outcome_codec.encode_outcome(outcome, error=None, retake=False, spoke=False, used={})
            report_rows.overwrite_outcome(tx, row["id"], activation, column)
            values.put_outputs(tx, row["id"], activation, {**outputs, **_at_once()})
        fresh = run_rows.read(tx, row["tenant_id"], row["id"]) if told.happened else None
        if fresh is not None:
            applied.merge(self.fold(tx, fresh))
        return applied

    def ask_again(self, tx: Transaction, row: Mapping[str, Any]) -> AppliedDecision:
        """A locked run that waits shows its forms once more."""
        canvas = self.versions.canvas(tx, row["version_id"])
        state = run_rows.state_of(tx, row, [], whole=True)
        return self._apply(tx, row, decide.ask_again(canvas, state))

    def begin(self, tx: Transaction, row: Mapping[str, Any], inputs: Any) -> AppliedDecision:
        """The first decision of a run whose row has just been made."""
        canvas = self.versions.canvas(tx, row["version_id"])
        state = run_rows.state_of(tx, row, [], whole=False, known=scopes.NONE)
        state.status = RunStatus.RUNNING
        state.max_running = self.max_running
        state.max_activations = self.max_activations
        return self._apply(tx, row, decide.begin(canvas, state, inputs))

    def set_going(
        self, tx: Transaction, row: Mapping[str, Any], conversation: Mapping[str, Any] | None = None
    ) -> AppliedDecision:
        """A queued run starts when its conversation has been handed to it.

        It ends when that has been deleted, or its version is gone.
        """
        queued = row if "request" in row else run_rows.read(tx, row["tenant_id"], row["id"])
        assert queued is not None, "a locked run is there"
        try:
            ready = run_start.occupy_conversation(tx, queued, self.versions, conversation)
        except run_start.ConversationDeleted:
            return self.cancel(tx, queued)
        except VersionGone as gone:
            return self.end_without_version(tx, queued, gone)
        if ready is None:
            return AppliedDecision(row["id"])
        return self.begin(tx, ready, queued["request"].get("inputs"))

    def _wind_down(self, tx: Transaction, row: Mapping[str, Any], canvas: Canvas, state: RunState) -> AppliedDecision:
        """Close what need not run, call off what is to stop at once, and end the run when nothing works for it."""
        cancelled = state.asked == "cancel"
        failing = state.failing
        wave = None if cancelled or failing is None else failing.wave
        run_rows.close(tx, row, after_wave=wave, everything=False)
        is_out_of_time = failing is not None and failing.wave < 0 and failing.code == EXCEEDED
        calls_off = (cancelled or is_out_of_time) and run_rows.request_cancel(tx, row["id"])
        counted = (state.live, state.queued)
        state.live, state.queued = run_rows.count_open(tx, row["id"])
        decision = decide.finish_stopping(canvas, state, state.live + state.queued)
        if not decision.is_over and counted == (state.live, state.queued):
            return AppliedDecision(row["id"], calls_off=calls_off)
        applied = self._apply(tx, row, decision)
        applied.calls_off = calls_off
        if not decision.is_over:
            return applied
        run_rows.close(tx, row_after(row, decision), after_wave=None, everything=True)
        return applied

    def _apply(
        self,
        tx: Transaction,
        row: Mapping[str, Any],
        decision: Decision,
        *,
        usage: Mapping[str, int] | None = None,
        answers: Any = None,
        owns: Sequence[InlineReport] = (),
        is_taken: bool = True,
    ) -> AppliedDecision:
        applied = decisions.apply(
            tx,
            row,
            decision,
            usage=usage if usage is not None else row["usage"],
            form_expiry=self.form_expiry,
            answers=answers,
            owns=owns,
            is_taken=is_taken,
        )
        applied.conversation_id = row["conversation_id"]
        if applied.is_over:
            last = decision.run.last
            answered = decision.run.status is RunStatus.SUCCEEDED and last is not None
            answer = (last[1], last[2]) if answered and last is not None else None
            applied.next_run = conversation_runs.finish_run(tx, row, last=answer, error=decision.error)
            if external_cancel_keys.may_have_names(row):
                applied.forget_names = external_cancel_keys.Names(tx, row, self.database, self.dispatch.bus).forget
        return applied


def _as_left(left: CachedRun) -> PrefetchedRun:
    return PrefetchedRun(lambda: left.row, list, left.scopes, is_taken=False)


def row_after(row: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
    """A run's row as `steps.apply` has left it, for a second decision in the same transaction."""
    return {
        **row,
        "status": decision.run.status.value,
        "revision": row["revision"] + 1,
        "last_event": row["last_event"] + len(decision.events),
    }


def _at_once() -> dict[str, float]:
    """The outputs that every node has, of one that a person reports."""
    return {"_created_time": time.time(), "_elapsed_time": 0.0}


def is_invariant_violation(error: Exception) -> bool:
    """Whether a step failed by what it has found in the rows, rather than for want of a database."""
    return not (isinstance(error, SQLAlchemyError) and is_outage(error))


def _total(before: Mapping[str, int], usages: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = dict(before)
    for usage in usages:
        for name, count in usage.items():
            total[name] = total.get(name, 0) + count
    return total
