"""The run's row: its lock, its typed value, and the statements that stop a run.

Only advances and lifecycle operations write a run's row, scopes and events, under the row's lock. Lock first, read in a
later statement (docs/protocol.md#locks).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Boolean, and_, bindparam, func, insert, or_, select, text, update

from canvas.ids import ActivationId, CanvasId, RunId, SessionId, TenantId, VersionId
from canvas.routing.decision import Decision
from canvas.state.checkpoint import fill_run
from canvas.state.run_state import REUSE_RULES_VERSION, RULES_VERSION, Report, RunState, RunStatus
from store.db.db_errors import sqlstate
from store.db.transaction import SET_LIMIT, PendingResult, Transaction
from store.runs import scopes
from store.runs.scopes import PrefetchedScopes
from store.tables.budgets import HAS_LIMIT
from store.tables.callbacks import HAS_CALLBACK
from store.tables.runs import runs

LOCK_NOT_AVAILABLE = "55P03"

_lockable_columns = select(
    *(column for column in runs.c if column.name not in ("baseline", "request", "origin", "has_callbacks"))
).where(runs.c.id == bindparam("of_run"))
TRY_LOCK = _lockable_columns.with_for_update(key_share=True, skip_locked=True)
"""Returns the row as it is once it is locked, whatever the statement saw when it began."""
LOCK_WITH_TIMEOUT = _lockable_columns.with_for_update(key_share=True)
WAIT_LOCK = text("select id from runs where id = :run_id for no key update")
READ = select(runs).where(runs.c.id == bindparam("of_run"))
SELECT_INPUTS = select(runs.c.request, runs.c.baseline).where(runs.c.id == bindparam("of_run"))
READ_OF_TENANT = READ.where(runs.c.tenant_id == bindparam("of_tenant"))


CLOSE = text("""
    update activations a set status = 'closed', applied_rev = :revision
    from (
        select id from activations
        where run_id = :run_id and status in ('queued', 'ready', 'waiting', 'saying', 'open')
          and (status not in ('queued', 'ready', 'saying') or :level < 0 or level > :level or region <> '')
          and (status <> 'open' or :all)
        order by id for no key update
    ) stopped
    where a.run_id = :run_id and a.id = stopped.id
""")
REQUEST_CANCEL = text("""
    update activations a set cancel_requested = true
    from (
        select id from activations where run_id = :run_id and status = 'running' and not cancel_requested
        order by id for no key update
    ) working
    where a.run_id = :run_id and a.id = working.id
""")
CLOSE_ALL = text("""
    update activations a set status = 'closed', applied_rev = :revision, cancel_requested = true
    from (
        select id, status from activations where run_id = :run_id and status not in ('done', 'closed')
        order by id for no key update
    ) left_over
    where a.run_id = :run_id and a.id = left_over.id returning left_over.status
""")
COUNT_OPEN = text("""
    select count(*) filter (where status <> 'queued') as at_work, count(*) filter (where status = 'queued') as queued
    from activations
    where run_id = :run_id and status in ('queued', 'ready', 'running', 'reported')
""")

MARK_CANCELLED = text("update runs set cancel_requested = true where id = :run_id")

DEFAULT_COLUMNS: Mapping[str, Any] = {
    "external_id": None,
    "previous_run": None,
    "source_run": None,
    "revision": 0,
    "last_event": 0,
    "first_event": 1,
    "cancel_requested": False,
    "open_stream": None,
    "history_upto": 0,
    "error": "",
}
CREATE = insert(runs).values(
    created_at=func.clock_timestamp(),  # under the conversation's lock: order of acceptance
    budgeted=or_(bindparam("has_budget", type_=Boolean), HAS_LIMIT),
    has_callbacks=or_(
        bindparam("has_own_callback", type_=Boolean), and_(bindparam("has_listeners", type_=Boolean), HAS_CALLBACK)
    ),
)

SET_BASELINE = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"))
    .values(
        baseline=bindparam("new_baseline"),
        previous_run=bindparam("new_previous"),
        history_upto=bindparam("new_upto"),
        started_at=func.now(),
    )
)
NEXT_TURN = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"))
    .values(
        request=bindparam("new_request"),
        baseline=bindparam("new_baseline"),
        message_id=bindparam("new_message"),
        history_upto=bindparam("new_upto"),
        first_event=bindparam("new_first"),
    )
)


class RunRow(NamedTuple):
    """A row of `runs`. A named tuple: each advance makes several, and frozen dataclasses take several times as long."""

    id: RunId
    tenant_id: TenantId
    canvas_id: CanvasId
    version_id: VersionId
    conversation_id: SessionId
    message_id: UUID  # of the current turn
    status: RunStatus
    revision: int
    last_event: int
    first_event: int  # of the current turn
    history_upto: int  # messages of the conversation that the run may read
    is_cancel_requested: bool
    open_stream: ActivationId | None
    state: Mapping[str, Any]  # canvas/state/checkpoint.py
    usage: Mapping[str, int]
    error: str
    budgeted: bool  # whether model calls reserve from a budget
    external_id: str | None
    previous_run: RunId | None
    source_run: RunId | None  # the run whose activations this one reuses; None if it reuses none
    created_at: datetime | None  # None: the row was just inserted
    expires_at: datetime | None  # of open forms
    request: Mapping[str, Any] | None  # None in rows of `try_lock` and `lock_with_timeout`, as `baseline`
    baseline: Mapping[str, Any] | None

    @staticmethod
    def from_columns(columns: Mapping[str, Any]) -> "RunRow":
        """Return the value of a row; columns that a new row does not have yet may be missing."""
        return RunRow(
            id=columns["id"],
            tenant_id=columns["tenant_id"],
            canvas_id=columns["canvas_id"],
            version_id=columns["version_id"],
            conversation_id=columns["conversation_id"],
            message_id=columns["message_id"],
            status=RunStatus(columns["status"]),
            revision=columns["revision"],
            last_event=columns["last_event"],
            first_event=columns["first_event"],
            history_upto=columns["history_upto"],
            is_cancel_requested=columns["cancel_requested"],
            open_stream=columns["open_stream"],
            state=columns["state"],
            usage=columns["usage"],
            error=columns["error"],
            budgeted=columns.get("budgeted", False),
            external_id=columns["external_id"],
            previous_run=columns["previous_run"],
            source_run=columns["source_run"] if columns.get("rules_version") == REUSE_RULES_VERSION else None,
            created_at=columns.get("created_at"),
            expires_at=columns.get("expires_at"),
            request=columns.get("request"),
            baseline=columns.get("baseline"),
        )

    def claim_columns(self) -> dict[str, Any]:
        """Return the columns that a claim carries (`store.runs.activations.claim_from_rows`)."""
        return {
            "tenant_id": self.tenant_id,
            "canvas_id": self.canvas_id,
            "version_id": self.version_id,
            "conversation_id": self.conversation_id,
            "message_id": self.message_id,
            "first_event": self.first_event,
            "history_upto": self.history_upto,
            "created_at": self.created_at,
            "budgeted": self.budgeted,
        }

    def with_cancel_requested(self) -> "RunRow":
        """Return the row as `mark_cancelled` leaves it."""
        return self._replace(is_cancel_requested=True)

    def after(self, decision: Decision) -> "RunRow":
        """Return the row for a second decision in the transaction that has written this one."""
        return self._replace(
            status=decision.run.status,
            revision=self.revision + 1,
            last_event=self.last_event + len(decision.events),
        )


def create(
    tx: Transaction,
    row: Mapping[str, Any],
    *,
    has_budget: bool = False,
    reuses: bool = False,
    has_callback: bool = False,
    is_announced: bool = True,
) -> RunRow:
    """Insert a run under an id that the caller has chosen; return its row, without times.

    `has_budget`: the run has limits of its own. The statement itself finds out whether other budgets apply to it.
    `reuses`: the run reuses activations of its source. `has_callback`: it has callbacks of its own. `is_announced`:
    the callbacks of its agent, for which the statement looks itself, are told of it.
    """
    created = {**row, "rules_version": REUSE_RULES_VERSION if reuses else RULES_VERSION, "usage": {}}
    whose = {"of_tenant": row["tenant_id"], "of_session": row["conversation_id"], "of_canvas": row["canvas_id"]}
    flags = {"has_budget": has_budget, "has_own_callback": has_callback, "has_listeners": is_announced}
    tx.send(CREATE, **created, **whose, **flags)
    return RunRow.from_columns({**DEFAULT_COLUMNS, **created})


def try_lock(tx: Transaction, run_id: RunId) -> Callable[[], RunRow | None]:
    """Send a try to lock a run. The function returned gives the row as it is under the lock.

    It gives None if the run is locked already, does not exist, or has a newer version of the routing rules. Everything
    beside the row is read in later statements.
    """
    row = tx.send(TRY_LOCK, of_run=run_id)
    return lambda: _readable(row)


def lock_with_timeout(tx: Transaction, run_id: RunId, timeout: timedelta) -> Callable[[], RunRow | None]:
    """Send a lock that waits, in a transaction that has locked nothing yet. Returns a function as `try_lock` does.

    That function raises an error if the timeout was too short (`is_lock_timeout`). The server then executes nothing
    that was sent after the lock.
    """
    milliseconds = str(max(1, int(timeout.total_seconds() * 1000)))  # 0 would mean: wait without a limit
    tx.send(SET_LIMIT, limit="lock_timeout", milliseconds=milliseconds)
    row = tx.send(LOCK_WITH_TIMEOUT, of_run=run_id)
    tx.send(SET_LIMIT, limit="lock_timeout", milliseconds="0")  # no limit for later statements
    return lambda: _readable(row)


def is_lock_timeout(error: BaseException) -> bool:
    """Whether a lock was not acquired within its timeout."""
    return sqlstate(error) == LOCK_NOT_AVAILABLE


def lock(tx: Transaction, run_id: RunId, *, timeout: timedelta = timedelta(seconds=2)) -> RunRow | None:
    """Lock a run for a lifecycle operation; return its whole row, or None if there is no such run."""
    tx.scalar(SET_LIMIT, limit="lock_timeout", milliseconds=str(int(timeout.total_seconds() * 1000)))
    if tx.scalar(WAIT_LOCK, run_id=run_id) is None:
        return None
    return _readable(tx.send(READ, of_run=run_id))


def reload(tx: Transaction, run_id: RunId) -> RunRow:
    """Return the whole row of a run that this transaction has locked."""
    row = tx.one_or_none(READ, of_run=run_id)
    assert row is not None, "a locked run exists"
    return RunRow.from_columns(row)


def _readable(result: PendingResult) -> RunRow | None:
    columns = result.one_or_none()
    return (
        RunRow.from_columns(columns)
        if columns is not None and columns["rules_version"] <= REUSE_RULES_VERSION
        else None
    )


def read(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> Mapping[str, Any] | None:
    """Return the columns of a tenant's run, for those who only show it; None if the tenant has no such run."""
    return tx.one_or_none(READ_OF_TENANT, of_run=run_id, of_tenant=tenant_id)


def state_of(
    tx: Transaction,
    row: RunRow,
    reports: Sequence[Report],
    *,
    whole: bool,
    known: PrefetchedScopes | None = None,
) -> RunState:
    """Return the state that a decision works on, with the scopes that the reports name and those around them.

    `whole`: with all open scopes. `known`: scopes that are not read again.
    """
    state = fill_run(
        RunState(
            run_id=row.id,
            status=row.status,
            revision=row.revision,
            last_event=row.last_event,
            is_cancel_requested=row.is_cancel_requested,
            open_stream_id=row.open_stream,
        ),
        row.state,
    )
    state.scopes = scopes.read(tx, row.id, None if whole else scopes.enclosing_scopes(reports), known)
    return state


def mark_cancelled(tx: Transaction, run_id: RunId) -> None:
    """Mark a locked run as cancelled; the decision that follows closes the activations that have not begun."""
    tx.send(MARK_CANCELLED, run_id=run_id)


def close(tx: Transaction, row: RunRow, *, after_level: int | None, everything: bool) -> None:
    """Close activations that need not run: all that have not begun, or those of levels after the failing one.

    `everything`: open containers too.
    """
    tx.send(
        CLOSE,
        run_id=row.id,
        revision=row.revision + 1,
        level=-1 if after_level is None else after_level,
        all=everything,
    )


def request_cancel(tx: Transaction, run_id: RunId) -> bool:
    """Request the cancel of running attempts; return whether there were any without such a request.

    Sent in a later statement than `close`, so that no claim comes between the two.
    """
    return tx.execute(REQUEST_CANCEL, run_id=run_id) > 0


def close_all(tx: Transaction, row: RunRow) -> bool:
    """Close every activation of a run that ends by force, running ones included; return whether any was running.

    Reports of running attempts match no row then, and their next renewal finds the lease gone. Scopes are deleted.
    """
    tx.execute(scopes.DROP_SCOPES, of_run=row.id)
    closed = tx.rows(CLOSE_ALL, run_id=row.id, revision=row.revision + 1)
    return any(status == "running" for (status,) in closed)


def count_open(tx: Transaction, run_id: RunId) -> tuple[int, int]:
    """Return how many activations are ready, running or reported, and how many wait for a slot of the run."""
    row = tx.rows(COUNT_OPEN, run_id=run_id)[0]
    return row[0], row[1]


def set_baseline(
    tx: Transaction, run_id: RunId, *, baseline: Mapping[str, Any], previous_run: RunId | None, history_upto: int
) -> None:
    """Write what a run begins with."""
    tx.send(SET_BASELINE, of_run=run_id, new_baseline=baseline, new_previous=previous_run, new_upto=history_upto)


def next_turn(
    tx: Transaction,
    run_id: RunId,
    *,
    request: Mapping[str, Any],
    baseline: Mapping[str, Any] | None,
    message_id: UUID,
    history_upto: int,
    first_event: int,
) -> None:
    """Write the new turn of the conversation with which a waiting run goes on."""
    tx.send(
        NEXT_TURN,
        of_run=run_id,
        new_request=request,
        new_baseline=baseline,
        new_message=message_id,
        new_upto=history_upto,
        new_first=first_event,
    )


TENANT_OF = select(runs.c.tenant_id).where(runs.c.id == bindparam("of_run"))


def tenant_of(tx: Transaction, run_id: RunId) -> TenantId | None:
    """Return the tenant of a run, for keys and tasks that name only the run."""
    return tx.scalar(TENANT_OF, of_run=run_id)
