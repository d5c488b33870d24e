"""One open transaction: statements on one connection, waited for one by one or together."""

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

from store.db.compiled_statements import CombinedStatement, Compiled, Write, combine_writes, compiled, pinned
from store.db.pipeline import Connection, Pipeline, Prepared, Reply
from store.db.pruning import RUNS, Pruning, run_of
from store.files.large_values import NO_STORAGE, LargeValues
from store.primitives.db_errors import names_a_week_that_is_gone

BEGIN, COMMIT, ROLLBACK = text("begin"), text("commit"), text("rollback")
SAVEPOINT, RELEASE_SAVEPOINT = text("savepoint part"), text("release savepoint part")
ROLL_BACK_TO_SAVEPOINT = text("rollback to savepoint part")
SET_LIMIT = text("select set_config(:limit, :milliseconds, true)")
KNOWS_TRANSACTION_TIMEOUT = 170000  # the server's version
WITHOUT_WAITING = text("set local synchronous_commit = off")


class PendingResult:
    """What was sent and not waited for. Asking waits for it, and for all that was sent before it."""

    __slots__ = ("_reply", "_transaction")

    def __init__(self, transaction: "Transaction", reply: Reply) -> None:
        self._transaction = transaction
        self._reply = reply

    @property
    def is_there(self) -> bool:
        """Whether it was waited for, and carried out."""
        return self._reply.result is not None

    def rows(self) -> Sequence[Any]:
        """All rows; each is a tuple with attributes."""
        return self._transaction.rows_of(self._reply)

    def one_or_none(self) -> Mapping[str, Any] | None:
        """The only row as a mapping; None if there is none."""
        rows = self.rows()
        if len(rows) > 1:
            raise MultipleResultsFound("There are several rows where there must be one.")
        return rows[0]._asdict() if rows else None

    def scalar(self) -> Any:
        """The first column of the first row; None if there is none."""
        rows = self.rows()
        return rows[0][0] if rows else None

    def count(self) -> int:
        """How many rows a write has hit."""
        return self._transaction.hit_by(self._reply)


class Transaction:
    """One open transaction; statements run on it and nowhere else. `large`: where values lie that no row holds.

    `pruning`: the weeks whose partitions statements about runs name.
    """

    large: LargeValues = NO_STORAGE
    pruning: Pruning = Pruning()

    def __init__(
        self,
        connect: Callable[[], tuple[Connection, Prepared]],
        large: LargeValues = NO_STORAGE,
        pruning: Pruning | None = None,
    ) -> None:
        """`connect` is called with the first statement, so that who has nothing to ask takes no connection."""
        self.large = large
        self.pruning = pruning or self.pruning
        self._connect = connect
        self._connected: tuple[Connection, Pipeline] | None = None
        self._begins = False  # with whatever is sent next
        self._writes: list[Write] = []  # that leave together
        self._behind: list[AfterCommitQuery] = []

    @property
    def connection(self) -> Connection:
        """The connection that everything goes through."""
        return self._wired()[0]

    @property
    def _pipeline(self) -> Pipeline:
        return self._wired()[1]

    def _wired(self) -> tuple[Connection, Pipeline]:
        if self._connected is None:
            connection, prepared = self._connect()
            self._connected = connection, Pipeline(connection, prepared)
        return self._connected

    # -- statements that are waited for -----------------------------------------------------------------------------
    def rows(self, statement: Executable, **values: Any) -> Sequence[Any]:
        """All rows of a statement; each is a tuple with attributes."""
        return self.later(statement, **values).rows()

    def rows_of_bytes(self, statement: Executable, **values: Any) -> Sequence[Any]:
        """All rows of a statement that reads many bytes: in binary they are half as long on the wire."""
        return self._sent(statement, values, result_format=1).rows()

    def one_or_none(self, statement: Executable, **values: Any) -> Mapping[str, Any] | None:
        """The only row as a mapping; None if there is none."""
        return self.later(statement, **values).one_or_none()

    def scalar(self, statement: Executable, **values: Any) -> Any:
        """The first column of the first row; None if there is none."""
        return self.later(statement, **values).scalar()

    def run(self, statement: Executable, **values: Any) -> int:
        """Carry out a write; the number of rows it hit."""
        return self.later(statement, **values).count()

    # -- statements that go out together ----------------------------------------------------------------------------
    def later(self, statement: Executable, **values: Any) -> PendingResult:
        """Send a statement and do not wait: what goes out together costs one round trip.

        Statements are carried out in order, and each sees what was committed when it began. What fails is raised by
        whoever waits next, at the latest by the commit; nothing behind it is carried out.
        """
        return self._sent(statement, values)

    def write(self, statement: Executable, check: str = "", /, **values: Any) -> None:
        """Send a write whose rows nobody asks for, at the latest with the next statement or the commit.

        A transaction of nothing but different writes leaves as one statement
        (`store.db.compiled_statements.combine_writes`), without begin and commit: no two of them may hit the same row.
        `check` as of `Write`.
        """
        self._writes.append(Write(statement, values, check))

    def write_many(self, statement: Executable, values: Sequence[Mapping[str, Any]]) -> None:
        """Send a write for each set of values; nothing for none."""
        for each in values:
            self.write(statement, **each)

    def _send_writes(self) -> None:
        self._open()
        writes, self._writes = self._writes, []
        for write in writes:
            self._put_together([write])

    def _put_together(self, writes: Sequence[Write]) -> None:
        made = combine_writes(writes, [self._compiled(write.statement, write.values) for write in writes])
        self._put(made, writes)

    def _is_one_statement(self) -> bool:
        """Whether all of the transaction are writes that may leave together. The same one twice makes many kinds."""
        different = len({write.statement for write in self._writes}) == len(self._writes)
        return self._begins and different and not self._behind

    def _open(self) -> None:
        if self._begins:
            self._begins = False
            self._put(compiled(BEGIN, {}), {})

    def _sent(self, statement: Executable, values: Mapping[str, Any], result_format: int = 0) -> PendingResult:
        self._send_writes()
        return self._put(self._compiled(statement, values), values, result_format)

    def _compiled(self, statement: Executable, values: Mapping[str, Any]) -> Compiled:
        """The statement, with the partitions of the week that it is about if it is about one."""
        run_id = run_of(values)
        if isinstance(run_id, UUID):
            partition = self.pruning.partition_of(run_id)
            if partition is not None:
                return compiled(statement, values, partition)
            return pinned(compiled(statement, values), run_id)
        if RUNS in values:
            return compiled(statement, values, self.pruning.partition_of_all(values[RUNS]))
        return compiled(statement, values)

    def _put(self, made: Compiled | CombinedStatement, values: Any, result_format: int = 0) -> PendingResult:
        try:
            put = made.values(values)
        except (TypeError, ValueError) as error:
            raise StatementError(str(error), made.sql.decode(), None, error) from error
        try:
            sent = self._pipeline.send(made.sql, put, result_format=result_format, is_used_once=made.is_used_once)
            return PendingResult(self, sent)
        except psycopg.Error as error:
            raise self._translated(error) from error

    def behind_commit(self, statement: Executable, **values: Any) -> "AfterCommitQuery":
        """Have a statement sent right behind the commit; it sees what is committed by then."""
        behind = AfterCommitQuery(statement, values)
        self._behind.append(behind)
        return behind

    def commit_without_waiting(self) -> None:
        """Let this transaction's commit return before it is on disk (claims and renewals only)."""
        self.later(WITHOUT_WAITING)

    def may_take(self, longest: timedelta) -> None:
        """Let this transaction take longer than others may.

        The server counts from here. A limit of a transaction is set to nothing first: raising one that counts already
        has no effect.
        """
        milliseconds = str(int(longest.total_seconds() * 1000))
        limits = ["statement_timeout", "idle_in_transaction_session_timeout"]
        if self.connection.info.server_version >= KNOWS_TRANSACTION_TIMEOUT:
            self.later(SET_LIMIT, limit="transaction_timeout", milliseconds="0")
            limits.append("transaction_timeout")
        for limit in limits:
            self.later(SET_LIMIT, limit=limit, milliseconds=milliseconds)

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """Work that may fail by itself: what it did is undone then, and the transaction goes on."""
        self.run(SAVEPOINT)
        try:
            yield
            self.wait()
        except BaseException:
            with suppress(DBAPIError):
                self.wait()
            self.run(ROLL_BACK_TO_SAVEPOINT)
            raise
        self.run(RELEASE_SAVEPOINT)

    def wait(self) -> None:
        """Wait for everything that was sent."""
        self._send_writes()
        try:
            self._pipeline.wait()
        except psycopg.Error as error:
            raise self._translated(error) from error

    def rows_of(self, reply: Reply) -> Sequence[Any]:
        """The rows of a reply."""
        result = self._result_of(reply)
        try:
            return self._pipeline.rows(result)
        except psycopg.Error as error:
            raise self._translated(error) from error

    def hit_by(self, reply: Reply) -> int:
        """How many rows the write of a reply has hit."""
        return self._result_of(reply).command_tuples or 0

    def _result_of(self, reply: Reply) -> PGresult:
        if reply.result is None:
            self.wait()
        if reply.result is None:
            raise InvalidRequestError("A statement before this one has failed.")
        return reply.result

    def _translated(self, error: psycopg.Error) -> DBAPIError:
        made = translated(error, is_gone=bool(self.connection.closed))
        if names_a_week_that_is_gone(made):
            self.pruning.forget()
        return made

    # -- the ends of it ---------------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Begin a transaction, with what is sent next; without it each statement stands alone."""
        self._begins = True

    def commit(self) -> None:
        """Wait for everything, and commit what was begun."""
        if self._is_one_statement():
            self._begins = False
            writes, self._writes = self._writes, []
            if writes:
                self._put_together(writes)
            self.end()
            return
        self.later(COMMIT)
        sent, self._behind = self._behind, []
        for behind in sent:
            behind.later = self.later(behind.statement, **behind.values)
        self.end()

    def end(self) -> None:
        """Wait for everything; the connection is free for others afterwards."""
        self._send_writes()
        if self._connected is None:
            return
        try:
            self._pipeline.leave()
        except psycopg.Error as error:
            raise self._translated(error) from error

    def roll_back(self) -> None:
        """Undo everything. A connection that cannot even do that is closed."""
        self._begins = False
        self._writes.clear()
        if self._connected is None:
            return
        try:
            with suppress(DBAPIError):
                self.wait()
            if not self._pipeline.is_idle:
                self.run(ROLLBACK)
            self.end()
        except (psycopg.Error, DBAPIError):
            self.connection.close()


@dataclass
class AfterCommitQuery:
    """A statement behind a commit."""

    statement: Executable
    values: Mapping[str, Any]
    later: PendingResult | None = None  # once it was sent

    def scalar(self) -> Any:
        """The first column of the first row; None if there is none, or if the transaction did not commit."""
        return self.later.scalar() if self.later is not None and self.later.is_there else None


def translated(error: psycopg.Error, *, is_gone: bool) -> DBAPIError:
    """The driver's error as SQLAlchemy's of the same kind; `is_gone`: and there is no connection any more."""
    made = DBAPIError.instance(None, None, error, psycopg.Error, connection_invalidated=is_gone)
    return cast(DBAPIError, made)
