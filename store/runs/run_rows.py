"""Runs: the row, its lock, and what a decision writes.

Only the coordinator (and the verbs of people) write a run's row, its scopes and its events, under the row's lock.
Lock first, read in a later statement (protocol.md, "Locks").
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Boolean, bindparam, func, insert, or_, select, text, update

from canvas.state.checkpoint import fill_run
from canvas.state.run_state import RULES_VERSION, Report, RunState, RunStatus
from store.db.transaction import SET_LIMIT, PendingResult, Transaction
from store.primitives.db_errors import sqlstate
from store.runs import scopes
from store.runs.scopes import PrefetchedScopes
from store.tables.budgets import HAS_LIMIT
from store.tables.runs import runs

LOCK_NOT_AVAILABLE = "55P03"

_whose = select(*(column for column in runs.c if column.name not in ("base", "request"))).where(
    runs.c.id == bindparam("of_run")
)
TRY_LOCK = _whose.with_for_update(key_share=True, skip_locked=True)
"""A row that is locked comes as it is by then, whatever the statement saw when it began."""
LOCK_SOON = _whose.with_for_update(key_share=True)
WAIT_LOCK = text("select id from runs where id = :run_id for no key update")
READ = select(runs).where(runs.c.id == bindparam("of_run"))
SELECT_INPUTS = select(runs.c.request, runs.c.base).where(runs.c.id == bindparam("of_run"))
READ_OF_TENANT = READ.where(runs.c.tenant_id == bindparam("of_tenant"))


CLOSE = text("""
    update activations a set status = 'closed', folded_rev = :revision
    from (
        select id from activations
        where run_id = :run_id and status in ('queued', 'ready', 'waiting', 'saying', 'open')
          and (status not in ('queued', 'ready', 'saying') or :wave < 0 or wave > :wave or region <> '')
          and (status <> 'open' or :all)
        order by id for no key update
    ) stopped
    where a.run_id = :run_id and a.id = stopped.id
""")
CALL_OFF = text("""
    update activations a set called_off = true
    from (
        select id from activations where run_id = :run_id and status = 'running' and not called_off
        order by id for no key update
    ) working
    where a.run_id = :run_id and a.id = working.id
""")
CLOSE_ALL = text("""
    update activations a set status = 'closed', folded_rev = :revision, called_off = true
    from (
        select id, status from activations where run_id = :run_id and status not in ('done', 'closed')
        order by id for no key update
    ) left_over
    where a.run_id = :run_id and a.id = left_over.id returning left_over.status
""")
BUSY = text("""
    select count(*) filter (where status <> 'queued') as at_work, count(*) filter (where status = 'queued') as queued
    from activations
    where run_id = :run_id and status in ('queued', 'ready', 'running', 'reported')
""")

ASK = text("update runs set asked = 'cancel' where id = :run_id")

DEFAULT_COLUMNS: Mapping[str, Any] = {
    "external_id": None,
    "previous_run": None,
    "revision": 0,
    "last_event": 0,
    "first_event": 1,
    "asked": None,
    "turn": None,
    "history_upto": 0,
    "error": "",
}
CREATE = insert(runs).values(
    created_at=func.clock_timestamp(),  # under the conversation's lock: order of acceptance
    budgeted=or_(bindparam("has_budget", type_=Boolean), HAS_LIMIT),
)

PUT_BASE = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"))
    .values(
        base=bindparam("new_base"),
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
        message_id=bindparam("new_message"),
        history_upto=bindparam("new_upto"),
        first_event=bindparam("new_first"),
    )
)


def create(tx: Transaction, row: Mapping[str, Any], *, has_budget: bool = False) -> Mapping[str, Any]:
    """Insert a run, whose id the caller has chosen; its row, without times.

    `has_budget`: the run has limits of its own. Whether others count for it the same statement finds out.
    """
    created = {**row, "engine": RULES_VERSION, "usage": {}}
    whose = {"of_tenant": row["tenant_id"], "of_session": row["conversation_id"]}
    tx.later(CREATE, **created, **whose, has_budget=has_budget)
    return {**DEFAULT_COLUMNS, **created}


def try_lock(tx: Transaction, run_id: UUID) -> Callable[[], Mapping[str, Any] | None]:
    """Try to take a run that nobody holds; its row without `base` and `request`, as it is under the lock.

    None: it is held, unknown, or not ours to decide. What lies beside the row is read in later statements.
    """
    row = tx.later(TRY_LOCK, of_run=run_id)
    return lambda: _readable(row)


def lock_with_timeout(tx: Transaction, run_id: UUID, patience: timedelta) -> Callable[[], Mapping[str, Any] | None]:
    """Wait a moment for a run that somebody holds, in a transaction that holds nothing yet; the row as of `try_lock`.

    Whoever waits for the row finds out if that was not enough (`is_held`); then nothing behind it is carried out.
    """
    milliseconds = str(max(1, int(patience.total_seconds() * 1000)))  # 0 would be for ever
    tx.later(SET_LIMIT, limit="lock_timeout", milliseconds=milliseconds)
    row = tx.later(LOCK_SOON, of_run=run_id)
    tx.later(SET_LIMIT, limit="lock_timeout", milliseconds="0")  # for ever, as far as this limit is concerned
    return lambda: _readable(row)


def is_lock_timeout(error: BaseException) -> bool:
    """Whether somebody held a run for longer than was waited."""
    return sqlstate(error) == LOCK_NOT_AVAILABLE


def lock(tx: Transaction, run_id: UUID, *, patience: timedelta = timedelta(seconds=2)) -> Mapping[str, Any] | None:
    """Wait for a run (the verbs of people only); None if there is no such run."""
    tx.scalar(SET_LIMIT, limit="lock_timeout", milliseconds=str(int(patience.total_seconds() * 1000)))
    if tx.scalar(WAIT_LOCK, run_id=run_id) is None:
        return None
    return _readable(tx.later(READ, of_run=run_id))


def _readable(asked: PendingResult) -> Mapping[str, Any] | None:
    row = asked.one_or_none()
    return row if row is not None and row["engine"] <= RULES_VERSION else None


def read(tx: Transaction, tenant_id: UUID, run_id: UUID) -> Mapping[str, Any] | None:
    """A run's row, for its own tenant."""
    return tx.one_or_none(READ_OF_TENANT, of_run=run_id, of_tenant=tenant_id)


def state_of(
    tx: Transaction,
    row: Mapping[str, Any],
    reports: Sequence[Report],
    *,
    whole: bool,
    known: PrefetchedScopes | None = None,
) -> RunState:
    """The state a decision works on: the scopes that the reports name and those around them, or all (`whole`).

    `known` are scopes that were asked for ahead.
    """
    state = fill_run(
        RunState(
            run_id=row["id"],
            status=RunStatus(row["status"]),
            revision=row["revision"],
            last_event=row["last_event"],
            asked=row["asked"],
            turn=row["turn"],
        ),
        row["state"],
    )
    state.scopes = scopes.read(tx, row["id"], None if whole else scopes.enclosing_scopes(reports), known)
    return state


def mark_cancelled(tx: Transaction, run_id: UUID) -> None:
    """Mark a locked run; the fold that follows closes what has not begun."""
    tx.later(ASK, run_id=run_id)


def close(tx: Transaction, row: Mapping[str, Any], *, after_wave: int | None, everything: bool) -> None:
    """Close what need not run any more: all that has not begun, or what comes after the failing wave."""
    tx.later(
        CLOSE,
        run_id=row["id"],
        revision=row["revision"] + 1,
        wave=-1 if after_wave is None else after_wave,
        all=everything,
    )


def request_cancel(tx: Transaction, run_id: UUID) -> bool:
    """Tell running attempts to stop; whether there were any that had not been told.

    In a later statement than the close, so no claim slips between.
    """
    return tx.run(CALL_OFF, run_id=run_id) > 0


def close_all(tx: Transaction, row: Mapping[str, Any]) -> bool:
    """Close every activation of a run that ends by force, those at work too; whether there was any at work.

    Their reports find no guard, and their next renewal finds that the lease is gone. Its scopes go unread.
    """
    tx.run(scopes.DROP_SCOPES, of_run=row["id"])
    left = tx.rows(CLOSE_ALL, run_id=row["id"], revision=row["revision"] + 1)
    return any(was == "running" for (was,) in left)


def count_open(tx: Transaction, run_id: UUID) -> tuple[int, int]:
    """How many activations work for the run or have reported unseen, and how many wait for a place in it."""
    row = tx.rows(BUSY, run_id=run_id)[0]
    return row[0], row[1]


def set_base(
    tx: Transaction, run_id: UUID, *, base: Mapping[str, Any], previous_run: UUID | None, history_upto: int
) -> None:
    """Fill in what a run begins with."""
    tx.later(PUT_BASE, of_run=run_id, new_base=base, new_previous=previous_run, new_upto=history_upto)


def next_turn(
    tx: Transaction, run_id: UUID, *, request: Mapping[str, Any], message_id: UUID, history_upto: int, first_event: int
) -> None:
    """A run that waited goes on with a new turn of its conversation."""
    tx.later(
        NEXT_TURN,
        of_run=run_id,
        new_request=request,
        new_message=message_id,
        new_upto=history_upto,
        new_first=first_event,
    )


TENANT_OF = select(runs.c.tenant_id).where(runs.c.id == bindparam("of_run"))


def tenant_of(tx: Transaction, run_id: UUID) -> UUID | None:
    """Whose run it is (for keys and tasks that name only the run)."""
    return tx.scalar(TENANT_OF, of_run=run_id)
