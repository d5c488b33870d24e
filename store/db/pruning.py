"""Partition pruning by name: a statement about one run names the partitions of that run's week.

PostgreSQL keeps one generic plan for a prepared statement. For a partitioned table that plan contains every partition,
and each execution locks them all, with their indexes, until the transaction ends. With a year of weekly partitions a
single advance filled a good part of the server's lock table. A statement that is given a run's id only concerns rows of
one week, and the id (a UUIDv7) says which. So the statement is sent with the names of that week's partitions in place
of the tables' names, and its plan contains one partition.

A week that has no partitions yet has its rows in the default partition, and the rows move when the week's partitions
are created. A statement about a run of such a week names the tables themselves and contains the run's id as a literal.
It is planned at each execution, and a plan for one id also contains one partition only.

Measurements and alternatives: docs/decisions/0032-statements-name-their-week.md.
"""

import re
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import text

from canvas.ids import RunId
from store.primitives.weeks import Week
from store.tables.runs import PARTITIONED, WITH_OWN_RETENTION

RUN_ID_NAMES = ("run_id", "of_run")
"""Parameter names that carry a run's id. A statement with one of them concerns rows of that run only."""
RUN_IDS_NAME = "run_ids"
"""The parameter name that carries several run ids. If all runs are of one week, the statement names its partitions."""

PARENT = ""
"""No partition: the statement concerns no run, or runs of several weeks, and names the tables themselves."""

PRUNED = tuple(table for table in PARTITIONED if table not in WITH_OWN_RETENTION)
"""Tables in whose place statements name partitions. The others may lack the partitions of a week that these have; the
hot path only inserts into them, and an insert finds its partition by itself."""

MIN_READ_INTERVAL = 60.0  # seconds between two queries of the catalogue for weeks that may have been created meanwhile

SELECT_WEEKS = text("""
    select substring(child.relname from '_p(\\d{4}w\\d{2})$') from pg_inherits
    join pg_class child on child.oid = inhrelid
    where inhparent = any(select to_regclass(name) from unnest(cast(:tables as text[])) as name)
    group by 1 having count(*) = cardinality(cast(:tables as text[]))
""")

_WORDS = re.compile(rf"'(?:[^']|'')*'|\b(?:{'|'.join(PRUNED)})\b".encode())


class Pruning:
    """The weeks that have a partition of every table in PRUNED, as this process last read them from the catalogue.

    A week that is missing here costs planning time and never a row, because the tables' own names reach every
    partition. If a statement names a partition that was dropped, the server reports an error
    (`store.db.db_errors.names_dropped_week`), and the weeks are read again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._weeks: tuple[Sequence[int], Sequence[int], Sequence[str]] = ([], [], [])  # first ids, ends, names
        self._read_at: float | None = None
        self._is_missing_one = False

    def partition_of(self, run_id: RunId) -> str | None:
        """Return the partition suffix of a run's week (`p2026w47`); None if the week has no known partitions."""
        firsts, ends, names = self._weeks
        at = bisect_right(firsts, run_id.int) - 1
        if at >= 0 and run_id.int < ends[at]:
            return names[at]
        self._is_missing_one = True
        return None

    def partition_of_all(self, run_ids: Iterable[RunId]) -> str:
        """Return the partition suffix that all these runs share; PARENT if they share none."""
        partitions = {self.partition_of(run_id) for run_id in run_ids}
        return (partitions.pop() or PARENT) if len(partitions) == 1 else PARENT

    def group_by_week(self, runs: Iterable[Sequence[Any]]) -> list[list[Any]]:
        """Group tuples that begin with a run's id by the run's week; return the groups in the order of weeks."""
        groups: dict[str, list[Any]] = {}
        for entry in runs:
            groups.setdefault(self.partition_of(entry[0]) or PARENT, []).append(entry)
        return [groups[name] for name in sorted(groups)]

    def claim_read(self) -> bool:
        """Return whether the caller has to read the weeks from the catalogue now. Only one caller gets True."""
        now = time.monotonic()
        with self._lock:
            is_due = self._read_at is None or (self._is_missing_one and now - self._read_at >= MIN_READ_INTERVAL)
            if is_due:
                self._read_at, self._is_missing_one = now, False
            return is_due

    def set_weeks(self, names: Iterable[str | None]) -> None:
        """Replace the known weeks by these names (`2026w47`). Other names are ignored."""
        weeks = sorted(week for week in map(Week.from_name, filter(None, names)) if week is not None)
        self._weeks = (
            [week.first_id.int for week in weeks],
            [week.end_id.int for week in weeks],
            [f"p{week.name}" for week in weeks],
        )

    def invalidate(self) -> None:
        """Forget all weeks, and have the next caller read them again."""
        with self._lock:
            self._weeks, self._read_at = ([], [], []), None


def run_id_of(values: Mapping[str, Any]) -> RunId | None:
    """Return the run's id among a statement's values; None if there is none."""
    for name in RUN_ID_NAMES:
        if name in values:
            return values[name]
    return None


def name_partitions(sql: bytes, partition: str) -> bytes:
    """Return a statement that names a week's partitions instead of the tables, except inside string literals."""
    suffix = f"_{partition}".encode()
    return _WORDS.sub(lambda word: word[0] if word[0].startswith(b"'") else word[0] + suffix, sql)


def names_partitioned_table(sql: bytes) -> bool:
    """Return whether a statement names a partitioned table."""
    return any(not word[0].startswith(b"'") for word in _WORDS.finditer(sql))
