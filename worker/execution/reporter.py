"""Reports an attempt: stores its report and, in the same transaction, advances the run.

A report is stored whole or not at all, under the attempt's lease. It is tried again while the database is away.
`worker/execution/report_content.py` builds what is stored.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

import structlog
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from canvas.errors import NodeFailure
from canvas.ids import ActivationId, LeaseId
from canvas.outcome import Outcome
from canvas.run_warnings import MAX_WARNING_LENGTH, MODEL_ERRORS
from scheduler.coordinator import run_snapshots
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.decision_writer import Advance
from scheduler.coordinator.run_snapshots import RunSnapshot
from store.db.database import MAX_TRANSACTION_TIME
from store.db.db_errors import is_outage, is_time_limit_error
from store.db.transaction import PendingResult, Transaction
from store.runs import activations, decisions, reports, run_rows
from store.runs.activations import Claim
from store.runs.new_activations import InlineReport, TaskMessage
from store.runs.prepared_claims import CachedRun
from store.runs.reports import ReportPayload
from store.runs.values import ReadView
from worker.caches.outputs import OutputCache, read_view_of
from worker.context.node_context import WorkerContext
from worker.context.output_limits import OutputLimits
from worker.execution.report_content import ReportBuilder
from worker.fastpath.continuation import Continuation
from worker.fastpath.report_batcher import PendingReport, ReportBatch, ReportBatcher

log = structlog.get_logger()

MIN_STORE_RATE = 2**20
"""Characters that even a busy database stores in a second. Measured on an idle machine: 16 to 30 times as many."""
MAX_SIZE_FAILURES = 3  # tries of a large report that fail by its size while the database serves others
MAX_RETRY_WAIT = 1.0  # seconds between two tries while the database is away


class AdvanceFailed(Exception):
    """The advance in a report's transaction failed, so the report was not stored either. The cause is its error."""


class AttemptLeaseLost(Exception):
    """The attempt's lease is gone. Nothing of its report may be stored."""


class StoreMode(StrEnum):
    """How a report is stored, and how the transaction gets the run for its advance."""

    CACHED = "cached"  # advance from the cached run; the server refuses that if the run changed or is locked
    LOCK = "lock"  # advance under the run's lock, and wait for the lock for a moment
    TRY_LOCK = "try_lock"  # advance if the run's lock is free, else store the report alone
    REPORT_ONLY = "report_only"  # store the report alone


class StoreResult(StrEnum):
    """What became of one try to store a report."""

    STORED = "stored"
    ALREADY_STORED = "already_stored"  # by an earlier try whose commit was not answered
    LEASE_LOST = "lease_lost"  # nothing is stored, and nothing will be
    CACHE_STALE = "cache_stale"  # nothing is stored: the cached run is not the run as it is, or the run is locked
    RUN_BUSY = "run_busy"  # nothing is stored: the run was locked for longer than the try waited


NEXT_MODE = {StoreResult.CACHE_STALE: StoreMode.LOCK, StoreResult.RUN_BUSY: StoreMode.TRY_LOCK}
"""How a report is tried again after a result that stored nothing."""


@dataclass
class Reporter:
    """Stores the report of one attempt."""

    coordinator: Coordinator
    claim: Claim
    inline_advance: bool  # whether the report's transaction advances the run; else the scheduler does
    is_closed: Callable[[], bool]  # whether the process has stopped renewing leases, so that waiting has no use
    limits: OutputLimits = field(default_factory=OutputLimits)
    scope_keys: frozenset[str] | None = frozenset({""})  # of the scopes that the advance reads; None: all
    continuation: Continuation | None = None  # None: everything that becomes ready goes through the queue
    batcher: ReportBatcher = field(default_factory=ReportBatcher)
    cached_run: CachedRun | None = None  # the run as this thread's last advance wrote it
    outputs: OutputCache = field(default_factory=OutputCache)  # of the worker
    is_refused: bool = False  # whether nothing was stored, because the lease is gone
    advance_seconds: float | None = None  # how long the transaction with report and advance took; None: no advance
    _builder: ReportBuilder = field(init=False)

    def __post_init__(self) -> None:
        self._builder = ReportBuilder(self.claim, self.coordinator.database, self.limits)

    def report(self, outcome: Outcome, context: WorkerContext | None, assigned: Mapping[str, Any]) -> None:
        """Store the report of an outcome. Returns when the report is stored, or its lease is gone."""
        try:
            self._report(outcome, context, assigned)
        finally:
            if self.continuation is not None:
                self.continuation.release_reservation()

    def _report(self, outcome: Outcome, context: WorkerContext | None, assigned: Mapping[str, Any]) -> None:
        payload, is_whole = self._builder.build_or_fail(outcome, context, assigned)
        inline_advance, size_failures = self.inline_advance, 0
        for wait in _backoff():
            try:
                self._store(payload, inline_advance=inline_advance)
                return
            except AdvanceFailed as failed:
                if failed.__cause__ is not None and is_outage(failed.__cause__):
                    log.warning("report_retried", error=_first_line(failed.__cause__))
                else:
                    log.error("advance_failed", run_id=str(self.claim.run_id), error=_first_line(failed.__cause__))
                inline_advance = False  # the scheduler repeats the advance, and gets its error
                size_failures += self._failed_by_size(failed.__cause__, payload)
            except (SQLAlchemyError, ValueError) as error:  # ValueError: a text that cannot be encoded as UTF-8
                if is_outage(error):
                    if self.is_closed():
                        break
                    size_failures += self._failed_by_size(error, payload)
                    log.warning("report_retried", error=_first_line(error))
                    time.sleep(wait)
                elif payload.calls is not None:  # they may be the reason, and no node fails because of them
                    log.warning("model_calls_not_stored", error=_first_line(error))
                    payload = replace(payload, calls=None)
                elif is_whole:
                    payload, is_whole = self._builder.build_failure(error, context), False
                else:
                    self._fail_run(error)
                    return
            if size_failures >= MAX_SIZE_FAILURES and is_whole:
                payload, is_whole = self._builder.build_failure(_too_large(payload), context), False
        log.error("report_not_stored", activation_id=str(self.claim.id))

    def _fail_run(self, problem: Exception) -> None:
        """Fail the run, because not even a failure of this attempt can be stored: another attempt would meet the same.

        Waits while the database is away, as a report does.
        """
        reason = f'Node "{self.claim.node_id}": neither its outputs nor a failure can be stored.'
        for wait in _backoff():
            try:
                if not self.coordinator.stopper.fail_by_force(self.claim, reason, problem):
                    log.info("report_refused", activation_id=str(self.claim.id))
                return
            except SQLAlchemyError as error:
                if not is_outage(error) or self.is_closed():
                    raise
                log.warning("report_retried", error=_first_line(error))
                time.sleep(wait)

    def _failed_by_size(self, error: BaseException | None, payload: ReportPayload) -> bool:
        """Whether a large report failed by its size: it timed out or lost its connection while others are served."""
        if error is None or not payload.size or not is_outage(error):
            return False
        if is_time_limit_error(error):
            return True
        if not (isinstance(error, DBAPIError) and error.connection_invalidated):
            return False
        try:
            self.coordinator.database.ping()
        except SQLAlchemyError:
            return False
        return True

    # -- alone or in a batch ------------------------------------------------------------------------------------
    def _store(self, payload: ReportPayload, *, inline_advance: bool) -> None:
        """Store the report, alone or in a batch with others of its run, and advance the run.

        Raises AdvanceFailed if the advance failed; nothing is stored then.
        """
        if not inline_advance:
            self._store_single(payload, StoreMode.REPORT_ONLY)
            return
        pending = PendingReport(self._inline_report(payload), self.scope_keys, self.continuation)
        with self.batcher.join(pending) as batch:
            if len(batch.reports) > 1:
                self._store_batch(batch)
            if not pending.is_stored:
                if self.continuation is not None:
                    self.continuation.may_be_stored = pending.may_be_stored
                self._store_single(payload, self._first_mode(), batch)
        if pending.is_stored:
            self._count(payload)

    def _first_mode(self) -> StoreMode:
        return StoreMode.CACHED if self.cached_run is not None else StoreMode.LOCK

    def _store_batch(self, batch: ReportBatch) -> None:
        """Store all reports of a batch in one transaction. If that fails, each reporter stores its own."""
        inline = sorted((pending.report for pending in batch.reports), key=lambda report: report.claim.id)
        coordinator, run_id = self.coordinator, self.claim.run_id
        try:
            with coordinator.database.transaction() as tx:
                _extend_time_limit(tx, *(report.payload for report in inline))
                snapshot = self._lock_run(tx, _scope_keys_of(batch))
                advance = coordinator.apply_reports(tx, snapshot, inline) if snapshot is not None else None
                if advance is None:
                    stored = [_report(tx, report.claim, report.payload) for report in inline]
                    reports.write_calls(tx, run_id, (report.payload for report in inline))
                    if not all(each.count() for each in stored):
                        raise AttemptLeaseLost
        except Exception as error:  # noqa: BLE001 (each reporter stores its own, and meets whatever it is again)
            log.info("reports_not_stored_together", reports=len(inline), error_type=type(error).__name__)
            for pending in batch.reports:
                pending.may_be_stored = True
            batch.wake_others()
            return
        batch.end()
        for pending in batch.reports:
            pending.is_stored = True
            if advance is not None and pending.continuation is not None:
                claim = advance.continuations.claim_after(pending.report.claim.id)
                pending.continuation.confirm(claim.result() if claim is not None else None)
        batch.wake_others()
        if advance is None:
            coordinator.advance_run(run_id)  # the second try: the reports are visible now
        else:
            coordinator.publish(advance)

    # -- one report ---------------------------------------------------------------------------------------------
    def _store_single(self, payload: ReportPayload, mode: StoreMode, batch: ReportBatch | None = None) -> None:
        """Store the report, in other modes if need be, and do what follows from its commit.

        `batch` ends with the commit, so that the next reporter of this process need not wait for the rest.
        """
        began = time.monotonic()
        result, advance = self._try_store(payload, mode)
        while result in NEXT_MODE:
            if self.continuation is not None:
                self.continuation.release_unless_stored()
            mode = NEXT_MODE[result]
            result, advance = self._try_store(payload, mode)
        if result is StoreResult.LEASE_LOST:
            log.info("report_refused", activation_id=str(self.claim.id))
            self.is_refused = True
            if mode is not StoreMode.REPORT_ONLY:  # the run was locked meanwhile, as by any lock holder
                self.coordinator.recheck(self.claim.run_id)
            return
        if result is StoreResult.ALREADY_STORED and self.continuation is not None:
            self.continuation.confirm_by_lease(self._find_activation)
        if batch is not None:
            batch.end()
        self._count(payload)
        if mode is StoreMode.REPORT_ONLY:
            self.coordinator.dispatch.advance(self.claim.run_id)
        elif advance is None:
            self.coordinator.advance_run(self.claim.run_id)  # the second try: the report is visible now
        else:
            self.advance_seconds = time.monotonic() - began
            self._continue(advance, payload)

    def _try_store(self, payload: ReportPayload, mode: StoreMode) -> tuple[StoreResult, Advance | None]:
        """Store the report in one transaction; return what became of it, and the advance if there was one.

        Raises AdvanceFailed if the advance failed, and errors of the database.
        """
        coordinator, claim = self.coordinator, self.claim
        advance, is_advancing = None, False
        try:
            with coordinator.database.transaction() as tx:
                _extend_time_limit(tx, payload)
                if mode is not StoreMode.REPORT_ONLY:
                    is_advancing = True
                    advance = self._advance(tx, payload, mode)
                    is_advancing = advance is not None
                if advance is None:
                    stored = _report(tx, claim, payload)
                    reports.write_calls(tx, claim.run_id, [payload])
                    if not stored.count():
                        raise AttemptLeaseLost
        except Exception as error:
            if decisions.is_stale_cache(error):
                return StoreResult.CACHE_STALE, None
            if mode is StoreMode.LOCK and run_rows.is_lock_timeout(error):
                return StoreResult.RUN_BUSY, None
            if self._is_lease_lost(error, is_advancing=is_advancing):
                return (StoreResult.ALREADY_STORED if self._was_stored() else StoreResult.LEASE_LOST), None
            if is_advancing:
                raise AdvanceFailed from error
            raise
        return StoreResult.STORED, advance

    def _advance(self, tx: Transaction, payload: ReportPayload, mode: StoreMode) -> Advance | None:
        """Advance the run with this report; return None if the run cannot be locked, or takes no reports."""
        snapshot = self._snapshot(tx, mode)
        return self.coordinator.apply_reports(tx, snapshot, [self._inline_report(payload)]) if snapshot else None

    def _snapshot(self, tx: Transaction, mode: StoreMode) -> RunSnapshot | None:
        cached_run, self.cached_run = self.cached_run, None  # of use once only
        if mode is StoreMode.CACHED:
            assert cached_run is not None  # `_first_mode` chooses this mode only while there is one
            return run_snapshots.from_cache(cached_run)
        if mode is StoreMode.LOCK:
            return self._lock_run(tx, self.scope_keys)
        return run_snapshots.try_lock(tx, self.claim.run_id, self.scope_keys)

    def _lock_run(self, tx: Transaction, scope_keys: frozenset[str] | None) -> RunSnapshot | None:
        """Lock the run, and wait for the lock only if another transaction has it."""
        run_id = self.claim.run_id
        return run_snapshots.try_lock(tx, run_id, scope_keys) or run_snapshots.lock_with_timeout(tx, run_id, scope_keys)

    def _inline_report(self, payload: ReportPayload) -> InlineReport:
        return InlineReport(self.claim, payload, self.continuation.request if self.continuation is not None else None)

    def _is_lease_lost(self, error: Exception, *, is_advancing: bool) -> bool:
        """Whether a try failed because the lease is gone.

        An advance may fail in any way then: the run went on without this report, which makes no sense to it any more.
        """
        if isinstance(error, AttemptLeaseLost) or reports.is_lease_lost(error):
            return True
        return is_advancing and not is_outage(error) and not self._is_held()

    def _is_held(self) -> bool:
        with self.coordinator.database.statements() as tx:
            return activations.is_held(tx, self.claim)

    def _was_stored(self) -> bool:
        with self.coordinator.database.statements() as tx:
            return reports.was_stored(tx, self.claim.run_id, self.claim.id, self.claim.lease_id)

    def _find_activation(self, lease_id: LeaseId) -> ActivationId | None:
        """Return the activation of the run that is running under a lease."""
        with self.coordinator.database.statements() as tx:
            return activations.find_by_lease(tx, self.claim.run_id, lease_id)

    # -- after the commit ---------------------------------------------------------------------------------------
    def _continue(self, advance: Advance, payload: ReportPayload) -> None:
        """Keep what this thread executes next, publish the advance, and re-check."""
        continuations = advance.continuations
        pending = continuations.claim_after(self.claim.id)
        claim = pending.result() if pending is not None else None
        view = _view_of_next(claim, advance.notifications.task_messages)
        if view is not None and not continuations.rewrites_outputs:
            self.outputs.put_written(view, self.claim, payload.values)
        if self.continuation is not None and claim is not None:
            self.continuation.confirm(claim)
        has_advanced_again = self.coordinator.publish(advance)
        if self.continuation is not None and not has_advanced_again:
            self.continuation.cached_run = continuations.cached_run

    def _count(self, payload: ReportPayload) -> None:
        """Count a stored report in the operator's metrics and log."""
        counters, claim = self.coordinator.dispatch.counters, self.claim
        counters.activation(claim.component, str(payload.outcome.get("is")))
        if payload.usage.get(MODEL_ERRORS, 0) > claim.reported_usage.get(MODEL_ERRORS, 0):
            log.warning(
                "model_error_as_answer",
                node_id=claim.node_id,
                error=str(payload.outcome.get("told"))[:MAX_WARNING_LENGTH],
            )
            counters.model_error(claim.component)


def _report(tx: Transaction, claim: Claim, payload: ReportPayload) -> PendingResult:
    return reports.report(tx, claim.run_id, claim.id, claim.lease_id, payload, claim.deferral)


def _view_of_next(continued: Claim | None, messages: Sequence[TaskMessage]) -> ReadView | None:
    """Return what the next activation sees of its run: the one that the thread continues with, else the first sent."""
    if continued is not None:
        return read_view_of(continued)
    prepared = messages[0].prepared if messages else None
    return ReadView(prepared.run.id, prepared.order_key, prepared.read_limits) if prepared is not None else None


def _scope_keys_of(batch: ReportBatch) -> frozenset[str] | None:
    """Return the scopes that the advance of a batch reads; None: all."""
    keys = [pending.scope_keys for pending in batch.reports]
    return None if None in keys else frozenset[str]().union(*(some for some in keys if some is not None))


def _time_limit(size: int) -> timedelta:
    return MAX_TRANSACTION_TIME + timedelta(seconds=size / MIN_STORE_RATE)


def _extend_time_limit(tx: Transaction, *payloads: ReportPayload) -> None:
    """Let the transaction of large reports take as long as their size needs."""
    size = sum(payload.size for payload in payloads)
    if size:
        tx.extend_time_limit(_time_limit(size))


def _too_large(payload: ReportPayload) -> NodeFailure:
    return NodeFailure(
        f"The node's values ({payload.size} characters) take the database longer than "
        f"{_time_limit(payload.size).total_seconds():.0f} s, or end its connection. "
        "Make them smaller, or keep large values in files (EASEL_LARGE_VALUES=files)."
    )


def _backoff() -> Iterator[float]:
    """Yield seconds to wait after each try, without end: doubled from 0.05 up to MAX_RETRY_WAIT."""
    wait = 0.05
    while True:
        yield wait
        wait = min(MAX_RETRY_WAIT, 2 * wait)


def _first_line(error: BaseException | None) -> str:
    return str(error).partition("\n")[0]
