"""Weekly partitions of a run's tables: made ahead, dropped whole by retention.

A run's id is a UUIDv7, so a week of ids is a range of ids: `runs_p2026w47` holds the runs of ISO week 47 and its six
neighbours what belongs to them. What no week covers lies in `runs_default`; a week that is made later moves its rows
over from there first, since PostgreSQL refuses a new partition whose rows the default one has.

Both functions want a transaction of their own. They take strong locks and give up on one after half a second, before
PostgreSQL looks for deadlocks: whoever works with runs never loses against them, and the next tick tries again.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import Column, Delete, MetaData, Table, bindparam, delete, exists, insert, select, text

from canvas.state import RunStatus
from store.database import Transaction
from store.ids import first_id_at
from store.schema import PARTITIONED, metadata, runs

OPEN = tuple(status.value for status in RunStatus if not status.is_over)
"""Statuses of a run that is not over (those of the index `ix_runs_open`)."""

LOCK_BRIEFLY = text("set local lock_timeout = '500ms'")  # below deadlock_timeout, which is 1 s
PARTITIONS = text(
    "select child.relname from pg_inherits join pg_class child on child.oid = inhrelid"
    " where inhparent = to_regclass(:table) order by 1"
)
HAS_OPEN_RUN = select(
    exists().where(runs.c.id >= bindparam("first"), runs.c.id < bindparam("end"), runs.c.status.in_(OPEN))
)

_NAME = re.compile(rf"(?:{'|'.join(PARTITIONED)})_(?:default|p(\d{{4}})w(\d{{2}}))")


@dataclass(frozen=True, slots=True, order=True)
class Week:
    """An ISO week in UTC."""

    year: int
    number: int

    @classmethod
    def of(cls, moment: datetime) -> "Week":
        """The week a moment lies in."""
        year, number, _ = moment.astimezone(UTC).isocalendar()
        return cls(year, number)

    @property
    def begins(self) -> datetime:
        """Monday, midnight."""
        return datetime.combine(date.fromisocalendar(self.year, self.number, 1), time(), UTC)

    @property
    def ends(self) -> datetime:
        """The next Monday, midnight: no longer part of it."""
        return self.begins + timedelta(weeks=1)

    def partition(self, table: str) -> str:
        """The name of a table's partition."""
        return f"{table}_p{self.year}w{self.number:02}"


def is_partition(table: str) -> bool:
    """Whether a table is a partition of ours and no table of its own."""
    return _NAME.fullmatch(table) is not None


def ensure(tx: Transaction, now: datetime, weeks: int = 4) -> list[str]:
    """Make the partitions of this week and `weeks` more that are not there yet; their names."""
    wanted = [Week.of(now + timedelta(weeks=ahead)) for ahead in range(weeks + 1)]
    made: list[str] = []
    tx.run(LOCK_BRIEFLY)
    for table in PARTITIONED:
        there = _partitions_of(tx, table)
        lacking = [week for week in wanted if week.partition(table) not in there]
        for week in lacking:
            _make(tx, table, week)
            made.append(week.partition(table))
    return made


def drop_before(tx: Transaction, moment: datetime) -> list[str]:
    """Drop the weeks that ended by `moment` and whose runs are all over; the names of the partitions dropped.

    A run that is not over keeps its week. Runs in the default partition go one by one.
    """
    tx.run(LOCK_BRIEFLY)
    partitions = {table: _partitions_of(tx, table) for table in PARTITIONED}
    weeks = sorted({week for names in partitions.values() for week in map(_week_of, names) if week is not None})
    dropped: list[str] = []
    for week in weeks:
        names = [week.partition(table) for table in PARTITIONED if week.partition(table) in partitions[table]]
        if week.ends <= moment and _is_over(tx, week, names):
            tx.run(text(f"drop table {', '.join(names)}"))
            dropped += names
    for stray in _STRAYS:
        tx.run(stray, end=first_id_at(moment))
    return dropped


def _make(tx: Transaction, table: str, week: Week) -> None:
    """Build the week beside its table and attach it: that leaves the other weeks free for work meanwhile."""
    name, first, end = week.partition(table), first_id_at(week.begins), first_id_at(week.ends)
    tx.run(text(f"create table {name} (like {table} including all)"))
    tx.run(text(f"lock table {table}_default in access exclusive mode"))
    default, partition = _twin(table, f"{table}_default"), _twin(table, name)
    moved = delete(default).where(_run_id(default).between(first, end), _run_id(default) != end).returning(*default.c)
    rows = moved.cte("moved")
    tx.run(insert(partition).from_select([column.name for column in partition.c], select(*rows.c)))
    tx.run(text(f"alter table {table} attach partition {name} for values from ('{first}') to ('{end}')"))


def _is_over(tx: Transaction, week: Week, names: Sequence[str]) -> bool:
    """Whether no run of the week is open, now and until the transaction ends."""
    if tx.scalar(HAS_OPEN_RUN, first=first_id_at(week.begins), end=first_id_at(week.ends)):
        return False
    tx.run(text(f"lock table {', '.join(names)} in access exclusive mode"))
    return not tx.scalar(HAS_OPEN_RUN, first=first_id_at(week.begins), end=first_id_at(week.ends))


def _partitions_of(tx: Transaction, table: str) -> list[str]:
    return [name for (name,) in tx.rows(PARTITIONS, table=table)]


def _week_of(name: str) -> Week | None:
    match = _NAME.fullmatch(name)
    return Week(int(match[1]), int(match[2])) if match and match[1] else None


def _twin(table: str, name: str) -> Table:
    """A table's columns under a partition's name."""
    return Table(name, MetaData(), *(Column(column.name, column.type) for column in metadata.tables[table].c))


def _run_id(table: Table) -> Column[Any]:
    return table.c["run_id"] if "run_id" in table.c else table.c["id"]


def _strays_of(table: str) -> Delete:
    default = _twin(table, f"{table}_default")
    still_open = select(runs.c.id).where(runs.c.id < bindparam("end"), runs.c.status.in_(OPEN))
    return delete(default).where(_run_id(default) < bindparam("end"), _run_id(default).not_in(still_open))


_STRAYS = [_strays_of(table) for table in reversed(PARTITIONED)]  # runs last: they tell what is open
