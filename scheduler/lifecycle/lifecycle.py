"""Lifecycle: the operations on runs that the API and the CLI offer: start, resume, cancel.

Each is one transaction that writes rows; task messages are sent after its commit. An accepted run is a committed row,
so it cannot be lost, whatever happens to the broker. After each operation that locked a run, even one that was refused,
the run is re-checked: a worker may have reported meanwhile and found the run locked
(docs/protocol.md#no-report-is-overlooked).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy.exc import DBAPIError, IntegrityError

from canvas.budget import EXCEEDED, SECONDS, time_budget_error
from canvas.errors import InvalidRequest, NotFound
from canvas.ids import CanvasId, RunId, SessionId, TenantId
from canvas.routing.form_expiry import expiry_error
from canvas.state.run_state import RunStatus
from scheduler.coordinator.coordinator import Coordinator, is_invariant_violation
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import (
    ON_BUSY,
    RunIsWaiting,
    RunNotWaiting,
    Start,
    Started,
    accept,
    answer_forms,
    find_first_request,
    replay_first_response,
)
from scheduler.messaging import external_cancel_keys
from scheduler.messaging.notifications import Notifications
from store.agents import conversation_runs, conversations, versions
from store.agents.versions import VersionGone
from store.db.db_errors import is_retryable
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.runs import run_rows
from store.runs.external_ids import ExternalId
from store.runs.run_rows import RunRow
from store.tables.budgets import DEFAULT_SCOPE_ID
from store.tenants import audit, budgets
from store.tenants import callbacks as callback_rows
from store.tenants.audit import Action, Actor
from store.tenants.budgets import BudgetLimits
from store.tenants.callbacks import RunCallback

T = TypeVar("T")


class RunNotFound(NotFound):
    """Raised if this tenant has no such run."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The operations that change runs. One per process."""

    coordinator: Coordinator

    def start_run(self, start: Start) -> Started:
        """Start a run, or resume the run of this conversation that waits for an answer.

        If a run of the conversation is running or stopping, `on_busy` decides: `refuse` raises Conflict, which names
        that run; `enqueue` starts the new run after all that were accepted before; `interrupt` stops these, running and
        queued, and starts the new run next. Raises NotFound for a conversation of another tenant and for a version or
        agent that was deleted meanwhile, InvalidRequest for an invalid `on_busy`.
        """
        if start.on_busy not in ON_BUSY:
            raise InvalidRequest(f'"on_busy" is {start.on_busy!r}. Use one of: {", ".join(ON_BUSY)}.')
        is_new = start.run_id is None
        start = replace(
            start, run_id=start.run_id or RunId(new_id())
        )  # so that a second try finds the run of the first
        while True:
            try:
                waiting = self._waiting_run(start)
                if waiting is not None:
                    return self.resume_run(
                        start.tenant_id,
                        waiting,
                        start.request,
                        start.idempotency,
                        external=start.external,
                        callbacks=start.callbacks,
                    )
                started, applied, superseded = self._accept_start(start, is_new=is_new)
                break
            except (RunNotWaiting, RunIsWaiting):
                continue  # another request has answered meanwhile, or the run has just begun to wait
        self.follow_start(start, started, applied, superseded)
        return started

    def follow_start(
        self, start: Start, started: Started, applied: Notifications | None, superseded: Sequence[RunId]
    ) -> None:
        """Do what follows the commit of an accepted start: send messages, and cancel the runs that it interrupts."""
        if applied is not None:
            self.coordinator.dispatch.publish(applied)
        if start.copy is not None and start.copy.reused:  # what it has taken over is reported already
            self.coordinator.recheck(started.run_id)
        for earlier in superseded:  # after a crash before this, the sweeper cancels them
            self.cancel_run(start.tenant_id, earlier)
        if superseded:
            self.coordinator.advance_run(started.run_id)

    def resume_run(
        self,
        tenant_id: TenantId,
        run_id: RunId,
        request: RunRequest,
        idempotency: tuple[str, str, bytes] | None = None,
        budget: Mapping[str, int] | None = None,
        *,
        external: ExternalId | None = None,
        by: Actor | None = None,
        callbacks: Sequence[RunCallback] = (),
    ) -> Started:
        """Resume a waiting run with answers; without any it shows its forms once more.

        budget: new limits of the run; nodes that a budget has stopped continue with them.
        external: an external id that leads to this run from now on.
        by: whom the audit log names; None: it has no row.
        callbacks: further callbacks of the run.
        Raises Conflict if the run does not wait, NotFound for a run of another tenant.
        """

        def resume(tx: Transaction) -> tuple[Started, Notifications | None]:
            row = self._lock_run(tx, tenant_id, run_id)
            started = Started(run_id, row.conversation_id, new_id(), row.last_event, resumed=True)
            first = find_first_request(tx, tenant_id, external, idempotency, started)
            if first is not None:
                return replay_first_response(tx, tenant_id, first), None
            if row.status is not RunStatus.WAITING:
                raise RunNotWaiting(f"Run {run_id} does not wait for input; it is {row.status}.", status=row.status)
            if external is not None:  # before the commit: keys that are set later count
                external_cancel_keys.delete_keys_of(tx, self.coordinator.dispatch.bus, [external.text], run_id)
            if by is not None:
                audit.record(tx, tenant_id, by, Action.RUN_RESUMED, run_id)
            try:
                return started, answer_forms(self.coordinator, tx, row, request, started, budget, callbacks)
            except VersionGone as gone:  # the answer is accepted, and the run ends with this error
                return started, self.coordinator.stopper.end_without_version(tx, row, gone)

        return self._run_locked(run_id, resume)

    def cancel_run(self, tenant_id: TenantId, run_id: RunId, *, by: Actor | None = None) -> RunStatus:
        """Cancel a run; return its status afterwards. A run that is over is unchanged, and no cancel key is set.

        The row is written first; right after the commit its attempts are requested to stop. The cancel key is for other
        programs. `by`: whom the audit log names; None: it has no row.
        """
        bus = self.coordinator.dispatch.bus

        def cancel(tx: Transaction) -> tuple[tuple[RunStatus, SessionId], Notifications | None]:
            row = self._lock_run(tx, tenant_id, run_id)
            status, conversation_id = row.status, row.conversation_id
            if status.is_over:
                return (status, conversation_id), None
            if row.is_cancel_requested:  # the request to its attempts may have been lost
                return (status, conversation_id), Notifications(run_id, cancel_requested=True)
            if by is not None:
                audit.record(tx, tenant_id, by, Action.RUN_CANCELLED, run_id)
            applied = self.coordinator.stopper.cancel(tx, row)
            return (RunStatus.CANCELLED if applied.is_over else RunStatus.STOPPING, conversation_id), applied

        def end(tx: Transaction, problem: Exception) -> tuple[tuple[RunStatus, SessionId], Notifications | None]:
            row = self._lock_run(tx, tenant_id, run_id)
            status, conversation_id = row.status, row.conversation_id
            if status.is_over:
                return (status, conversation_id), None
            if by is not None:
                audit.record(tx, tenant_id, by, Action.RUN_CANCELLED, run_id)
            return (RunStatus.CANCELLED, conversation_id), self.coordinator.stopper.cancel_by_force(tx, row, problem)

        try:
            status, stopping_in = self._run_locked(run_id, cancel)
        except RunNotFound:
            raise
        except Exception as error:  # a bug in routing must not keep a run from being cancelled
            if not is_invariant_violation(error):
                raise
            problem = error
            status, stopping_in = self._run_locked(run_id, lambda tx: end(tx, problem))
        if status is RunStatus.STOPPING:
            bus.set_cancel_key(run_id)
            if self._is_over(tenant_id, run_id):  # it ended before the key was set, so nothing else deletes the key
                bus.clear_cancel_keys(run_id, stopping_in)
        return status

    def cancel_session(self, tenant_id: TenantId, conversation_id: SessionId, *, by: Actor | None = None) -> None:
        """Cancel all open runs of a session: queued runs first, so that none of them starts. `by`: as of a cancel."""
        with self.coordinator.database.transaction() as tx:
            conversations.get(tx, tenant_id, conversation_id)
            open_runs = conversation_runs.list_open_runs(tx, conversation_id)
        for run_id in open_runs:
            self.cancel_run(tenant_id, run_id, by=by)

    def cancel_by_key(self, run_id: RunId) -> None:
        """Cancel a run that has a cancel key; if the key is its session's, cancel all runs of the session."""
        with self.coordinator.database.transaction() as tx:
            tenant_id = run_rows.tenant_of(tx, run_id)
            row = run_rows.read(tx, tenant_id, run_id) if tenant_id is not None else None
        if tenant_id is None or row is None or RunStatus(row["status"]).is_over:
            return
        if self.coordinator.dispatch.bus.is_session_cancelled(row["conversation_id"]):
            with suppress(NotFound):  # the session was deleted meanwhile; its run is not
                self.cancel_session(tenant_id, row["conversation_id"])
        self.cancel_run(tenant_id, run_id)

    def expire_form(self, run_id: RunId, reason: str) -> None:
        """Fail a waiting run whose form was not answered in time.

        `reason` is the error, unless the canvas sets the time of the form: then the error names form and time.
        """

        def expire(tx: Transaction) -> tuple[None, Notifications | None]:
            row = run_rows.lock(tx, run_id)
            if row is None or row.status is not RunStatus.WAITING:
                return None, None
            assert row.expires_at is not None, "a waiting run expires"
            if row.expires_at > datetime.now(UTC):
                return None, None  # it was answered meanwhile, and may wait again
            try:
                canvas = self.coordinator.versions.canvas(tx, row.version_id)
            except VersionGone as gone:
                return None, self.coordinator.stopper.end_without_version(tx, row, gone)
            nodes = [form[0] for form in row.state["forms"].values()]
            error = expiry_error(canvas, nodes, self.coordinator.form_expiry) or reason
            return None, self.coordinator.stopper.fail(tx, row, error, "form_expired")

        self._run_locked(run_id, expire)

    def fail_on_time_budget(self, run_id: RunId, limit_ms: int) -> None:
        """Fail a run that has used up its time budget."""

        def end(tx: Transaction) -> tuple[None, Notifications | None]:
            row = run_rows.lock(tx, run_id)
            if row is None or row.status not in (RunStatus.RUNNING, RunStatus.WAITING):
                return None, None
            return None, self.coordinator.stopper.fail(tx, row, time_budget_error(limit_ms), EXCEEDED)

        self._run_locked(run_id, end)

    def set_budget(self, tenant_id: TenantId, written: BudgetLimits, *, by: Actor | None = None) -> None:
        """Set budget limits. They apply to running runs from their next model call on.

        Raises NotFound for a run or session of another tenant, InvalidRequest for a limit of seconds on anything but a
        run. `by`: whom the audit log names; None: it has no row.
        """
        if SECONDS in written.limits and written.scope != "run":
            raise InvalidRequest("Only runs have a limit of seconds.", field="budget.seconds")
        is_one = written.scope_id not in (DEFAULT_SCOPE_ID, tenant_id)
        with self.coordinator.database.transaction() as tx:
            if is_one:
                budgets.require_scope(tx, tenant_id, written.scope, written.scope_id)
            budgets.put_limits(tx, tenant_id, written)
            if by is not None:
                details = {"scope": written.scope, "limits": dict(written.limits)}
                audit.record(tx, tenant_id, by, Action.BUDGET_SET, written.scope_id if is_one else None, details)
        with self.coordinator.database.transaction() as tx:
            unmarked = budgets.unflagged_runs(tx, tenant_id, written.scope_id if is_one else DEFAULT_SCOPE_ID)
        for run_id in unmarked:  # one by one: no transaction locks two runs
            self._run_locked(run_id, lambda tx, run_id=run_id: (budgets.flag_run(tx, tenant_id, run_id), None))

    def flag_runs_of(self, tenant_id: TenantId, canvas_id: CanvasId) -> None:
        """Have the open runs of an agent told to the callbacks that it has now."""
        with self.coordinator.database.transaction() as tx:
            unflagged = callback_rows.unflagged_runs(tx, tenant_id, canvas_id)
        for run_id in unflagged:  # one by one: no transaction locks two runs
            self._run_locked(run_id, lambda tx, run_id=run_id: (self._flag(tx, tenant_id, run_id), None))

    def _flag(self, tx: Transaction, tenant_id: TenantId, run_id: RunId) -> None:
        self._lock_run(tx, tenant_id, run_id)
        callback_rows.flag_run(tx, tenant_id, run_id)

    def _run_locked(self, run_id: RunId, verb: Callable[[Transaction], tuple[T, Notifications | None]]) -> T:
        """Run an operation that locks a run; after its commit send messages and re-check the run."""
        try:
            result, applied = self.coordinator.database.run_with_retry(verb)
            if applied is not None:
                self.coordinator.dispatch.publish(applied)
        finally:
            self.coordinator.recheck(run_id)
        return result

    def _is_over(self, tenant_id: TenantId, run_id: RunId) -> bool:
        with self.coordinator.database.transaction() as tx:
            row = run_rows.read(tx, tenant_id, run_id)
        return row is None or RunStatus(row["status"]).is_over

    def _lock_run(self, tx: Transaction, tenant_id: TenantId, run_id: RunId) -> RunRow:
        row = run_rows.lock(tx, run_id)
        if row is None or row.tenant_id != tenant_id:
            raise RunNotFound(f"There is no run {run_id}.", run_id=str(run_id))
        return row

    def _active_run(self, start: Start) -> RunId | None:
        if start.conversation_id is None:
            return None
        with self.coordinator.database.transaction() as tx:
            return conversations.get(tx, start.tenant_id, start.conversation_id).active_run

    def _waiting_run(self, start: Start) -> RunId | None:
        """Return the conversation's run that waits for an answer, if this start is one; else None."""
        active = self._active_run(start)
        if active is None or active == start.run_id:
            return None
        with self.coordinator.database.transaction() as tx:
            row = run_rows.read(tx, start.tenant_id, active)
        return active if row is not None and row["status"] == RunStatus.WAITING else None

    def _accept_start(self, start: Start, *, is_new: bool) -> tuple[Started, Notifications | None, Sequence[RunId]]:
        """Accept a start; return the accepted run, its notifications, and the runs that it interrupts."""
        database = self.coordinator.database
        try:
            return database.run_with_retry(lambda tx: accept(self.coordinator, tx, start, is_new=is_new))
        except DBAPIError as error:
            # A run with this run_id was stored meanwhile; or the transaction, which waits for no result before its
            # commit, used a broken connection of the pool, so that its outcome is not known. A second try reads it.
            if versions.is_version_gone(error):
                raise VersionGone(versions.VERSION_GONE_TEXT, version_id=start.version_id.hex) from error
            if not isinstance(error, IntegrityError) and not is_retryable(error):
                raise
            return database.run_with_retry(lambda tx: accept(self.coordinator, tx, start))
