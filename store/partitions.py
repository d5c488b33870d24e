"""Weekly partitions of a run's tables: made ahead, dropped whole by retention.

A run's id is a UUIDv7, so a week of ids is a range of ids: `runs_p2026w47` holds the runs of ISO week 47 and its six
neighbours what belongs to them. What no week covers lies in `runs_default`; a week that is made later moves its rows
over from there first, since PostgreSQL refuses a new partition whose rows the default one has.

`ensure` and `drop` want a transaction of their own. They take strong locks and give up on one after half a second,
before PostgreSQL looks for deadlocks: whoever works with runs never loses against them, and the next hour tries again.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Column,
    Delete,
    MetaData,
    Table,
    bindparam,
    delete,
    exists,
    insert,
    literal_column,
    or_,
    select,
    text,
)

from canvas.state import RunStatus
from store.ids import first_id_at
from store.schema import PARTITIONED, metadata, runs
from store.tenant_schema import conversations
from store.transaction import Transaction
from store.weeks import Week

OPEN = tuple(status.value for status in RunStatus if not status.is_over)
"""Statuses of a run that is not over (those of the index `ix_runs_open`)."""

ROOM = {"runs": 70, "scopes": 70, "turns": 70}
"""Fill factors in percent, of rows that change with every step: what is left has room for a row of 2 KB, the longest.

So there is room for a row's next version, or PostgreSQL makes some by clearing old ones away (migration 0012).
"""

_OPEN = [literal_column(f"'{status}'") for status in OPEN]
IS_OPEN = runs.c.status.in_(_OPEN)

LOCK_BRIEFLY = text("set local lock_timeout = '500ms'")  # below deadlock_timeout, which is 1 s
PARTITIONS = text(
    "select child.relname from pg_inherits join pg_class child on child.oid = inhrelid"
    " where inhparent = to_regclass(:table) order by 1"
)
HAS_OPEN_RUN = select(exists().where(runs.c.id >= bindparam("first"), runs.c.id < bindparam("end"), IS_OPEN))

_NAME = re.compile(rf"(?:{'|'.join(PARTITIONED)})_(?:default|p(\d{{4}}w\d{{2}}))")


def is_partition(table: str) -> bool:
    """Whether a table is a partition of ours and no table of its own."""
    return _NAME.fullmatch(table) is not None


def ensure(tx: Transaction, now: datetime, weeks: int = 4, tables: Iterable[str] = PARTITIONED) -> list[str]:
    """Make the partitions of this week and `weeks` more that are not there yet; their names.

    While there is traffic each table wants a transaction of its own: whoever keeps one table's default partition for
    himself and waits for the next one's, waits for those who wait for him.
    """
    wanted = [Week.of(now + timedelta(weeks=ahead)) for ahead in range(weeks + 1)]
    made: list[str] = []
    tx.run(LOCK_BRIEFLY)
    for table in tables:
        there = _partitions_of(tx, table)
        lacking = [week for week in wanted if week.partition(table) not in there]
        for week in lacking:
            _make(tx, table, week)
            made.append(week.partition(table))
    return made


def ended_by(tx: Transaction, moment: datetime) -> list[Week]:
    """The weeks that ended by `moment` and of which something is left, oldest first."""
    names = [name for table in PARTITIONED for name in _partitions_of(tx, table)]
    return sorted({week for week in map(_week_of, names) if week is not None and week.ends <= moment})


def has_open_run(tx: Transaction, week: Week) -> bool:
    """Whether a run of the week is not over."""
    return bool(tx.scalar(HAS_OPEN_RUN, first=week.first, end=week.end))


def drop(tx: Transaction, table: str, week: Week) -> str | None:
    """Drop a week of one table; its name, None if it is gone already or a run of the week is not over.

    `runs` goes first: what belongs to a run is never looked for without its row. Each table has a transaction of its
    own, since everybody who works with it waits while PostgreSQL takes the partition out: some milliseconds, and half
    a second at most if one of them does not come to an end. (DETACH CONCURRENTLY would not make them wait; it refuses
    a table that has a default partition.)
    """
    name = week.partition(table)
    tx.run(LOCK_BRIEFLY)
    if name not in _partitions_of(tx, table):
        return None
    tx.run(text(f"lock table only {table} in access exclusive mode"))
    tx.run(text(f"lock table {name} in access exclusive mode"))  # who knows the week names it, and not the table
    if has_open_run(tx, week):
        return None
    tx.run(text(f"drop table {name}"))
    return name


def drop_strays(tx: Transaction, moment: datetime) -> int:
    """Delete the runs before `moment` that no week covers, one by one; how many rows that were.

    Those that are not over stay, and those that their conversation goes on from.
    """
    return sum(tx.run(stray, end=first_id_at(moment)) for stray in _STRAYS)


def _make(tx: Transaction, table: str, week: Week) -> None:
    """Build the week beside its table and attach it: that leaves the other weeks free for work meanwhile."""
    name, first, end = week.partition(table), week.first, week.end
    tx.run(text(f"create table {name} (like {table} including all)"))
    if table in ROOM:
        tx.run(text(f"alter table {name} set (fillfactor = {ROOM[table]})"))
    tx.run(text(f"lock table {table}_default in access exclusive mode"))
    default, partition = _twin(table, f"{table}_default"), _twin(table, name)
    moved = delete(default).where(_run_id(default).between(first, end), _run_id(default) != end).returning(*default.c)
    rows = moved.cte("moved")
    tx.run(insert(partition).from_select([column.name for column in partition.c], select(*rows.c)))
    tx.run(text(f"alter table {table} attach partition {name} for values from ('{first}') to ('{end}')"))


def _partitions_of(tx: Transaction, table: str) -> list[str]:
    return [name for (name,) in tx.rows(PARTITIONS, table=table)]


def _week_of(name: str) -> Week | None:
    match = _NAME.fullmatch(name)
    return Week.named(match[1]) if match and match[1] else None


def _twin(table: str, name: str) -> Table:
    """A table's columns under a partition's name."""
    return Table(name, MetaData(), *(Column(column.name, column.type) for column in metadata.tables[table].c))


def _run_id(table: Table) -> Column[Any]:
    return table.c["run_id"] if "run_id" in table.c else table.c["id"]


def _strays_of(table: str) -> Delete:
    default, strays = _twin(table, f"{table}_default"), _twin("runs", "runs_default")
    goes_on = exists().where(conversations.c.id == strays.c.conversation_id, conversations.c.last_run == strays.c.id)
    needed = select(strays.c.id).where(strays.c.id < bindparam("end"), or_(strays.c.status.in_(_OPEN), goes_on))
    return delete(default).where(_run_id(default) < bindparam("end"), _run_id(default).not_in(needed))


_STRAYS = [_strays_of(table) for table in reversed(PARTITIONED)]  # runs last: they tell what is open
