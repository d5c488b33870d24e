"""The features of PostgreSQL that the protocol uses: tables in memory, READ COMMITTED, row locks, and one log.

A statement sees what was committed when it began, and its own transaction's writes. A row has at most one
writer; another transaction waits, and then reads the row again, as in PostgreSQL. An asynchronous commit stays in the
log's tail until a later synchronous one, or the log writer, has written it to disk; a crash loses the tail.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg import errors
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from store.db.guards import RowGuard
from tests.simulator.simulation import Actor, Simulation

Data = Mapping[str, Any]

IDLE_TIMEOUT = 5.0  # seconds in an open transaction between two statements
STATEMENT_TIMEOUT = 10.0
DEADLOCK_TIMEOUT = 1.0


class Unchanged:
    """Marks a row that a transaction has only locked."""


_UNCHANGED = Unchanged()


class Row:
    """One row: its committed data, and the pending data of its writer. None: the row does not exist."""

    __slots__ = ("committed", "holder", "key", "pending", "table")

    def __init__(self, table: "Table", key: Any) -> None:
        self.table = table
        self.key = key
        self.committed: Data | None = None
        self.pending: Data | Unchanged | None = _UNCHANGED
        self.holder: ServerTransaction | None = None


class Table:
    """Rows by key, and by the run they belong to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[Any, Row] = {}
        self.groups: dict[Any, dict[Any, Row]] = {}

    def row(self, key: Any, group: Any = None) -> Row:
        """Return the row of a key; create it if it does not exist."""
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(self, key)
            self.groups.setdefault(group, {})[key] = row
        return row

    def of(self, group: Any) -> list[Row]:
        """Return all rows of a group, including deleted and uncommitted ones."""
        return list(self.groups.get(group, {}).values())

    def committed(self, group: Any = None) -> Iterator[Data]:
        """Yield the committed data of one group or of all."""
        for row in self.rows.values() if group is None else self.groups.get(group, {}).values():
            if row.committed is not None:
                yield row.committed


@dataclass(slots=True)
class Change:
    """One row that a commit has changed."""

    row: Row
    before: Data | None
    after: Data | None


class ServerTransaction:
    """One transaction as the server sees it."""

    def __init__(self, server: "Server", actor: Actor | None) -> None:
        self.server = server
        self.actor = actor
        self.now = server.simulation.database_time
        self.last_active_at = server.simulation.now
        self.touched: dict[Row, None] = {}
        self.waiting: list[Actor] = []
        self.blocked_by: ServerTransaction | None = None
        self.lock_timeout = STATEMENT_TIMEOUT
        self.is_synchronous = True
        self.is_in_statement = False  # in a statement, hence not idle
        self.end_reason: str | None = None  # why the server has ended it
        self.advisory: list[str] = []

    def visible(self, row: Row) -> Data | None:
        """Return a row's data as this transaction sees it."""
        if row.holder is self and row.pending is not _UNCHANGED:
            return row.pending  # pyright: ignore[reportReturnType] (not the mark)
        return row.committed

    def find_rows(self, table: Table, group: Any, predicate: Callable[[Data], bool]) -> list[tuple[Row, Data]]:
        """Return the rows of a group that match a predicate."""
        result: list[tuple[Row, Data]] = []
        for row in table.groups.get(group, {}).values():
            data = self.visible(row)
            if data is not None and predicate(data):
                result.append((row, data))
        return result

    def lock_row(self, row: Row, predicate: Callable[[Data], bool], *, skip_locked: bool = False) -> Data | None:
        """Lock a row; None if it no longer matches the predicate (or is locked, with `skip_locked`)."""
        if row.holder is not None and row.holder is not self:
            if skip_locked:
                return None
            self.wait_for(row)
        data = self.visible(row)
        if data is None or not predicate(data):
            return None
        row.holder = self
        self.touched[row] = None
        return data

    def wait_for(self, row: Row) -> None:
        """Wait until no other transaction has locked the row."""
        simulation, began = self.server.simulation, self.server.simulation.now
        while (holder := row.holder) is not None and holder is not self:
            self.blocked_by = holder
            remaining = min(STATEMENT_TIMEOUT, self.lock_timeout) - (simulation.now - began)
            if self._is_deadlocked():
                self.blocked_by = None
                simulation.wait(DEADLOCK_TIMEOUT)
                raise self.server.end(self, "deadlock detected", errors.DeadlockDetected, is_cut=False)
            holder.waiting.append(self.actor)  # pyright: ignore[reportArgumentType] (only actors wait)
            simulation.trace(f"waits for {row.table.name} {row.key}")
            was_woken = remaining > 0 and simulation.wait(remaining)
            self.blocked_by = None
            if self.end_reason is not None:
                raise self.server.refusal(self)
            if not was_woken:
                raise self.server.end(
                    self, "canceling statement due to lock timeout", errors.LockNotAvailable, is_cut=False
                )

    def _is_deadlocked(self) -> bool:
        at: ServerTransaction | None = self.blocked_by
        while at is not None:
            if at is self:
                return True
            at = at.blocked_by
        return False

    def put(self, row: Row, data: Data | None) -> None:
        """Write a row that this transaction has locked."""
        if self.server.observer is not None:
            self.server.observer.on_write(self, row, self.visible(row), data)
        row.holder = self
        row.pending = data
        self.touched[row] = None

    def insert(self, table: Table, key: Any, group: Any, data: Data) -> None:
        """Insert a row. Waits for another transaction that inserts it; raises IntegrityError if it exists."""
        row = table.row(key, group)
        if row.holder is not None and row.holder is not self:
            self.wait_for(row)
        if self.visible(row) is not None:
            raise self.server.end(self, f"duplicate key in {table.name}", errors.UniqueViolation, is_cut=False)
        self.put(row, data)

    def upsert(self, table: Table, key: Any, group: Any, new: Data, change: Callable[[Data], Data]) -> Data:
        """Insert a row, or change the existing one."""
        row = table.row(key, group)
        if row.holder is not None and row.holder is not self:
            self.wait_for(row)
        old = self.visible(row)
        made = new if old is None else change(old)
        self.put(row, made)
        return made

    def try_advisory(self, name: str) -> bool:
        """Try to lock a name until the transaction ends."""
        if self.server.advisory.setdefault(name, self) is not self:
            return False
        self.advisory.append(name)
        return True


class Observer:
    """Hooks for every write, commit and crash."""

    def on_write(self, tx: ServerTransaction, row: Row, before: Data | None, after: Data | None) -> None:
        """A row is about to be written."""

    def on_commit(self, changes: list[Change]) -> None:
        """A commit has changed rows."""

    def on_crash(self, changes: list[Change]) -> None:
        """A crash has undone changes."""


@dataclass(eq=False)
class Server:
    """One PostgreSQL."""

    simulation: Simulation
    observer: Observer | None = None
    tables: dict[str, Table] = field(default_factory=dict[str, Table])
    advisory: dict[str, ServerTransaction] = field(default_factory=dict[str, ServerTransaction])
    is_up: bool = True
    lost_answer_probability: float = 0.0  # of a commit
    deleted_versions: set[UUID] = field(default_factory=set[UUID])  # all others exist
    unconfirmed_leases: set[UUID] = field(default_factory=set[UUID])  # leases of claims whose commit answer was lost
    _open: dict[ServerTransaction, None] = field(default_factory=dict[ServerTransaction, None])
    _tail: list[Change] = field(default_factory=list[Change])  # committed, and not yet on disk

    def __getitem__(self, name: str) -> Table:
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = Table(name)
        return table

    # -- transactions ------------------------------------------------------------------------------------------------
    def begin(self, actor: Actor | None) -> ServerTransaction:
        """Begin a transaction, at its first statement."""
        if not self.is_up:
            raise connection_error("connection refused")
        tx = ServerTransaction(self, actor)
        self._open[tx] = None
        return tx

    def commit(self, tx: ServerTransaction) -> None:
        """Make the writes of a transaction visible, and durable if it is synchronous."""
        if tx.end_reason is not None:
            raise self.refusal(tx)
        changes: list[Change] = []
        for row in tx.touched:
            if row.pending is not _UNCHANGED:
                changes.append(Change(row, row.committed, row.pending))  # pyright: ignore[reportArgumentType]
                row.committed = row.pending  # pyright: ignore[reportAttributeAccessIssue] (not the mark)
        self._release(tx)
        if tx.is_synchronous:
            self._tail.clear()
        else:
            self._tail += changes
        if changes and self.observer is not None:
            self.observer.on_commit(changes)

    def roll_back(self, tx: ServerTransaction) -> None:
        """Discard the writes and locks of a transaction."""
        if tx in self._open:
            self._release(tx)

    def _release(self, tx: ServerTransaction) -> None:
        self._open.pop(tx, None)
        for row in tx.touched:
            row.holder, row.pending = None, _UNCHANGED
        tx.touched.clear()
        for name in tx.advisory:
            del self.advisory[name]
        tx.advisory.clear()
        waiting, tx.waiting = tx.waiting, []
        for actor in waiting:
            self.simulation.wake(actor)

    def end(self, tx: ServerTransaction, reason: str, kind: type[Exception], *, is_cut: bool) -> Exception:
        """End a transaction; return the error to raise."""
        tx.end_reason = reason
        self.roll_back(tx)
        if kind is errors.UniqueViolation:
            return IntegrityError(reason, None, kind(reason))
        return OperationalError(reason, None, kind(reason), connection_invalidated=is_cut)

    def refusal(self, tx: ServerTransaction) -> OperationalError:
        """Return the error of a statement in a transaction that the server has ended."""
        return connection_error(tx.end_reason or "no transaction")

    # -- faults ------------------------------------------------------------------------------------------------------
    def end_idle(self) -> None:
        """End transactions that were idle for more than five seconds."""
        for tx in list(self._open):
            if not tx.is_in_statement and self.simulation.now - tx.last_active_at > IDLE_TIMEOUT:
                self.simulation.count("transaction ended by the server")
                self.end(
                    tx, "terminating connection due to idle-in-transaction timeout", errors.AdminShutdown, is_cut=True
                )

    def is_lease_durable(self, row: Row) -> bool:
        """Whether a row's lease would survive a crash."""
        return not any(
            change.row is row and (change.before or {}).get("lease_id") != (change.after or {}).get("lease_id")
            for change in self._tail
        )

    def write_log(self) -> None:
        """Write the log's tail to disk."""
        self._tail.clear()

    def cut(self) -> None:
        """Cut every connection, and roll back the open transactions."""
        for tx in list(self._open):
            tx.end_reason = "server closed the connection unexpectedly"
            if tx.blocked_by is not None and tx.actor is not None:
                self.simulation.wake(tx.actor)
            self.roll_back(tx)

    def crash(self) -> None:
        """Crash: commits that were not on disk are lost."""
        self.cut()
        lost, self._tail = self._tail, []
        for change in reversed(lost):
            change.row.committed = change.before
        if lost:
            self.simulation.count("commit lost in a crash")
        if lost and self.observer is not None:
            self.observer.on_crash(lost)


def guard_failed(guard: RowGuard) -> DatabaseError:
    """The error of `expect_rows`: a write did not hit the rows that its writer expects."""
    raised = errors.DatabaseError(guard.problem)
    raised.sqlstate = guard.value
    return DatabaseError("", None, raised)


def connection_error(reason: str) -> OperationalError:
    """Return the error of a database that cannot be reached."""
    return OperationalError(reason, None, errors.ConnectionFailure(reason), connection_invalidated=True)
