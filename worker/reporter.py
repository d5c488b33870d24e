"""How an attempt reports: what it stores, and the run's next step, which rides along.

A report is stored whole or not at all, under the attempt's lease. It is repeated while the database is away; outputs
that no row can hold become a failure of the node, so that they harm nobody else.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from canvas import budget
from canvas.errors import ExecutorError, NodeFailure
from canvas.events.run_warnings import LONGEST, MODEL_ERRORS, WARNINGS, warnings_in
from canvas.graph.canvas import NodeKind
from canvas.outcome import POSTPONED, ContainerExited, Failed, Finished, Outcome
from canvas.state.run_state import ScopeKey, container_entry
from components.context import THINK_END, THINK_START
from providers.models.types.chat import Usage
from scheduler.coordinator.coordinator import Coordinator
from store.db.database import LONGEST_TRANSACTION
from store.db.transaction import Transaction
from store.primitives import outcome_codec
from store.primitives.db_errors import is_outage, took_too_long
from store.runs import activations, decisions, reports, run_rows
from store.runs.activations import Claim
from store.runs.decisions import AppliedDecision, CachedRun
from store.runs.new_activations import InlineReport
from store.runs.reports import ReportPayload
from worker.caches import outputs as output_cache
from worker.context import outcomes
from worker.context.node_context import WorkerContext
from worker.context.output_limits import OutputLimits
from worker.fastpath.continuation import ContinuationReservation
from worker.fastpath.report_batcher import BatchLease, PendingReport, ReportBatcher

log = structlog.get_logger()

LARGE = 4 * 2**20  # characters of a report; it is given time by its size, and may be what keeps the database busy
SLOWEST = 2**20  # characters that a busy database surely stores in a second; measured with nothing else: 16 to 30 times
MOST_FAILURES = 3  # of a large report by itself, while the database answers others
LONGEST_WAIT = 1.0  # seconds between two tries while the database is away
OF_THE_ATTEMPT = ("_ERROR", "_created_time", "_elapsed_time", "_spoken")
"""Outputs that do not stay from an earlier visit of the node."""


class AdvanceFailed(Exception):
    """A fold that rode along with a report has failed, and has taken the report with it."""


class LeaseLost(Exception):
    """A report that nobody waits for any more: nothing of it may stay."""


@dataclass
class Reporter:
    """One attempt's way back into the rows."""

    coordinator: Coordinator
    claim: Claim
    rides_along: bool
    gives_up: Callable[[], bool]  # whether the process has ended its renewals, so that waiting has no sense
    allowance: OutputLimits = field(default_factory=OutputLimits)
    started: float = field(default_factory=time.monotonic)
    near: frozenset[str] | None = frozenset({""})  # keys of the scopes that the next step reads; None: all
    taking: ContinuationReservation | None = (
        None  # of what the next step makes ready; None: all of it goes through the queue
    )
    joint: ReportBatcher = field(default_factory=ReportBatcher)
    left: CachedRun | None = None  # the run as this thread's last step has left it
    _weight: int = 0  # characters of what is to be stored so far

    def report(self, outcome: Outcome, context: WorkerContext | None, assigned: Mapping[str, Any]) -> None:
        """Report until the report is stored or refused."""
        try:
            self._report(outcome, context, assigned)
        finally:
            if self.taking is not None:
                self.taking.drop()

    def _report(self, outcome: Outcome, context: WorkerContext | None, assigned: Mapping[str, Any]) -> None:
        written, is_whole = self._written_or_failure(outcome, context, assigned)
        rides_along, failures_of_its_own = self.rides_along, 0
        for wait in _longer_and_longer():
            try:
                self._store(written, rides_along=rides_along)
                return
            except AdvanceFailed as failed:
                if failed.__cause__ is not None and is_outage(failed.__cause__):
                    log.warning("report_retried", error=_first_line(failed.__cause__))
                else:
                    log.error("advance_failed", run_id=str(self.claim.run_id), error=_first_line(failed.__cause__))
                rides_along = False
                failures_of_its_own += self._is_its_own_fault(failed.__cause__, written)
            except (SQLAlchemyError, ValueError) as error:  # ValueError: a text that UTF-8 does not know
                if is_outage(error):
                    if self.gives_up():
                        break
                    failures_of_its_own += self._is_its_own_fault(error, written)
                    log.warning("report_retried", error=_first_line(error))
                    time.sleep(wait)
                elif is_whole:
                    written, is_whole = self._unstorable(error, context), False
                else:
                    self._end_run(error)
                    return
            if failures_of_its_own >= MOST_FAILURES and is_whole:
                written, is_whole = self._unstorable(_too_much(written), context), False
        log.error("report_not_stored", activation_id=str(self.claim.id))

    def _end_run(self, problem: Exception) -> None:
        """Fail the run, since not even a failure of this attempt can be stored; the next attempt would meet the same.

        Waits for a database that is away, as a report does.
        """
        reason = f'Node "{self.claim.node_id}": neither its outputs nor a failure can be stored.'
        for wait in _longer_and_longer():
            try:
                if not self.coordinator.fail_by_force(self.claim, reason, problem):
                    log.info("report_refused", activation_id=str(self.claim.id))
                return
            except SQLAlchemyError as error:
                if not is_outage(error) or self.gives_up():
                    raise
                log.warning("report_retried", error=_first_line(error))
                time.sleep(wait)

    def _is_its_own_fault(self, error: BaseException | None, written: ReportPayload) -> bool:
        """Whether a large report has failed for its size: in time, or with its connection, while others are served."""
        if error is None or not written.size or not is_outage(error):
            return False
        if took_too_long(error):
            return True
        if not (isinstance(error, DBAPIError) and error.connection_invalidated):
            return False
        try:
            self.coordinator.database.ping()
        except SQLAlchemyError:
            return False
        return True

    def _store(self, written: ReportPayload, *, rides_along: bool) -> None:
        """Store the report; take the run's next step in the same transaction if nobody holds the run.

        Raises FoldFailed, and nothing is stored, if that step fails: the report then goes alone, and the step is the
        scheduler's.
        """
        if not rides_along:
            self._store_alone(written, rides_along=False)
            return
        part = PendingReport(self._own(written), self.near)
        with self.joint.turn(part) as turn:
            if len(turn.batch) > 1:
                self._store_all(turn)
            if not part.is_stored:
                if self.taking is not None:
                    self.taking.may_be_stored = part.may_be_stored
                self._store_alone(written, turn, rides_along=True)
        if part.is_stored:
            self._count(written)

    def _store_all(self, turn: BatchLease) -> None:
        """Store what waits for the same run; if anything of it cannot be stored, each is to find out for itself."""
        owns = sorted((part.own for part in turn.batch), key=lambda own: own.claim.id)
        nears = [part.near for part in turn.batch]
        near = None if None in nears else frozenset[str]().union(*(keys for keys in nears if keys is not None))
        coordinator, run_id = self.coordinator, self.claim.run_id
        try:
            with coordinator.database.transaction() as tx:
                _give_time(tx, *(own.written for own in owns))
                applied = coordinator.try_fold(tx, run_id, near, owns, waits=True)
                if applied is None:
                    stored = [reports.report(tx, run_id, own.claim.id, own.claim.lease_id, own.written) for own in owns]
                    if not all(each.count() for each in stored):
                        raise LeaseLost
        except Exception as error:  # noqa: BLE001 (each is repeated alone, and meets whatever it is again)
            log.info("reports_not_stored_together", reports=len(owns), error_type=type(error).__name__)
            for part in turn.batch:
                part.may_be_stored = True
            turn.call_others()
            return
        turn.end()
        for part in turn.batch:
            part.is_stored = True
            if applied is not None and part.own.taker is not None:
                find = applied.taken.get(part.own.claim.id)
                part.own.taker.keep(find() if find is not None else None)
        turn.call_others()
        if applied is None:
            coordinator.advance_run(run_id)
        else:
            coordinator.follow(applied)

    def _store_alone(
        self, written: ReportPayload, turn: BatchLease | None = None, *, rides_along: bool, waits: bool = True
    ) -> None:
        coordinator, claim = self.coordinator, self.claim
        applied, is_folding = None, False
        try:
            with coordinator.database.transaction() as tx:
                _give_time(tx, written)
                if rides_along:
                    is_folding = True
                    left, self.left = self.left, None
                    own = self._own(written)
                    applied = coordinator.try_fold(tx, claim.run_id, self.near, [own], left, waits=waits)
                    is_folding = applied is not None
                if applied is None and not reports.report(tx, claim.run_id, claim.id, claim.lease_id, written).count():
                    raise LeaseLost
        except Exception as error:
            if decisions.is_stale_cache(error) or (run_rows.is_lock_timeout(error) and waits):
                if self.taking is not None:
                    self.taking.drop_unless_stored()
                self._store_alone(written, turn, rides_along=rides_along, waits=not run_rows.is_lock_timeout(error))
                return
            if (
                isinstance(error, LeaseLost)
                or reports.is_lease_lost(error)
                or (is_folding and self._is_too_late(error))
            ):
                if not self._was_stored():
                    log.info("report_refused", activation_id=str(claim.id))
                    return
                applied = None
                if self.taking is not None:
                    self.taking.keep_unseen(self._taken_under)
            elif is_folding:
                raise AdvanceFailed from error
            else:
                raise
        if turn is not None:
            turn.end()
        self._count(written)
        if not rides_along:
            coordinator.dispatch.advance(claim.run_id)
        elif applied is None:  # somebody held the run: once more, now that the report is visible
            coordinator.advance_run(claim.run_id)
        else:
            self._go_on(applied, written)

    def _count(self, written: ReportPayload) -> None:
        """Count a report that is stored, for the operator's metrics and log."""
        counters, claim = self.coordinator.dispatch.counters, self.claim
        counters.activation(claim.component, str(written.outcome.get("is")))
        if written.usage.get(MODEL_ERRORS, 0) > claim.told_usage.get(MODEL_ERRORS, 0):
            log.warning(
                "model_error_as_answer", node_id=claim.node_id, error=str(written.outcome.get("told"))[:LONGEST]
            )
            counters.model_error(claim.component)

    def _own(self, written: ReportPayload) -> InlineReport:
        return InlineReport(self.claim, written, self.taking.taker if self.taking is not None else None)

    def _go_on(self, applied: AppliedDecision, written: ReportPayload) -> None:
        """After the commit of our step."""
        find = applied.taken.get(self.claim.id)
        taken = find() if find is not None else None
        if self.taking is not None and taken is not None:
            self.taking.keep(taken)
            if not applied.rewrites:
                output_cache.put_written(taken, self.claim, written.values)
        if not self.coordinator.follow(applied) and self.taking is not None:
            self.taking.remember(applied.left)

    def _was_stored(self) -> bool:
        with self.coordinator.database.statements() as tx:
            return reports.was_stored(tx, self.claim.run_id, self.claim.id, self.claim.lease_id)

    def _is_too_late(self, error: Exception) -> bool:
        """Whether a step could make no sense of a report whose lease is gone: the run has gone on without it."""
        return not is_outage(error) and self._taken_under(self.claim.lease_id) is None

    def _taken_under(self, lease_id: UUID) -> UUID | None:
        with self.coordinator.database.statements() as tx:
            return activations.find_by_lease(tx, self.claim.run_id, lease_id)

    # -- what is stored -----------------------------------------------------------------------------------------
    def _written_or_failure(
        self, outcome: Outcome, context: WorkerContext | None, assigned: Mapping[str, Any]
    ) -> tuple[ReportPayload, bool]:
        try:
            return self._written(outcome, context, assigned), True
        except Exception as error:  # noqa: BLE001 (outputs may raise anything when they are looked at)
            return self._unstorable(error, context), False

    def _unstorable(self, error: Exception, context: WorkerContext | None) -> ReportPayload:
        """A failure in place of what no row can hold; of the attempt only its times and what it cost."""
        log.warning("output_not_stored", error_type=type(error).__name__)
        told = str(error) if isinstance(error, ExecutorError) else "An output cannot be stored."
        outcome = Failed(outcomes.sanitize_json(told), "unstorable_output")
        usage, used = self._used(context)
        self._weight = 0
        return ReportPayload(
            outcome=outcome_codec.encode_outcome(outcome, error=outcome.error, retake=False, spoke=False, used=used),
            usage=usage,
            values=[self._values_row(self.claim.node_id, self.claim.scope, self._of_the_attempt(outcome), {})],
            variables=[],
        )

    def _written(self, outcome: Outcome, context: WorkerContext | None, assigned: Mapping[str, Any]) -> ReportPayload:
        claim = self.claim
        large = self.coordinator.database.large
        usage, used = self._used(context)
        if isinstance(outcome, Failed) and outcome.leaves_nothing:  # another attempt, or a fold, will leave values
            may_tell = outcome.is_unknown or outcome.is_over_budget or outcome.code == POSTPONED
            spoke = may_tell and context is not None and context.voice.has_spoken
            column = outcome_codec.encode_outcome(outcome, error=None, retake=False, spoke=spoke, used=used)
            return ReportPayload(column, usage, [], [])
        outputs: dict[str, Any] = {}
        if context is not None:
            kept = context.slots.outputs(claim.node_id)
            outputs |= {name: value for name, value in kept.items() if name not in OF_THE_ATTEMPT}
        outputs |= {**outcome.outputs, **self._of_the_attempt(outcome)}
        turn, inputs = None, {}
        if context is not None:
            outputs |= _spoken(context, outputs)
            turn, inputs = context.voice.row(is_whole=not isinstance(outcome, Failed)), context.inputs
        values = [self._values_row(claim.node_id, claim.scope, outputs, inputs)]
        if isinstance(outcome, ContainerExited) and outcome.container and claim.scope:
            values.append(self._values_row(claim.scope[-1][0], claim.scope[:-1], outcome.container, {}))
        column = outcome_codec.encode_outcome(
            outcome,
            error=outputs.get("_ERROR"),
            retake=context is not None and context.voice.retake and context.voice.is_message,
            spoke=context is not None and context.voice.has_spoken,
            warnings=context.warnings if context is not None else (),
        )
        counted = self._counted(outcome, context, column)
        if used is not None:
            column["used"] = _sum(used, counted)
        outcome_column = self._held(column)
        assigned_rows = [{**self._row(), "name": name, "value": self._held(value)} for name, value in assigned.items()]
        stored = [large.values_row(claim.tenant_id, row) for row in values]
        variables = [large.variable_row(claim.tenant_id, row) for row in assigned_rows]
        size = self._size_of(stored, variables) if self._weight > LARGE else 0
        return ReportPayload(outcome_column, _sum(usage, counted), stored, variables, turn, size=size)

    def _size_of(self, values: Sequence[Mapping[str, Any]], variables: Sequence[Mapping[str, Any]]) -> int:
        """Characters that go into rows, if they are many: what lies in files takes the database no time."""
        held = [row[name] for row in values for name in ("outputs", "inputs")]
        size = 0
        for value in [*held, *(row["value"] for row in variables)]:
            size = self.allowance.check_output(value, size)
        return size if size > LARGE else 0

    def _used(self, context: WorkerContext | None) -> tuple[dict[str, int], dict[str, int] | None]:
        """Return what all attempts so far have used, and what of it this one adds to the run (None: all of it).

        What an attempt only recalls, an earlier one may have told already.
        """
        usage = _usage(context.usage) if context is not None else {}
        told = self.claim.told_usage
        if not told:
            return usage, None
        recalled = _usage(context.recalled) if context is not None else {}
        fresh = {name: count - min(recalled.get(name, 0), told.get(name, 0)) for name, count in usage.items()}
        return _sum(told, fresh), fresh

    def _counted(self, outcome: Outcome, context: WorkerContext | None, column: Mapping[str, Any]) -> dict[str, int]:
        """What the run counts of a step beside its usage: warnings, and the error of a model that was its answer."""
        error = column.get("told") if isinstance(outcome, Finished) else None
        is_of_a_model = error is not None and context is not None and context.node.kind is NodeKind.MODEL
        counts = {WARNINGS: len(warnings_in(column)), MODEL_ERRORS: int(is_of_a_model)}
        return {name: count for name, count in counts.items() if count}

    def _of_the_attempt(self, outcome: Outcome) -> dict[str, Any]:
        """Outputs that every attempt has."""
        own: dict[str, Any] = {"_created_time": time.time(), "_elapsed_time": time.monotonic() - self.started}
        return {**own, "_ERROR": outcome.error} if isinstance(outcome, Failed) else own

    def _values_row(
        self, node_id: str, scope: ScopeKey, outputs: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        shown = self._held(outputs)
        return {
            **self._row(),
            "node_id": node_id,
            "pass_of": container_entry(scope),
            "item": scope[-1][2] if scope else 0,
            "outputs": shown,
            "inputs": self._held(inputs),
            "names": list(shown),
        }

    def _held(self, value: Any) -> Any:
        """A value as a row holds it. Raises NodeFailure for what no row can hold, or what would harm others."""
        plain = outcomes.sanitize_json(value)
        self._weight = self.allowance.check_output(plain, self._weight)
        return plain

    def _row(self) -> dict[str, Any]:
        return {
            "run_id": self.claim.run_id,
            "activation_id": self.claim.id,
            "place": self.claim.place.key,
            "region": self.claim.place.region,
        }


def _time_for(size: int) -> timedelta:
    return LONGEST_TRANSACTION + timedelta(seconds=size / SLOWEST)


def _give_time(tx: Transaction, *written: ReportPayload) -> None:
    """Let the transaction of large reports take as long as they need."""
    size = sum(each.size for each in written)
    if size:
        tx.may_take(_time_for(size))


def _too_much(written: ReportPayload) -> NodeFailure:
    return NodeFailure(
        f"The node's values ({written.size} characters) take the database longer than "
        f"{_time_for(written.size).total_seconds():.0f} s, or end its connection. "
        "Make them smaller, or keep large values in files (EASEL_LARGE_VALUES=files)."
    )


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _usage(usage: Usage) -> dict[str, int]:
    if not usage.calls:
        return {}
    further = {"cached_tokens": usage.cached_tokens, budget.UNPRICED: usage.unpriced_calls}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "calls": usage.calls,
        **{name: count for name, count in further.items() if count},
        **{f"{budget.COST}{currency}": amount for currency, amount in usage.costs.items()},
        **{f"{budget.OF}{name}": count for name, count in usage.kinds.items()},
    }


def _spoken(context: WorkerContext, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """What listeners heard of a speaking model node, where that is not its content (an error after some text)."""
    if not context.voice.has_spoken or context.voice.is_message:
        return {}
    heard = "".join(context.voice.said)[len(context.opening) :]
    heard = heard.replace(THINK_START, "<think>").replace(THINK_END, "</think>")
    return {"_spoken": heard} if heard != outputs.get("content") else {}


def _longer_and_longer() -> Iterator[float]:
    """Seconds to wait after each try, without end."""
    wait = 0.05
    while True:
        yield wait
        wait = min(LONGEST_WAIT, 2 * wait)


def _first_line(error: BaseException | None) -> str:
    return str(error).partition("\n")[0]
