"""The connection pool, and transactions on its connections.

All transactions are READ COMMITTED: each statement sees what was committed when it began. A process that hangs must not
keep a run locked, so every transaction has server-side time limits, and keep-alives on both sides detect a half-open
connection within 10 s (docs/protocol.md, "Locks").
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
from store.db.db_errors import is_retryable
from store.db.pipeline import Connection, PreparedStatements
from store.db.pruning import PRUNED, SELECT_WEEKS, Pruning
from store.db.transaction import TRANSACTION_TIMEOUT_SINCE, Transaction, to_sqlalchemy_error
from store.files.large_values import NO_STORAGE, LargeValues, ReadFirst
from store.primitives.json_codec import decode, encode

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

WRITE_NOTHING = text("delete from canaries where false")  # changes nothing; a read-only database refuses it
SET_LOW_WORK_MEM = text("set local work_mem = '64kB'")
SPILL = text("select count(*) from generate_series(1, 20000)")  # writes half a megabyte to a temporary file

MAX_TRANSACTION_TIME = timedelta(seconds=10)

MAX_TRIES = 3


class Database:
    """A pool of connections to one PostgreSQL database: SQLAlchemy's pool of psycopg connections.

    `generic_plans`: the server keeps one generic plan per prepared statement instead of planning for each set of
    values; for processes that repeat the same few statements. `large`: where values are stored that are too large for a
    row.
    """

    large: LargeValues = NO_STORAGE

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        application: str = "easel",
        generic_plans: bool = False,
        large: LargeValues = NO_STORAGE,
    ) -> None:
        self.url = url
        self.large = large
        self.pruning = Pruning()
        self.pool_size = pool_size
        limits = {**_SERVER_LIMITS, **({"plan_cache_mode": "force_generic_plan"} if generic_plans else {})}
        arguments = {
            **_CLIENT_LIMITS,
            "application_name": application,
            "options": " ".join(f"-c {name}={value}" for name, value in limits.items()),
        }
        self._connect_arguments = arguments
        self._is_pooler_checked = False  # True once a connection of this process has passed the check
        self._engine: Engine = create_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=30,
            pool_use_lifo=True,  # the connection used last has warm plans and caches
            pool_pre_ping=False,
            pool_reset_on_return=None,  # a returned connection was rolled back or closed already
            isolation_level="AUTOCOMMIT",  # `Transaction` sends begin and commit itself, in the pipeline
            json_serializer=encode,
            json_deserializer=decode,
            connect_args=arguments,
        )
        self._broken_at = 0.0  # when a connection was last found broken; connections from before that are replaced
        event.listen(self._engine, "connect", _set_up_connection)
        event.listen(self._engine, "connect", self._check_pooler)

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Yield a transaction that is committed at the end and rolled back on any exception."""
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
        """Yield a transaction object whose statements each commit on their own, which saves `begin` and `commit`.

        If no statement is sent, no connection is taken from the pool.
        """
        with ExitStack() as stack:
            tx = Transaction(lambda: stack.enter_context(self._connection()), self.large, self.pruning)
            try:
                yield tx
                tx.finish()
            except BaseException:
                tx.roll_back()
                raise

    @contextmanager
    def _connection(self) -> Generator[tuple[Connection, PreparedStatements]]:
        try:
            pooled = self._borrow()
        except psycopg.Error as error:
            advice = poolers.advice_for(error)
            advised = psycopg.OperationalError(f"{error} {advice}") if advice else error
            raise to_sqlalchemy_error(advised, is_connection_lost=True) from error
        connection = cast(Connection, pooled.driver_connection)
        try:
            if self.pruning.claim_read():
                self._read_weeks(connection, pooled.info["prepared"])
            yield connection, pooled.info["prepared"]
        finally:
            if connection.broken:
                self._broken_at = time.monotonic()
            if connection.closed:
                pooled.invalidate()
            pooled.close()

    def _read_weeks(self, connection: Connection, prepared: PreparedStatements) -> None:
        """Read which weeks have partitions: once per process, then at most once a minute if a week was missing."""
        tx = Transaction(lambda: (connection, prepared), self.large, self.pruning)
        try:
            self.pruning.set_weeks(name for (name,) in tx.rows(SELECT_WEEKS, tables=list(PRUNED)))
            tx.finish()
        except BaseException:
            self.pruning.invalidate()
            tx.roll_back()
            raise

    def _borrow(self) -> PoolProxiedConnection:
        """Borrow a connection from the pool; one that was opened before another one broke is replaced by a new one."""
        for _ in range(self.pool_size):
            pooled = self._engine.raw_connection()
            if pooled.info["since"] > self._broken_at:
                return pooled
            pooled.invalidate()
            pooled.close()
        return self._engine.raw_connection()

    def run_with_retry(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction and return its result; run it again if the database has certainly rolled it back.

        It is repeated after a lock timeout or a deadlock, which may show only at the commit because most statements are
        waited for there, and after a pooled connection turned out to be dead. It is not repeated if the connection
        broke during the commit, because the commit may have succeeded. Large values that the work needs are read from
        the file storage between transactions.
        """
        return self.run_with_large_values(lambda large: self._run_with_retry(work, large))

    def run_with_large_values(self, work: Callable[[LargeValues], T]) -> T:
        """Run `work` with a LargeValues for its transactions; run it again after each large value it needs.

        Such a value is read from the file storage while no transaction is open. Raises ValueGone.
        """
        ahead: dict[str, Any] = {}
        while True:
            try:
                return work(replace(self.large, prefetched=ahead))
            except ReadFirst as needed:
                ahead[needed.key] = self.large.read(needed)

    def _run_with_retry(self, work: Callable[[Transaction], T], large: LargeValues) -> T:
        for further in reversed(range(MAX_TRIES)):
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
        """Raise an error if the database does not answer."""
        with self.transaction() as tx:
            tx.scalar(text("select 1"))

    def check_writable(self) -> None:
        """Raise an error if the database does not answer, refuses writes, or has no free disk space."""
        with self.transaction() as tx:
            tx.execute(WRITE_NOTHING)
            tx.execute(SET_LOW_WORK_MEM)
            tx.scalar(SPILL)

    def require_safe_pooler(self) -> None:
        """Raise ExecutorError if DATABASE_URL leads to a pooler that this process cannot work through.

        If the database cannot be reached nothing is raised: processes wait for it, and their first connection checks
        the pooler.
        """
        try:
            self.ping()
        except (DBAPIError, NoConnectionFree) as error:
            cause = getattr(error, "orig", None)
            if isinstance(cause, poolers.StatementsMixed) or (cause is not None and poolers.advice_for(cause)):
                raise ExecutorError(" ".join(str(cause).split())) from error

    def _check_pooler(self, connection: Any, record: Any) -> None:
        """Check at the first connection to a server that a pooler keeps its clients' prepared statements apart."""
        if self._is_pooler_checked:
            return
        arguments, options = self._engine.dialect.create_connect_args(self._engine.url)
        with ExitStack() as on_failure:
            on_failure.callback(connection.close)
            self._is_pooler_checked = poolers.check_pooler(
                connection, lambda: psycopg.connect(*arguments, **{**options, **self._connect_arguments})
            )
            on_failure.pop_all()

    def close(self) -> None:
        """Close all pooled connections."""
        self._engine.dispose()


def _set_up_connection(connection: Any, record: Any) -> None:
    """Set up a new connection: its time of birth, its prepared statements, and a time limit for transactions.

    The transaction limit needs PostgreSQL 17. Without it no limit ends a process that hangs between two pipelines of a
    transaction: it is not idle in the transaction and has no statement running, and it would keep its run locked.
    """
    record.info.update(since=time.monotonic(), prepared=PreparedStatements())
    if connection.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
        longest = int(MAX_TRANSACTION_TIME.total_seconds() * 1000)
        connection.execute("select set_config('transaction_timeout', %s, false)", [str(longest)])
