"""Partition pruning by name: a statement about one run names the partition of that run's week.

A kept plan of a partitioned table has every partition in it, and PostgreSQL locks them all, with their indexes, until
the transaction ends: with a year of weeks one step filled a good part of the server's lock table. A statement that
has a run's id is about rows of one week, so it is sent with the names of that week's partitions in place of the
tables' names. Its kept plan has one partition.

Where a week has no partition its rows lie in the default partition, and move when the week is made. Such a statement
names the tables as they are, and its run's id stands in it as a literal: it is planned each time, and a plan for one
id has one partition as well.
"""

import re
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text

from store.primitives.weeks import Week
from store.tables.runs import PARTITIONED

RUN = ("run_id", "of_run")
"""Names under which a statement is given the one run that all its rows of partitioned tables belong to."""
RUNS = "run_ids"
"""The name under which a statement is given several runs. If all are of one week, it names that week's partitions."""

PARENT = ""
"""The statement is about no run, or about runs of several weeks: it names the tables as they are."""

SOONEST = 60.0  # seconds between two readings of the catalogue, for a week that may have been made meanwhile

WEEKS = text("""
    select substring(child.relname from '_p(\\d{4}w\\d{2})$') from pg_inherits
    join pg_class child on child.oid = inhrelid
    where inhparent = any(select to_regclass(name) from unnest(cast(:tables as text[])) as name)
    group by 1 having count(*) = cardinality(cast(:tables as text[]))
""")

_WORDS = re.compile(rf"'(?:[^']|'')*'|\b(?:{'|'.join(PARTITIONED)})\b".encode())


class Pruning:
    """The weeks that have a partition of every table, as a process has read them last.

    A week that is not known costs planning, never a row: the tables' own names reach every partition. A partition that
    is gone is an error of the database (`store.primitives.db_errors.names_a_week_that_is_gone`), after which the weeks
    are read again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._weeks: tuple[Sequence[int], Sequence[int], Sequence[str]] = ([], [], [])  # first ids, ends, names
        self._read_at: float | None = None
        self._is_missing_one = False

    def partition_of(self, run_id: UUID) -> str | None:
        """Return the name of a run's week if the week has partitions: `p2026w47`."""
        firsts, ends, names = self._weeks
        at = bisect_right(firsts, run_id.int) - 1
        if at >= 0 and run_id.int < ends[at]:
            return names[at]
        self._is_missing_one = True
        return None

    def partition_of_all(self, run_ids: Iterable[UUID]) -> str:
        """Return the name of the week of all these runs; PARENT if there is no such week."""
        found = {self.partition_of(run_id) for run_id in run_ids}
        return (found.pop() or PARENT) if len(found) == 1 else PARENT

    def by_week(self, runs: Iterable[Sequence[Any]]) -> list[list[Any]]:
        """Return tuples that begin with a run's id, those of one week together, in the order of weeks."""
        groups: dict[str, list[Any]] = {}
        for entry in runs:
            groups.setdefault(self.partition_of(entry[0]) or PARENT, []).append(entry)
        return [groups[name] for name in sorted(groups)]

    def must_be_read(self) -> bool:
        """Return whether the caller is to read the weeks now; the next caller is not asked to."""
        now = time.monotonic()
        with self._lock:
            is_due = self._read_at is None or (self._is_missing_one and now - self._read_at >= SOONEST)
            if is_due:
                self._read_at, self._is_missing_one = now, False
            return is_due

    def learn(self, names: Iterable[str | None]) -> None:
        """Take over the names of all weeks: `2026w47`. Other names are ignored."""
        weeks = sorted(week for week in map(Week.named, filter(None, names)) if week is not None)
        self._weeks = (
            [week.first.int for week in weeks],
            [week.end.int for week in weeks],
            [f"p{week.name}" for week in weeks],
        )

    def forget(self) -> None:
        """Trust no name any more, and have the weeks read again."""
        with self._lock:
            self._weeks, self._read_at = ([], [], []), None


def run_of(given: Mapping[str, Any]) -> UUID | None:
    """Return the run that a statement is about; None if its values name none."""
    for name in RUN:
        if name in given:
            return given[name]
    return None


def for_week(sql: bytes, partition: str) -> bytes:
    """Return a statement with the names of a week's partitions in place of the tables' names."""
    suffix = f"_{partition}".encode()
    return _WORDS.sub(lambda word: word[0] if word[0].startswith(b"'") else word[0] + suffix, sql)


def is_about_runs(sql: bytes) -> bool:
    """Return whether a statement names a partitioned table."""
    return any(not word[0].startswith(b"'") for word in _WORDS.finditer(sql))
