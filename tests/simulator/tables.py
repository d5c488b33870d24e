"""PostgreSQL as far as the protocol leans on it: tables in memory, READ COMMITTED, row locks, and one log.

A statement sees what was committed when it began, and its own transaction's writes. A row has at most one writer; who
wants it too waits, and then looks again at what has become of it, as PostgreSQL does. A commit that does not wait for
the disk lies in the log's tail until a later one that waits, or the log writer, has carried it there; a crash loses the
tail.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg import errors
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from store.db.guards import RowGuard
from tests.simulator.world import Actor, World

Data = Mapping[str, Any]

IDLE_AT_MOST = 5.0  # seconds in an open transaction between two statements
STATEMENT_AT_MOST = 10.0
DEADLOCK_AFTER = 1.0


class Unchanged:
    """Stands where a transaction has only locked a row."""


_UNCHANGED = Unchanged()


class Row:
    """One row: what was committed, and what its writer has made of it. None: there is none."""

    __slots__ = ("committed", "holder", "key", "pending", "table")

    def __init__(self, table: "Table", key: Any) -> None:
        self.table = table
        self.key = key
        self.committed: Data | None = None
        self.pending: Data | Unchanged | None = _UNCHANGED
        self.holder: Work | None = None


class Table:
    """Rows by key, and by the run they belong to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[Any, Row] = {}
        self.groups: dict[Any, dict[Any, Row]] = {}

    def row(self, key: Any, group: Any = None) -> Row:
        """The row of a key, made if there is none."""
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(self, key)
            self.groups.setdefault(group, {})[key] = row
        return row

    def of(self, group: Any) -> list[Row]:
        """All rows of a group, those that are no longer or not yet there included."""
        return list(self.groups.get(group, {}).values())

    def committed(self, group: Any = None) -> Iterator[Data]:
        """What everybody sees, of one group or of all."""
        for row in self.rows.values() if group is None else self.groups.get(group, {}).values():
            if row.committed is not None:
                yield row.committed


@dataclass(slots=True)
class Change:
    """One row that a commit has changed."""

    row: Row
    before: Data | None
    after: Data | None


class Work:
    """One transaction as the server sees it."""

    def __init__(self, server: "Server", actor: Actor | None) -> None:
        self.server = server
        self.actor = actor
        self.now = server.world.database_time
        self.last_heard = server.world.now
        self.touched: dict[Row, None] = {}
        self.waiting: list[Actor] = []
        self.waits_for: Work | None = None
        self.lock_timeout = STATEMENT_AT_MOST
        self.waits_for_disk = True
        self.is_at_work = False  # in a statement, hence not idle
        self.ended: str | None = None  # why the server has ended it
        self.advisory: list[str] = []

    def sees(self, row: Row) -> Data | None:
        """A row as this transaction sees it now."""
        if row.holder is self and row.pending is not _UNCHANGED:
            return row.pending  # pyright: ignore[reportReturnType] (not the mark)
        return row.committed

    def found(self, table: Table, group: Any, holds: Callable[[Data], bool]) -> list[tuple[Row, Data]]:
        """The rows of a group for which something holds, as of now."""
        result: list[tuple[Row, Data]] = []
        for row in table.groups.get(group, {}).values():
            data = self.sees(row)
            if data is not None and holds(data):
                result.append((row, data))
        return result

    def take(self, row: Row, holds: Callable[[Data], bool], *, skip_locked: bool = False) -> Data | None:
        """Lock a row that was found; None if it is not what was looked for any more (or taken, for `skip_locked`)."""
        if row.holder is not None and row.holder is not self:
            if skip_locked:
                return None
            self.wait_for(row)
        data = self.sees(row)
        if data is None or not holds(data):
            return None
        row.holder = self
        self.touched[row] = None
        return data

    def wait_for(self, row: Row) -> None:
        """Wait until nobody holds a row."""
        world, began = self.server.world, self.server.world.now
        while (holder := row.holder) is not None and holder is not self:
            self.waits_for = holder
            left = min(STATEMENT_AT_MOST, self.lock_timeout) - (world.now - began)
            if self._closes_a_circle():
                self.waits_for = None
                world.wait(DEADLOCK_AFTER)
                raise self.server.end(self, "deadlock detected", errors.DeadlockDetected, is_cut=False)
            holder.waiting.append(self.actor)  # pyright: ignore[reportArgumentType] (who waits is an actor)
            world.tell(f"waits for {row.table.name} {row.key}")
            came = left > 0 and world.wait(left)
            self.waits_for = None
            if self.ended is not None:
                raise self.server.refusal(self)
            if not came:
                raise self.server.end(
                    self, "canceling statement due to lock timeout", errors.LockNotAvailable, is_cut=False
                )

    def _closes_a_circle(self) -> bool:
        at: Work | None = self.waits_for
        while at is not None:
            if at is self:
                return True
            at = at.waits_for
        return False

    def put(self, row: Row, data: Data | None) -> None:
        """Write a row that this transaction holds."""
        if self.server.watch is not None:
            self.server.watch.written(self, row, self.sees(row), data)
        row.holder = self
        row.pending = data
        self.touched[row] = None

    def insert(self, table: Table, key: Any, group: Any, data: Data) -> None:
        """A new row. Raises IntegrityError if there is one; waits for who is about to make it."""
        row = table.row(key, group)
        if row.holder is not None and row.holder is not self:
            self.wait_for(row)
        if self.sees(row) is not None:
            raise self.server.end(self, f"duplicate key in {table.name}", errors.UniqueViolation, is_cut=False)
        self.put(row, data)

    def upsert(self, table: Table, key: Any, group: Any, new: Data, change: Callable[[Data], Data]) -> Data:
        """A new row, or a change of the one that is there, whoever has made it meanwhile."""
        row = table.row(key, group)
        if row.holder is not None and row.holder is not self:
            self.wait_for(row)
        old = self.sees(row)
        made = new if old is None else change(old)
        self.put(row, made)
        return made

    def try_advisory(self, name: str) -> bool:
        """A lock on a name, until the transaction ends."""
        if self.server.advisory.setdefault(name, self) is not self:
            return False
        self.advisory.append(name)
        return True


class Watch:
    """Who looks at every write and every commit."""

    def written(self, work: Work, row: Row, before: Data | None, after: Data | None) -> None:
        """A row is about to be written."""

    def committed(self, changes: list[Change]) -> None:
        """Rows have been changed, for all to see."""

    def forgotten(self, changes: list[Change]) -> None:
        """A crash has undone changes."""


@dataclass(eq=False)
class Server:
    """One PostgreSQL."""

    world: World
    watch: Watch | None = None
    tables: dict[str, Table] = field(default_factory=dict[str, Table])
    advisory: dict[str, Work] = field(default_factory=dict[str, Work])
    is_up: bool = True
    loses_answers: float = 0.0  # of commits: how likely
    versions_gone: set[UUID] = field(default_factory=set[UUID])  # all others are there
    unheard: set[UUID] = field(default_factory=set[UUID])  # leases whose claimer may not know that he has them
    _open: dict[Work, None] = field(default_factory=dict[Work, None])
    _tail: list[Change] = field(default_factory=list[Change])  # committed, and not yet on disk

    def __getitem__(self, name: str) -> Table:
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = Table(name)
        return table

    # -- transactions ------------------------------------------------------------------------------------------------
    def begin(self, actor: Actor | None) -> Work:
        """A transaction begins with its first statement."""
        if not self.is_up:
            raise away("connection refused")
        work = Work(self, actor)
        self._open[work] = None
        return work

    def commit(self, work: Work) -> None:
        """What was written is there for all; on disk as well, if it waits for that."""
        if work.ended is not None:
            raise self.refusal(work)
        changes: list[Change] = []
        for row in work.touched:
            if row.pending is not _UNCHANGED:
                changes.append(Change(row, row.committed, row.pending))  # pyright: ignore[reportArgumentType]
                row.committed = row.pending  # pyright: ignore[reportAttributeAccessIssue] (not the mark)
        self._let_go(work)
        if work.waits_for_disk:
            self._tail.clear()
        else:
            self._tail += changes
        if changes and self.watch is not None:
            self.watch.committed(changes)

    def roll_back(self, work: Work) -> None:
        """As if it had never been."""
        if work in self._open:
            self._let_go(work)

    def _let_go(self, work: Work) -> None:
        self._open.pop(work, None)
        for row in work.touched:
            row.holder, row.pending = None, _UNCHANGED
        work.touched.clear()
        for name in work.advisory:
            del self.advisory[name]
        work.advisory.clear()
        waiting, work.waiting = work.waiting, []
        for actor in waiting:
            self.world.wake(actor)

    def end(self, work: Work, why: str, kind: type[Exception], *, is_cut: bool) -> Exception:
        """The server ends a transaction; the error to raise."""
        work.ended = why
        self.roll_back(work)
        if kind is errors.UniqueViolation:
            return IntegrityError(why, None, kind(why))
        return OperationalError(why, None, kind(why), connection_invalidated=is_cut)

    def refusal(self, work: Work) -> OperationalError:
        """What a statement of a transaction hears that the server has ended."""
        return away(work.ended or "no transaction")

    # -- what happens to it ------------------------------------------------------------------------------------------
    def end_idle(self) -> None:
        """Transactions whose process has said nothing for five seconds are ended."""
        for work in list(self._open):
            if not work.is_at_work and self.world.now - work.last_heard > IDLE_AT_MOST:
                self.world.count("transaction ended by the server")
                self.end(
                    work, "terminating connection due to idle-in-transaction timeout", errors.AdminShutdown, is_cut=True
                )

    def is_claimed_on_disk(self, row: Row) -> bool:
        """Whether a crash would leave a row its lease."""
        return not any(
            change.row is row and (change.before or {}).get("lease_id") != (change.after or {}).get("lease_id")
            for change in self._tail
        )

    def write_log(self) -> None:
        """The log writer comes by."""
        self._tail.clear()

    def cut(self) -> None:
        """Every connection is gone, and what they had begun."""
        for work in list(self._open):
            work.ended = "server closed the connection unexpectedly"
            if work.waits_for is not None and work.actor is not None:
                self.world.wake(work.actor)
            self.roll_back(work)

    def crash(self) -> None:
        """The server dies: what had not reached the disk was never committed."""
        self.cut()
        lost, self._tail = self._tail, []
        for change in reversed(lost):
            change.row.committed = change.before
        if lost:
            self.world.count("commit lost in a crash")
        if lost and self.watch is not None:
            self.watch.forgotten(lost)


def guard_failed(guard: RowGuard) -> DatabaseError:
    """The error of `expect_rows`: a write did not hit the rows that its writer expects."""
    raised = errors.DatabaseError(guard.problem)
    raised.sqlstate = guard.value
    return DatabaseError("", None, raised)


def away(why: str) -> OperationalError:
    """The database is not there."""
    return OperationalError(why, None, errors.ConnectionFailure(why), connection_invalidated=True)
