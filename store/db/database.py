"""The connection pool and transactions.

READ COMMITTED everywhere: each statement sees what was committed when it began. A stopped process must not keep a run,
so every transaction has server-side limits; client and server keep-alives notice a half-open socket within 10 s
(protocol.md, "Locks").
"""

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import psycopg
from sqlalchemy import Engine, PoolProxiedConnection, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from canvas.errors import ExecutorError
from store.db import poolers
from store.db.pipeline import Connection, Prepared
from store.db.pruning import WEEKS, Pruning
from store.db.transaction import KNOWS_TRANSACTION_TIMEOUT, Transaction, translated
from store.files.large_values import NO_STORAGE, LargeValues, ReadFirst
from store.primitives.db_errors import is_retryable
from store.primitives.json_codec import decode, encode
from store.tables.runs import PARTITIONED

T = TypeVar("T")

_SERVER_LIMITS = {
    "idle_in_transaction_session_timeout": "5000",
    "statement_timeout": "10000",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "2",
}
_CLIENT_LIMITS = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 10_000,
    "connect_timeout": 5,
}

WRITE_NOTHING = text("delete from canaries where false")  # refused by a read-only database; writes nothing
LITTLE_MEMORY = text("set local work_mem = '64kB'")
SPILL = text("select count(*) from generate_series(1, 20000)")  # half a megabyte in a file that goes at once

LONGEST_TRANSACTION = timedelta(seconds=10)

TRIES = 3


class Database:
    """A pool of connections to one PostgreSQL. SQLAlchemy keeps them, psycopg speaks through them.

    `plans_once`: the server plans a statement once for all values, not for each; for those who send the same few
    statements all the time. `large`: where values lie that are too large for a row.
    """

    large: LargeValues = NO_STORAGE

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        application: str = "easel",
        plans_once: bool = False,
        large: LargeValues = NO_STORAGE,
    ) -> None:
        self.url = url
        self.large = large
        self.pruning = Pruning()
        self.pool_size = pool_size
        limits = {**_SERVER_LIMITS, **({"plan_cache_mode": "force_generic_plan"} if plans_once else {})}
        given = {
            **_CLIENT_LIMITS,
            "application_name": application,
            "options": " ".join(f"-c {name}={value}" for name, value in limits.items()),
        }
        self._given = given
        self._keeps_statements_apart = False  # until a connection of this process has shown it
        self._engine: Engine = create_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=30,
            pool_use_lifo=True,  # who is used again has its plans and caches warm
            pool_pre_ping=False,
            pool_reset_on_return=None,  # what is given back has been rolled back or closed
            isolation_level="AUTOCOMMIT",  # transactions begin and end by statements of their own, in the pipeline
            json_serializer=encode,
            json_deserializer=decode,
            connect_args=given,
        )
        self._broken_at = 0.0  # when a connection was found dead: those of before are not trusted any more
        event.listen(self._engine, "connect", _prepare)
        event.listen(self._engine, "connect", self._check_pooler)

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """A transaction that commits at the end and rolls back on any exception."""
        with self._connection() as pooled:
            tx = Transaction(lambda: pooled, self.large, self.pruning)
            try:
                tx.begin()
                yield tx
                tx.commit()
            except BaseException:
                tx.roll_back()
                raise

    @contextmanager
    def statements(self) -> Generator[Transaction]:
        """Statements that each stand alone, without a transaction around them: two round trips less.

        Without any there is no connection either.
        """
        with ExitStack() as stack:
            tx = Transaction(lambda: stack.enter_context(self._connection()), self.large, self.pruning)
            try:
                yield tx
                tx.end()
            except BaseException:
                tx.roll_back()
                raise

    @contextmanager
    def _connection(self) -> Generator[tuple[Connection, Prepared]]:
        try:
            pooled = self._pooled()
        except psycopg.Error as error:
            advice = poolers.advice_of(error)
            said = psycopg.OperationalError(f"{error} {advice}") if advice else error
            raise translated(said, is_gone=True) from error
        connection = cast(Connection, pooled.driver_connection)
        try:
            if self.pruning.must_be_read():
                self._read_weeks(connection, pooled.info["prepared"])
            yield connection, pooled.info["prepared"]
        finally:
            if connection.broken:
                self._broken_at = time.monotonic()
            if connection.closed:
                pooled.invalidate()
            pooled.close()

    def _read_weeks(self, connection: Connection, prepared: Prepared) -> None:
        """Read which weeks have partitions: once per process, and when a week was missing, at most once a minute."""
        tx = Transaction(lambda: (connection, prepared), self.large, self.pruning)
        try:
            self.pruning.learn(name for (name,) in tx.rows(WEEKS, tables=list(PARTITIONED)))
            tx.end()
        except BaseException:
            self.pruning.forget()
            tx.roll_back()
            raise

    def _pooled(self) -> PoolProxiedConnection:
        """A connection of the pool; what was connected before another one broke is connected anew."""
        for _ in range(self.pool_size):
            pooled = self._engine.raw_connection()
            if pooled.info["since"] > self._broken_at:
                return pooled
            pooled.invalidate()
            pooled.close()
        return self._engine.raw_connection()

    def carry_out(self, work: Callable[[Transaction], T]) -> T:
        """Work in a transaction, again from the beginning if the database has surely undone it.

        For a lock that did not come and a deadlock, which may show only at the commit, since most statements are waited
        for there; and for a connection that had died in the pool. What became of a commit whose connection has broken
        nobody knows, so that is not repeated. Large values that the work needs are read outside of the transaction.
        """
        return self.reading_ahead(lambda large: self._carried_out(work, large))

    def reading_ahead(self, work: Callable[[LargeValues], T]) -> T:
        """Do work whose transactions take the large values that it is given; again for each value that it lacks.

        Such a value is read from the file storage while no transaction is open. Raises ValueGone.
        """
        ahead: dict[str, Any] = {}
        while True:
            try:
                return work(replace(self.large, ahead=ahead))
            except ReadFirst as needed:
                ahead[needed.key] = self.large.read(needed)

    def _carried_out(self, work: Callable[[Transaction], T], large: LargeValues) -> T:
        for further in reversed(range(TRIES)):
            is_done = False
            try:
                with self.transaction() as tx:
                    tx.large = large
                    result = work(tx)
                    is_done = True
                return result
            except DBAPIError as error:
                is_unknown = is_done and error.connection_invalidated
                if is_unknown or not further or not is_retryable(error):
                    raise
        raise AssertionError("unreachable: the last try returns or raises")

    def ping(self) -> None:
        """Raise if the database does not answer."""
        with self.transaction() as tx:
            tx.scalar(text("select 1"))

    def check_writable(self) -> None:
        """Raise if the database does not answer, takes no writes, or has no room left on its disk."""
        with self.transaction() as tx:
            tx.run(WRITE_NOTHING)
            tx.run(LITTLE_MEMORY)
            tx.scalar(SPILL)

    def refuse_pooler(self) -> None:
        """Raise ExecutorError if DATABASE_URL leads to a pooler that this process cannot work through.

        A database that is away raises nothing: processes wait for it, and look at the pooler with the first connection.
        """
        try:
            self.ping()
        except (DBAPIError, NoConnectionFree) as error:
            cause = getattr(error, "orig", None)
            if isinstance(cause, poolers.StatementsMixed) or (cause is not None and poolers.advice_of(cause)):
                raise ExecutorError(" ".join(str(cause).split())) from error

    def _check_pooler(self, connection: Any, record: Any) -> None:
        """See to it that a pooler keeps prepared statements apart, with the first connection to a server."""
        if self._keeps_statements_apart:
            return
        arguments, given = self._engine.dialect.create_connect_args(self._engine.url)
        with ExitStack() as on_failure:
            on_failure.callback(connection.close)
            self._keeps_statements_apart = poolers.check(
                connection, lambda: psycopg.connect(*arguments, **{**given, **self._given})
            )
            on_failure.pop_all()

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


def _prepare(connection: Any, record: Any) -> None:
    """Make a new connection ours.

    The server ends a transaction that takes too long, where it knows how to. Statements are sent as pipelines, and a
    process that stands still between two of them is neither idle in its transaction nor at a statement: no other limit
    ends it, and it would keep its run for as long as it stands.
    """
    record.info.update(since=time.monotonic(), prepared=Prepared())
    if connection.info.server_version >= KNOWS_TRANSACTION_TIMEOUT:
        longest = int(LONGEST_TRANSACTION.total_seconds() * 1000)
        connection.execute("select set_config('transaction_timeout', %s, false)", [str(longest)])
