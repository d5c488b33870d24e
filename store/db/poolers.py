"""Poolers between a process and PostgreSQL (PgBouncer): check that each client gets its own prepared statements.

A pooler that shares connections by transaction must keep the prepared statements of its clients apart. PgBouncer does
so from 1.21 on if `max_prepared_statements` is above 0. An older one executes the statement of one process with the
values of another. So each process tests this with its first connection, and refuses to work through a pooler that
fails.
"""

import secrets
import selectors
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

Connection = psycopg.Connection[Any]

OTHER_CLIENTS = 4  # connections tried to occupy the first one's server connection; other clients may occupy it first
REPLY_TIMEOUT = 2.0  # seconds to wait for a reply; the pool may be exhausted, which proves nothing
RETRY_AFTER = 30.0  # seconds after an inconclusive test, which takes seconds and connections of an exhausted pool
ADVICE = (
    "Use PgBouncer 1.22 or later with max_prepared_statements = 200 and ignore_startup_parameters = options, or"
    " pool_mode = session, or connect to PostgreSQL directly."
)
OPTIONS_ADVICE = "This is PgBouncer. Set ignore_startup_parameters = options there (docs/operations.md, PgBouncer)."
_NO_OPTIONS = "unsupported startup parameter"
_SUCCEEDED = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)

Address = tuple[str, int, str, str]  # host, port, database and role; a pooler has one pool for each
_checked_servers: set[Address] = set()
_next_try_at: dict[Address, float] = {}


class StatementsMixed(psycopg.OperationalError):
    """The pooler between this process and PostgreSQL mixes up the prepared statements of its clients."""

    def __init__(self) -> None:
        super().__init__(f"The pooler in DATABASE_URL mixes prepared statements up, which would corrupt runs. {ADVICE}")


def check_pooler(connection: Connection, connect: Callable[[], Connection]) -> bool:
    """Return whether prepared statements are known to be kept apart; False if that could not be tested yet.

    A process tests each server until it has a result, at most every RETRY_AFTER. Raises StatementsMixed, each time,
    if statements are mixed up, because the pooler may be reconfigured while the process waits.
    """
    info = connection.info
    address = info.hostaddr or info.host, info.port, info.dbname, info.user
    if address in _checked_servers:
        return True
    if time.monotonic() < _next_try_at.get(address, 0.0):
        return False
    if is_pooled(connection) and not keeps_statements_apart(connect):
        _next_try_at[address] = time.monotonic() + RETRY_AFTER
        return False
    _checked_servers.add(address)
    return True


def is_pooled(connection: Connection) -> bool:
    """Return whether a pooler is in between: the connection's backend pid is not the one that the server reports."""
    row = connection.execute("select pg_backend_pid()", prepare=False).fetchone()
    return row is not None and row[0] != connection.info.backend_pid


def keeps_statements_apart(connect: Callable[[], Connection]) -> bool:
    """Return whether a pooler keeps the prepared statements of its clients apart; False if it has no free connection.

    Raises StatementsMixed if one client gets the statement of another one.

    The first client prepares a statement. Other clients prepare a different statement under the same name and keep
    their transactions open, so that the first client is served by another server connection when it uses its statement
    again. If that never happens, the pooler shares connections by session, and statements cannot be mixed up.
    """
    name = b"easel_check_%s" % secrets.token_hex(6).encode()
    with ExitStack() as opened:
        first = opened.enter_context(closing(connect()))
        if not _prepare(first, name, b"select pg_backend_pid(), 'first'"):
            return False
        home = _execute(first, name)
        if home is None:
            return False
        for _ in range(OTHER_CLIENTS):
            neighbour = opened.enter_context(closing(connect()))
            if _send_and_wait(neighbour, lambda pgconn: pgconn.send_query(b"begin")) is None:
                return False
            if not _prepare(neighbour, name, b"select pg_backend_pid(), 'neighbour'"):
                return False
            took_place = _execute(neighbour, name, b"neighbour") == home
            now_at = _execute(first, name)
            if took_place or (now_at is not None and now_at != home):
                return True  # another client uses the server connection, and each got its own statement
            if now_at is None:
                return False
    return True


def advice_for(error: BaseException) -> str:
    """Return what to do about a connection that a pooler refused; "" for any other error."""
    return OPTIONS_ADVICE if _NO_OPTIONS in str(error) else ""


def _prepare(connection: Connection, name: bytes, sql: bytes) -> bool:
    """Prepare a statement; return False if no server connection became free. Raises StatementsMixed."""
    result = _send_and_wait(connection, lambda pgconn: pgconn.send_prepare(name, sql))
    if result is not None and result.status not in _SUCCEEDED:
        raise StatementsMixed
    return result is not None


def _execute(connection: Connection, name: bytes, expected: bytes = b"first") -> bytes | None:
    """Execute a prepared statement; return the pid of the server connection, None if none became free."""
    result = _send_and_wait(connection, lambda pgconn: pgconn.send_query_prepared(name, []))
    if result is None:
        return None
    if result.status not in _SUCCEEDED or result.get_value(0, 1) != expected:
        raise StatementsMixed
    return result.get_value(0, 0)


def _send_and_wait(connection: Connection, send: Callable[[Any], None]) -> PGresult | None:
    """Send something and return the first reply; None if there is none in time. psycopg itself would wait forever."""
    pgconn: Any = connection.pgconn
    send(pgconn)
    pgconn.flush()
    deadline = time.monotonic() + REPLY_TIMEOUT
    first: PGresult | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(pgconn.socket, selectors.EVENT_READ)
        while True:
            while pgconn.is_busy():
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                return first
            first = first or result
