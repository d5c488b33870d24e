"""Weekly partitions of the tables of runs: created ahead of time, dropped as a whole by retention.

A run's id is a UUIDv7, so a week of runs is a range of ids: `runs_p2026w47` has the runs of ISO week 47, and the same
partitions of the other tables have what belongs to them. Rows that no week covers are in the default partition,
`runs_default`. When a week is created later, its rows are first moved there from the default partition, because
PostgreSQL refuses a new partition if the default one has rows of it.

`ensure` and `drop` need a transaction of their own. They take strong locks and give up on a lock after half a second,
before PostgreSQL looks for deadlocks: so work on runs is never the victim of a deadlock with them, and they are tried
again an hour later.

While a week is attached, PostgreSQL reads the default partition, and all other transactions wait. So `create` is for a
small default partition. For a large one, a CHECK constraint that was validated before, beside the traffic, tells
PostgreSQL that the default partition has no row of the week: `add_exclusion_check`, `validate_exclusion_check` and
`attach`, each in a transaction of its own. That only works for future weeks, because the CHECK refuses the week's runs
until the week is attached.
"""

import re
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Column,
    MetaData,
    Table,
    Uuid,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from canvas.state.run_state import RunStatus
from store.db.transaction import SET_LIMIT, Transaction
from store.primitives.ids import first_id_at
from store.primitives.weeks import Week
from store.tables.runs import FORMER_COLUMNS, PARTITIONED, WITH_OWN_RETENTION, metadata, runs

OPEN_STATUSES = tuple(status.value for status in RunStatus if not status.is_over)
"""Statuses of a run that is not over (the same as in the index `ix_runs_open`)."""

FILL_FACTORS = {"runs": 70, "scopes": 70, "turns": 70}
"""Fill factors in percent, for tables whose rows change with every advance. What is free fits a row of 2 KB, the
longest.

So a page has room for the next version of a row, or PostgreSQL makes room by removing old versions (migration 0012).
"""

_OPEN_LITERALS = [literal_column(f"'{status}'") for status in OPEN_STATUSES]
IS_OPEN = runs.c.status.in_(_OPEN_LITERALS)

LOCK_BRIEFLY = text("set local lock_timeout = '500ms'")  # below deadlock_timeout, which is 1 s
PARTITIONS = text(
    "select child.relname from pg_inherits join pg_class child on child.oid = inhrelid"
    " where inhparent = to_regclass(:table) order by 1"
)
MAX_BLOCKING_TIME = 0.45  # seconds that others may wait while a week is created, including the wait for the lock
LOCK_WAIT = 0.2
MAX_SMALL_BYTES = 32 * 1024 * 1024  # bytes of a default partition, which PostgreSQL reads in some 50 ms
MAX_ROWS_TO_MOVE = 2_000  # rows, which are moved in less than a tenth of a second

NO_LIMITS = text("""
    select set_config(name, '0', true) from pg_settings where name in ('statement_timeout', 'transaction_timeout')
""")
CHECKS = text("""
    select conname from pg_constraint where conrelid = to_regclass(:table) and position('_keeps_out_' in conname) > 0
""")

HAS_OPEN_RUN = select(exists().where(runs.c.id >= bindparam("first"), runs.c.id < bindparam("end"), IS_OPEN))

_NAME = re.compile(rf"(?:{'|'.join(PARTITIONED)})_(?:default|p(\d{{4}}w\d{{2}}))")


def is_partition(table: str) -> bool:
    """Return whether a table is one of these partitions."""
    return _NAME.fullmatch(table) is not None


def ensure(tx: Transaction, now: datetime, weeks: int = 4, tables: Iterable[str] = PARTITIONED) -> list[str]:
    """Create the missing partitions of this week and the next `weeks`; return their names.

    Beside traffic, call it with one table per transaction. Otherwise it can deadlock: it holds the lock on one table's
    default partition while it waits for that of the next, for which a transaction may wait that works on both.
    """
    needed = [Week.of(now + timedelta(weeks=ahead)) for ahead in range(weeks + 1)]
    created: list[str] = []
    tx.execute(LOCK_BRIEFLY)
    for table in tables:
        existing = _partitions_of(tx, table)
        for week in [week for week in needed if week.partition(table) not in existing]:
            if not is_small(tx, table) or count_rows_to_move(tx, table, week) > MAX_ROWS_TO_MOVE:
                continue  # the sweeper creates it by the slower way, or reports why it cannot
            _create(tx, table, week)
            created.append(week.partition(table))
    return created


def missing_weeks(tx: Transaction, table: str, now: datetime, weeks: int = 4) -> list[Week]:
    """Return those of this week and the next `weeks` for which a table has no partition."""
    existing = _partitions_of(tx, table)
    needed = (Week.of(now + timedelta(weeks=ahead)) for ahead in range(weeks + 1))
    return [week for week in needed if week.partition(table) not in existing]


def is_small(tx: Transaction, table: str) -> bool:
    """Return whether the default partition of a table is so small that PostgreSQL reads it at once."""
    return tx.scalar(text(f"select pg_relation_size('{table}_default')")) <= MAX_SMALL_BYTES


def count_rows_to_move(tx: Transaction, table: str, week: Week) -> int:
    """Return how many rows of a week the default partition has; counts up to MAX_ROWS_TO_MOVE + 1."""
    default = _table_like(table, f"{table}_default")
    some = (
        select(_run_id(default))
        .where(_run_id(default) >= week.first_id, _run_id(default) < week.end_id)
        .limit(MAX_ROWS_TO_MOVE + 1)
    )
    return tx.scalar(select(func.count()).select_from(some.subquery()))


def create(tx: Transaction, table: str, week: Week) -> None:
    """Create a week of a table whose default partition is small; other transactions wait for less than half a second.

    Raises OperationalError if that does not suffice; nothing is created then.
    """
    _create(tx, table, week, max_blocking_time=MAX_BLOCKING_TIME)


def add_exclusion_check(tx: Transaction, table: str, week: Week) -> None:
    """Add a constraint that refuses rows of a week in the default partition from now on."""
    tx.execute(SET_LIMIT, limit="lock_timeout", milliseconds=_milliseconds(LOCK_WAIT))
    column = _run_id(metadata.tables[table]).name
    check = f"{column} < '{week.first_id}' or {column} >= '{week.end_id}'"
    tx.execute(text(f"alter table {table}_default add constraint {_check_name(table, week)} check ({check}) not valid"))


def validate_exclusion_check(tx: Transaction, table: str, week: Week) -> None:
    """Have PostgreSQL verify that the default partition has no row of the week. Other transactions do not wait."""
    tx.execute(NO_LIMITS)
    tx.execute(text(f"alter table {table}_default validate constraint {_check_name(table, week)}"))


def attach(tx: Transaction, table: str, week: Week) -> None:
    """Create a week of which the default partition is known to have no rows, without reading that partition."""
    _create(tx, table, week, max_blocking_time=MAX_BLOCKING_TIME, moves_rows=False)
    tx.execute(text(f"alter table {table}_default drop constraint {_check_name(table, week)}"))


def drop_exclusion_checks(tx: Transaction, table: str) -> int:
    """Remove the constraints that `add_exclusion_check` left, here or in a killed process; return how many."""
    left = [name for (name,) in tx.rows(CHECKS, table=f"{table}_default")]
    if left:
        tx.execute(SET_LIMIT, limit="lock_timeout", milliseconds=_milliseconds(LOCK_WAIT))
    for name in left:
        tx.execute(text(f"alter table {table}_default drop constraint {name}"))
    return len(left)


def weeks_ended_by(tx: Transaction, moment: datetime) -> list[Week]:
    """Return the weeks that ended by `moment` and still have partitions, oldest first."""
    names = [name for table in PARTITIONED for name in _partitions_of(tx, table)]
    return sorted({week for week in map(_week_of, names) if week is not None and week.ends_at <= moment})


def weeks_of_calls_ended_by(tx: Transaction, moment: datetime) -> list[Week]:
    """Return the weeks that ended by `moment` and still have partitions of model calls, oldest first."""
    names = [name for table in WITH_OWN_RETENTION for name in _partitions_of(tx, table)]
    return sorted({week for week in map(_week_of, names) if week is not None and week.ends_at <= moment})


def drop_calls(tx: Transaction, table: str, week: Week) -> str | None:
    """Drop the partition of a table of model calls, also of open runs; return its name, None if it does not exist.

    What such a run writes afterwards is in the default partition. Other transactions wait as for `drop`.
    """
    name = week.partition(table)
    tx.execute(LOCK_BRIEFLY)
    if name not in _partitions_of(tx, table):
        return None
    tx.execute(text(f"lock table only {table} in access exclusive mode"))
    tx.execute(text(f"drop table {name}"))
    return name


def delete_stray_calls(tx: Transaction, moment: datetime) -> int:
    """Delete up to CALL_BATCH calls from before `moment` in the default partition, and parts that no call refers to.

    Returns how many calls.
    """
    calls = tx.execute(DELETE_STRAY_CALLS, before=first_id_at(moment), most=CALL_BATCH)
    tx.execute(DELETE_STRAY_PARTS, most=CALL_BATCH)
    return calls


def has_open_run(tx: Transaction, week: Week) -> bool:
    """Return whether a run of the week is not over."""
    return bool(tx.scalar(HAS_OPEN_RUN, first=week.first_id, end=week.end_id))


def drop(tx: Transaction, table: str, week: Week) -> str | None:
    """Drop the partition of one table and week; return its name, None if it does not exist or the week has an open run.

    `runs` is dropped first, because what belongs to a run is only looked for through its row. Each table has a
    transaction of its own, since all transactions that use it wait while PostgreSQL detaches the partition: some
    milliseconds, and half a second at most if one of them does not end. (DETACH CONCURRENTLY would not make them wait,
    but PostgreSQL refuses it for a table with a default partition.)
    """
    name = week.partition(table)
    tx.execute(LOCK_BRIEFLY)
    if name not in _partitions_of(tx, table):
        return None
    tx.execute(text(f"lock table only {table} in access exclusive mode"))
    # statements that know the week name only the partition
    tx.execute(text(f"lock table {name} in access exclusive mode"))
    if has_open_run(tx, week):
        return None
    tx.execute(text(f"drop table {name}"))
    return name


def delete_strays(tx: Transaction, moment: datetime) -> int:
    """Delete up to 100 runs that were accepted before `moment` and that no week covers; return how many.

    Their ids may contain any time, so the time of acceptance counts. Open runs stay, and so do runs that their
    conversation continues from.
    """
    ids = [run_id for (run_id,) in tx.rows(STRAYS, before=moment, most=STRAY_BATCH)]
    for delete_rows in _DELETE_STRAYS if ids else ():
        tx.execute(delete_rows, some=ids)
    return len(ids)


def delete_orphaned_rows(tx: Transaction, table: str, moment: datetime) -> int:
    """Delete the rows that up to 100 runs from before `moment` left in a default partition when their week was dropped.

    Returns how many rows. This happens if a week was created for `runs` and not for this table.
    """
    return tx.execute(text(_DELETE_ORPHANED_ROWS.format(table=table)), end=first_id_at(moment), most=STRAY_BATCH)


def _create(
    tx: Transaction, table: str, week: Week, *, max_blocking_time: float | None = None, moves_rows: bool = True
) -> None:
    """Create a week's partition as a separate table and attach it, which leaves the other weeks available meanwhile.

    `max_blocking_time`: seconds that other transactions may wait. `moves_rows` False: the default partition has no rows
    of the week.
    """
    name, first, end = week.partition(table), week.first_id, week.end_id
    tx.execute(text(f"create table {name} (like {table} including all)"))
    if table in FILL_FACTORS:
        tx.execute(text(f"alter table {name} set (fillfactor = {FILL_FACTORS[table]})"))
    ends_at = time.monotonic() + max_blocking_time if max_blocking_time is not None else None
    if ends_at is not None:
        tx.execute(SET_LIMIT, limit="lock_timeout", milliseconds=_milliseconds(LOCK_WAIT))
    tx.execute(text(f"lock table {table}_default in access exclusive mode"))
    if moves_rows:
        default, partition = _table_like(table, f"{table}_default"), _table_like(table, name)
        is_of_week = (_run_id(default).between(first, end), _run_id(default) != end)
        rows = delete(default).where(*is_of_week).returning(*default.c).cte("moved")
        _limit_statement(tx, ends_at)
        tx.execute(insert(partition).from_select([column.name for column in partition.c], select(*rows.c)))
    _limit_statement(tx, ends_at)
    tx.execute(text(f"alter table {table} attach partition {name} for values from ('{first}') to ('{end}')"))


def _limit_statement(tx: Transaction, ends_at: float | None) -> None:
    """Limit the next statement to what is left of the time that others may wait."""
    if ends_at is not None:
        left = max(0.001, ends_at - time.monotonic())
        tx.execute(SET_LIMIT, limit="statement_timeout", milliseconds=_milliseconds(left))


def _milliseconds(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))


def _check_name(table: str, week: Week) -> str:
    return f"ck_{table}_keeps_out_{week.name}"


def _partitions_of(tx: Transaction, table: str) -> list[str]:
    return [name for (name,) in tx.rows(PARTITIONS, table=table)]


def _week_of(name: str) -> Week | None:
    match = _NAME.fullmatch(name)
    return Week.from_name(match[1]) if match and match[1] else None


def _table_like(table: str, name: str) -> Table:
    """Return a table with the same columns under a partition's name, former columns included."""
    former = (Column(former) for former in FORMER_COLUMNS.get(table, ()))
    return Table(name, MetaData(), *(Column(column.name, column.type) for column in metadata.tables[table].c), *former)


def _run_id(table: Table) -> Column[Any]:
    return table.c["run_id"] if "run_id" in table.c else table.c["id"]


CALL_BATCH = 500
DELETE_STRAY_CALLS = text("""
    delete from model_calls_default where (run_id, id) in (
        select run_id, id from model_calls_default where id < :before limit :most
    )
""")
DELETE_STRAY_PARTS = text("""
    delete from call_parts_default where run_id in (
        select distinct p.run_id from call_parts_default p
        where not exists (select from model_calls m where m.run_id = p.run_id) limit :most
    )
""")
STRAY_BATCH = 100  # runs; each may have thousands of rows
STRAYS = text(f"""
    select r.id from runs_default r
    where r.created_at < :before and r.status not in ({", ".join(f"'{status}'" for status in OPEN_STATUSES)})
      and not exists (select from conversations c where c.id = r.conversation_id and c.last_run = r.id)
    order by r.created_at, r.id limit :most
""")  # noqa: S608 (constants only)
_DELETE_STRAYS = [
    delete(table).where(_run_id(table) == func.any(bindparam("some", type_=ARRAY(Uuid))))
    for table in (metadata.tables[name] for name in reversed(PARTITIONED))  # runs last
]
_DELETE_ORPHANED_ROWS = """
    delete from {table}_default where run_id in (
        select distinct l.run_id from {table}_default l
        where l.run_id < :end and not exists (select from runs r where r.id = l.run_id) limit :most
    )
"""
