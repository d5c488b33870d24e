"""The connection pool and transactions.

READ COMMITTED everywhere: each statement sees what was committed when it began. A stopped process must not keep a run,
so every transaction has server-side limits; client and server keep-alives notice a half-open socket within 10 s
(protocol.md, "Locks").
"""

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import orjson
from sqlalchemy import Connection, Engine, Executable, create_engine, event, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

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

KNOWS_TRANSACTION_TIMEOUT = 170000  # the server's version
LONGEST_TRANSACTION = timedelta(seconds=10)

TRIES = 3
_PASSING = ("40001", "40P01", "55P03")  # serialization, deadlock, a lock that did not come in time
_AWAY = ("08", "53", "57", "58")  # connection; disk, memory or connections used up; an operator's doing; its files
READ_ONLY = "25006"
_FILES = re.compile(r"could not (extend|write|create|open|read|seek|truncate|fsync|fdatasync|stat)\b")


def encode(value: Any) -> str:
    """The one JSON encoder: key order kept, NaN becomes null, integers of any size."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # an integer beyond 64 bits, or something that is no JSON and then fails here too
        return json.dumps(value, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One open transaction; statements run on it and nowhere else."""

    connection: Connection

    def rows(self, statement: Executable, **values: Any) -> Sequence[Any]:
        """All rows of a statement; each is a tuple with attributes."""
        return self.connection.execute(statement, values).all()

    def one_or_none(self, statement: Executable, **values: Any) -> Mapping[str, Any] | None:
        """The only row as a mapping; None if there is none."""
        row = self.connection.execute(statement, values).mappings().one_or_none()
        return dict(row) if row is not None else None

    def scalar(self, statement: Executable, **values: Any) -> Any:
        """The first column of the first row; None if there is none."""
        return self.connection.execute(statement, values).scalar()

    def run(self, statement: Executable, **values: Any) -> int:
        """Carry out a write; the number of rows it hit."""
        return self.connection.execute(statement, values).rowcount

    def run_many(self, statement: Executable, values: Sequence[Mapping[str, Any]]) -> None:
        """Carry out a write for each set of values; nothing for none."""
        if len(values) == 1:  # the driver's way for many is the dearer one for one
            self.connection.execute(statement, values[0])
        elif values:
            self.connection.execute(statement, list(values))

    def commit_without_waiting(self) -> None:
        """Let this transaction's commit return before it is on disk (claims and renewals only)."""
        self.connection.execute(text("set local synchronous_commit = off"))


class Database:
    """A pool of connections to one PostgreSQL."""

    def __init__(self, url: str, *, pool_size: int = 8, application: str = "easel") -> None:
        self.url = url
        self.pool_size = pool_size
        self._engine: Engine = create_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=30,
            pool_pre_ping=False,
            json_serializer=encode,
            json_deserializer=json.loads,
            connect_args={
                **_CLIENT_LIMITS,
                "application_name": application,
                "options": " ".join(f"-c {name}={value}" for name, value in _SERVER_LIMITS.items()),
            },
        )
        event.listen(self._engine, "connect", _limit_transactions)
        self._alone = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """A transaction that commits at the end and rolls back on any exception."""
        with self._engine.begin() as connection:
            yield Transaction(connection)

    @contextmanager
    def statements(self) -> Generator[Transaction]:
        """Statements that each stand alone, without a transaction around them: two round trips less."""
        with self._alone.connect() as connection:
            yield Transaction(connection)

    def carry_out(self, work: Callable[[Transaction], T]) -> T:
        """Work in a transaction, again from the beginning if the database stopped it before its commit.

        For a lock that did not come, a deadlock, and a connection that had died in the pool.
        """
        for further in reversed(range(TRIES)):
            is_done = False
            try:
                with self.transaction() as tx:
                    result = work(tx)
                    is_done = True
                return result
            except DBAPIError as error:
                if is_done or not further or not _may_be_repeated(error):
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

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


def is_outage(error: BaseException) -> bool:
    """Whether the database was away, full, read-only or too busy, rather than wrongly asked: the same may work later.

    What is wrong for good (a value too large for an index, say) is none, whatever the driver files it under.
    """
    if isinstance(error, NoConnectionFree):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    state = sqlstate(error)
    if state is None:
        return isinstance(error, OperationalError | InterfaceError)
    return state[:2] in _AWAY or state in (*_PASSING, READ_ONLY) or _is_of_files(error)


def trouble(error: BaseException) -> str:
    """What keeps the database from its work, in words that follow "the database" and tell nothing of where it is."""
    if isinstance(error, NoConnectionFree):
        return "has no connection free for this process"
    state, said = sqlstate(error) or "", _said(error)
    if state == "53100" or (_is_of_files(error) and re.search("too large|No space|quota", said)):
        return "has no room left on its disk"
    if state == READ_ONLY:
        return "is read-only"
    if state == "53200":
        return "has no memory left"
    if state == "53300" or "too many clients" in said or "connection slots are reserved" in said:
        return "takes no more connections"
    if state in ("57P01", "57P02", "57P03") or "the database system is" in said:
        return "is starting or shutting down"
    if state[:2] == "58" or _is_of_files(error):
        return "cannot read or write its files"
    if state == "57014" or state in _PASSING:
        return "is too busy"
    return "does not answer"


def sqlstate(error: BaseException) -> str | None:
    """The five characters by which PostgreSQL names an error; None if it did not come that far."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def _is_of_files(error: BaseException) -> bool:
    """Whether an error that PostgreSQL has no name for comes from its file system: a quota, a limit on sizes."""
    return sqlstate(error) == "XX000" and _FILES.search(_said(error)) is not None


def _said(error: BaseException) -> str:
    """What the database itself said, without the statement and its values."""
    return str(getattr(error, "orig", None) or error)


def _limit_transactions(connection: Any, _: object) -> None:
    """Have the server end a transaction that takes too long, where it knows how to.

    Several writes are sent as one pipeline. A process that stands still before its end is neither idle in its
    transaction nor at a statement: no other limit ends it, and it would keep its run for as long as it stands.
    """
    if connection.info.server_version >= KNOWS_TRANSACTION_TIMEOUT:
        longest = int(LONGEST_TRANSACTION.total_seconds() * 1000)
        connection.autocommit = True
        connection.execute(f"set transaction_timeout = {longest}")
        connection.autocommit = False


def _may_be_repeated(error: DBAPIError) -> bool:
    return error.connection_invalidated or sqlstate(error) in _PASSING
