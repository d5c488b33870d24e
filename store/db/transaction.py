"""A transaction on one connection: when its statements are sent, and which of them are waited for.

A round trip to PostgreSQL costs more than most statements. So statements travel in a pipeline (`store.db.pipeline`):
they are sent one after the other, and their replies are received together at the next wait. There are three ways to
send one:

- `rows`, `one_or_none`, `scalar` and `execute` send a statement and wait for its result, and so for the results of
  everything that was sent before it.
- `send` sends a statement and returns a PendingResult. Reading that waits.
- `write` queues a write whose result the caller does not read. It is sent with the next statement or with the commit.

A transaction that reads and then writes takes two round trips:

    begin()            nothing is sent yet
    send(TRY_LOCK)     begin, TRY_LOCK ->
    rows(UNAPPLIED)    UNAPPLIED ->                    <- all results, one round trip
    write(SAVE), ...   nothing is sent yet
    commit()           SAVE, ..., commit ->            <- all results, one round trip

A transaction of nothing but different writes takes one round trip and is one statement: `commit` combines its writes
(`store.db.compiled_statements.combine_writes`), and neither `begin` nor `commit` is sent. An advance that knows its run
from the cache is such a transaction (docs/protocol.md, "One-statement advance").

The caller cannot look at the result of a write before it commits, because both are sent together. So the server does: a
write may have a check (`Write.check`), which fails if the write did not change the rows that it should have changed.
After a failed statement the server skips everything behind it in the pipeline, including the commit.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import psycopg
from psycopg.pq.abc import PGresult
from sqlalchemy import Executable, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError, MultipleResultsFound, StatementError

from store.db.compiled_statements import (
    CombinedStatement,
    CompiledStatement,
    Write,
    combine_writes,
    compile_statement,
    pin_to_run,
)
from store.db.db_errors import names_dropped_week
from store.db.pipeline import Connection, Pipeline, PreparedStatements, StatementReply
from store.db.pruning import RUN_IDS_NAME, Pruning, run_id_of
from store.files.large_values import NO_STORAGE, LargeValues

BEGIN, COMMIT, ROLLBACK = text("begin"), text("commit"), text("rollback")
SAVEPOINT, RELEASE_SAVEPOINT = text("savepoint part"), text("release savepoint part")
ROLL_BACK_TO_SAVEPOINT = text("rollback to savepoint part")
SET_LIMIT = text("select set_config(:limit, :milliseconds, true)")
TRANSACTION_TIMEOUT_SINCE = 170000  # the first server version that has the setting
ASYNCHRONOUS_COMMIT = text("set local synchronous_commit = off")
USE_SNAPSHOT = text("set transaction isolation level repeatable read read only")
"""The first statement of a transaction whose statements all read one snapshot."""


class PendingResult:
    """The result of a statement that was sent. Reading it waits for the statement and for everything sent before it."""

    __slots__ = ("_reply", "_transaction")

    def __init__(self, transaction: "Transaction", reply: StatementReply) -> None:
        self._transaction = transaction
        self._reply = reply

    @property
    def is_received(self) -> bool:
        """Return whether the result was received; False also if the statement failed or was skipped."""
        return self._reply.result is not None

    def rows(self) -> Sequence[Any]:
        """Return all rows; each is a tuple with attributes."""
        return self._transaction.rows_of(self._reply)

    def one_or_none(self) -> Mapping[str, Any] | None:
        """Return the only row as a mapping; None if there is none."""
        rows = self.rows()
        if len(rows) > 1:
            raise MultipleResultsFound("The statement returned several rows where at most one is expected.")
        return rows[0]._asdict() if rows else None

    def scalar(self) -> Any:
        """Return the first column of the first row; None if there are no rows."""
        rows = self.rows()
        return rows[0][0] if rows else None

    def count(self) -> int:
        """Return how many rows a write has changed."""
        return self._transaction.changed_rows_of(self._reply)


class Transaction:
    """One open transaction on one connection. Not for use by two threads at once.

    `large` stores the values that are too large for a row. `pruning` knows the weeks that have partitions, so that a
    statement about a run can name the partition (`store.db.pruning`).
    """

    large: LargeValues = NO_STORAGE
    pruning: Pruning = Pruning()

    def __init__(
        self,
        connect: Callable[[], tuple[Connection, PreparedStatements]],
        large: LargeValues = NO_STORAGE,
        pruning: Pruning | None = None,
    ) -> None:
        """Create a transaction without a connection: `connect` is called before the first statement is sent."""
        self.large = large
        self.pruning = pruning or self.pruning
        self._connect = connect
        self._connected: tuple[Connection, Pipeline] | None = None
        self._must_begin = False  # whether `begin` is to be sent before the next statement
        self._writes: list[Write] = []  # queued, not yet sent
        self._writes_at_end: list[Write] = []  # sent right before the commit
        self._after_commit: list[AfterCommitQuery] = []  # sent right after the commit

    @property
    def connection(self) -> Connection:
        """Return the connection that the statements use; takes it from the pool if there was no statement yet."""
        return self._connect_once()[0]

    @property
    def _pipeline(self) -> Pipeline:
        return self._connect_once()[1]

    def _connect_once(self) -> tuple[Connection, Pipeline]:
        if self._connected is None:
            connection, prepared = self._connect()
            self._connected = connection, Pipeline(connection, prepared)
        return self._connected

    # -- send and wait ----------------------------------------------------------------------------------------------
    def rows(self, statement: Executable, **values: Any) -> Sequence[Any]:
        """Send a statement and return all its rows; each is a tuple with attributes."""
        return self.send(statement, **values).rows()

    def rows_in_binary(self, statement: Executable, **values: Any) -> Sequence[Any]:
        """Send a statement that reads large bytea values; return its rows. The binary format halves their size."""
        return self._send_after_writes(statement, values, result_format=1).rows()

    def one_or_none(self, statement: Executable, **values: Any) -> Mapping[str, Any] | None:
        """Send a statement and return its only row as a mapping; None if there is none."""
        return self.send(statement, **values).one_or_none()

    def scalar(self, statement: Executable, **values: Any) -> Any:
        """Send a statement and return the first column of its first row; None if there are no rows."""
        return self.send(statement, **values).scalar()

    def execute(self, statement: Executable, **values: Any) -> int:
        """Send a write, wait for it, and return how many rows it changed."""
        return self.send(statement, **values).count()

    # -- send without waiting ---------------------------------------------------------------------------------------
    def send(self, statement: Executable, **values: Any) -> PendingResult:
        """Send a statement without waiting for its result.

        Statements are executed in the order in which they were sent, and each sees what was committed when it began. If
        one fails, its error is raised at the next wait, at the latest at the commit, and the server executes nothing
        behind it.
        """
        return self._send_after_writes(statement, values)

    def write(self, statement: Executable, check: str = "", /, **values: Any) -> None:
        """Queue a write whose result is not read; it is sent with the next statement or with the commit.

        If the transaction consists of different writes only, they become one statement, in which each write sees the
        rows as they were before all of them. So no two writes of a transaction may change the same row. `check`: see
        `Write`.
        """
        self._writes.append(Write(statement, values, check))

    def write_many(self, statement: Executable, values: Sequence[Mapping[str, Any]]) -> None:
        """Queue one write for each set of values."""
        for each in values:
            self.write(statement, **each)

    def write_at_end(self, statement: Executable, **values: Any) -> None:
        """Queue a write that is sent right before the commit, whatever is sent or queued after it.

        For writes that may wait for another transaction: this one then has all other locks that it needs.
        """
        self._writes_at_end.append(Write(statement, values))

    def _send_writes(self) -> None:
        self._send_begin()
        writes, self._writes = self._writes, []
        for write in writes:
            self._send_combined([write])

    def _send_combined(self, writes: Sequence[Write]) -> None:
        made = combine_writes(writes, [self._compile(write.statement, write.values) for write in writes])
        self._send_compiled(made, writes)

    def _can_be_one_statement(self) -> bool:
        """Return whether the transaction consists of queued writes only, no two of the same statement.

        The same statement twice stays apart: each number of repetitions would be a statement of its own to compile and
        plan.
        """
        different = len({write.statement for write in self._writes}) == len(self._writes)
        return self._must_begin and different and not self._after_commit

    def _send_begin(self) -> None:
        if self._must_begin:
            self._must_begin = False
            self._send_compiled(compile_statement(BEGIN, {}), {})

    def _send_after_writes(
        self, statement: Executable, values: Mapping[str, Any], result_format: int = 0
    ) -> PendingResult:
        self._send_writes()
        return self._send_compiled(self._compile(statement, values), values, result_format)

    def _compile(self, statement: Executable, values: Mapping[str, Any]) -> CompiledStatement:
        """Return the compiled statement; if its values name a run, it names the partitions of the run's week."""
        run_id = run_id_of(values)
        if isinstance(run_id, UUID):
            partition = self.pruning.partition_of(run_id)
            if partition is not None:
                return compile_statement(statement, values, partition)
            return pin_to_run(compile_statement(statement, values), run_id)
        if RUN_IDS_NAME in values:
            return compile_statement(statement, values, self.pruning.partition_of_all(values[RUN_IDS_NAME]))
        return compile_statement(statement, values)

    def _send_compiled(
        self, made: CompiledStatement | CombinedStatement, values: Any, result_format: int = 0
    ) -> PendingResult:
        try:
            put = made.values(values)
        except (TypeError, ValueError) as error:
            raise StatementError(str(error), made.sql.decode(), None, error) from error
        try:
            sent = self._pipeline.send(made.sql, put, result_format=result_format, is_used_once=made.is_used_once)
            return PendingResult(self, sent)
        except psycopg.Error as error:
            raise self._translate(error) from error

    def query_after_commit(self, statement: Executable, **values: Any) -> "AfterCommitQuery":
        """Have a statement sent right after the commit, in the same round trip; it sees what is committed by then."""
        behind = AfterCommitQuery(statement, values)
        self._after_commit.append(behind)
        return behind

    def commit_asynchronously(self) -> None:
        """Let the commit of this transaction return before it is on disk (only for claims and renewals of leases)."""
        self.send(ASYNCHRONOUS_COMMIT)

    def extend_time_limit(self, max_time: timedelta) -> None:
        """Extend the server's time limits for this transaction; the time counts from here.

        A transaction limit must be switched off before a new one is set: raising a limit whose timer is running has no
        effect.
        """
        milliseconds = str(int(max_time.total_seconds() * 1000))
        limits = ["statement_timeout", "idle_in_transaction_session_timeout"]
        if self.connection.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
            self.send(SET_LIMIT, limit="transaction_timeout", milliseconds="0")
            limits.append("transaction_timeout")
        for limit in limits:
            self.send(SET_LIMIT, limit=limit, milliseconds=milliseconds)

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """Run a block that may fail on its own: its changes are then rolled back, and the transaction can continue."""
        self.execute(SAVEPOINT)
        try:
            yield
            self.wait()
        except BaseException:
            with suppress(DBAPIError):
                self.wait()
            self.execute(ROLL_BACK_TO_SAVEPOINT)
            raise
        self.execute(RELEASE_SAVEPOINT)

    def wait(self) -> None:
        """Send what is queued and wait for all results. Raises the error of the first statement that failed."""
        self._send_writes()
        try:
            self._pipeline.wait()
        except psycopg.Error as error:
            raise self._translate(error) from error

    def rows_of(self, reply: StatementReply) -> Sequence[Any]:
        """Return the rows of a reply."""
        result = self._result_of(reply)
        try:
            return self._pipeline.rows(result)
        except psycopg.Error as error:
            raise self._translate(error) from error

    def changed_rows_of(self, reply: StatementReply) -> int:
        """Return how many rows the write of a reply has changed."""
        return self._result_of(reply).command_tuples or 0

    def _result_of(self, reply: StatementReply) -> PGresult:
        if reply.result is None:
            self.wait()
        if reply.result is None:
            raise InvalidRequestError("This statement was not executed because one before it failed.")
        return reply.result

    def _translate(self, error: psycopg.Error) -> DBAPIError:
        made = to_sqlalchemy_error(error, is_connection_lost=bool(self.connection.closed))
        if names_dropped_week(made):
            self.pruning.invalidate()
        return made

    # -- begin, commit, roll back ----------------------------------------------------------------------------------
    def begin(self) -> None:
        """Have `begin` sent before the next statement. Without it each statement commits on its own."""
        self._must_begin = True

    def commit(self) -> None:
        """Send what is queued, commit, and wait for all results."""
        self._writes += self._writes_at_end
        self._writes_at_end = []
        if self._can_be_one_statement():
            self._must_begin = False
            writes, self._writes = self._writes, []
            if writes:
                self._send_combined(writes)
            self.finish()
            return
        self.send(COMMIT)
        sent, self._after_commit = self._after_commit, []
        for behind in sent:
            behind.result = self.send(behind.statement, **behind.values)
        self.finish()

    def finish(self) -> None:
        """Wait for all results and release the connection for other transactions."""
        self._send_writes()
        if self._connected is None:
            return
        try:
            self._pipeline.exit()
        except psycopg.Error as error:
            raise self._translate(error) from error

    def roll_back(self) -> None:
        """Roll back. Closes the connection if that fails."""
        self._must_begin = False
        self._writes.clear()
        self._writes_at_end.clear()
        if self._connected is None:
            return
        try:
            with suppress(DBAPIError):
                self.wait()
            if not self._pipeline.is_idle:
                self.execute(ROLLBACK)
            self.finish()
        except (psycopg.Error, DBAPIError):
            self.connection.close()


@dataclass
class AfterCommitQuery:
    """A statement that is sent right after the commit of a transaction."""

    statement: Executable
    values: Mapping[str, Any]
    result: PendingResult | None = None  # None until the commit was sent

    def scalar(self) -> Any:
        """Return the first column of the first row; None if there are no rows, or if the transaction did not commit."""
        return self.result.scalar() if self.result is not None and self.result.is_received else None


def to_sqlalchemy_error(error: psycopg.Error, *, is_connection_lost: bool) -> DBAPIError:
    """Convert the driver's error into SQLAlchemy's of the same kind; `is_connection_lost`: the connection was lost."""
    made = DBAPIError.instance(None, None, error, psycopg.Error, connection_invalidated=is_connection_lost)
    return cast(DBAPIError, made)
