"""Poolers between a process and PostgreSQL (PgBouncer): whether one gives each process its own prepared statements.

A pooler that shares connections by transaction must keep prepared statements apart. PgBouncer does so from 1.21 on, if
`max_prepared_statements` is above 0; an older one gives the statement of one process the arguments of another. So each
process tries it once, with its first connection, and refuses to work through a pooler that fails.
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

NEIGHBOURS = 4  # connections that take the first one's place at the server; others may be quicker to take it
ANSWERS_WITHIN = 2.0  # seconds; a pool may be used up, which proves nothing
TRY_AGAIN_AFTER = 30.0  # seconds after a try that proved nothing: each takes seconds, and connections of a pool used up
ADVICE = (
    "Use PgBouncer 1.22 or later with max_prepared_statements = 200 and ignore_startup_parameters = options, or"
    " pool_mode = session, or connect to PostgreSQL directly."
)
OPTIONS_ADVICE = "This is PgBouncer. Set ignore_startup_parameters = options there (docs/operations.md, PgBouncer)."
_NO_OPTIONS = "unsupported startup parameter"
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)

Address = tuple[str, int, str, str]  # where a server is, the database, the role: a pooler has a pool for each
_keep_apart: set[Address] = set()
_next_try_at: dict[Address, float] = {}


class StatementsMixed(psycopg.OperationalError):
    """The pooler between this process and PostgreSQL mixes the prepared statements of its clients up."""

    def __init__(self) -> None:
        super().__init__(f"The pooler in DATABASE_URL mixes prepared statements up, which would corrupt runs. {ADVICE}")


def check(connection: Connection, connect: Callable[[], Connection]) -> bool:
    """Return whether prepared statements are known to be kept apart; False: it could not be tried, nor lately.

    A process tries each server until it knows, at most every TRY_AGAIN_AFTER. Raises StatementsMixed, each time, if
    statements are mixed up: a pooler may be set right while the process waits.
    """
    info = connection.info
    address = info.hostaddr or info.host, info.port, info.dbname, info.user
    if address in _keep_apart:
        return True
    if time.monotonic() < _next_try_at.get(address, 0.0):
        return False
    if is_pooled(connection) and not keeps_statements_apart(connect):
        _next_try_at[address] = time.monotonic() + TRY_AGAIN_AFTER
        return False
    _keep_apart.add(address)
    return True


def is_pooled(connection: Connection) -> bool:
    """Whether somebody between here and PostgreSQL shares connections: a pooler gives its clients its own numbers."""
    row = connection.execute("select pg_backend_pid()", prepare=False).fetchone()
    return row is not None and row[0] != connection.info.backend_pid


def keeps_statements_apart(connect: Callable[[], Connection]) -> bool:
    """Whether a pooler keeps the prepared statements of its clients apart; False if it has no room to try that now.

    Raises StatementsMixed if one client gets the statement of another one.

    One client prepares a statement. Others prepare a different one under the same name and keep their transaction open,
    so that the first one is served by another connection to PostgreSQL when it uses its statement again. If it never
    is, the pooler shares connections by session, and statements cannot meet.
    """
    name = b"easel_check_%s" % secrets.token_hex(6).encode()
    with ExitStack() as opened:
        first = opened.enter_context(closing(connect()))
        if not _prepare(first, name, b"select pg_backend_pid(), 'first'"):
            return False
        home = _execute(first, name)
        if home is None:
            return False
        for _ in range(NEIGHBOURS):
            neighbour = opened.enter_context(closing(connect()))
            if _ask(neighbour, lambda pgconn: pgconn.send_query(b"begin")) is None:
                return False
            if not _prepare(neighbour, name, b"select pg_backend_pid(), 'neighbour'"):
                return False
            took_place = _execute(neighbour, name, b"neighbour") == home
            now_at = _execute(first, name)
            if took_place or (now_at is not None and now_at != home):
                return True  # the connection to PostgreSQL has changed hands, and the statements have not
            if now_at is None:
                return False
    return True


def advice_of(error: BaseException) -> str:
    """What to do about a connection that a pooler has refused; nothing for another error."""
    return OPTIONS_ADVICE if _NO_OPTIONS in str(error) else ""


def _prepare(connection: Connection, name: bytes, sql: bytes) -> bool:
    """Prepare a statement; return False if no connection of PostgreSQL came free. Raises StatementsMixed."""
    result = _ask(connection, lambda pgconn: pgconn.send_prepare(name, sql))
    if result is not None and result.status not in _DONE:
        raise StatementsMixed
    return result is not None


def _execute(connection: Connection, name: bytes, says: bytes = b"first") -> bytes | None:
    """Carry a statement out that was prepared; which connection of PostgreSQL did so, None if none came free."""
    result = _ask(connection, lambda pgconn: pgconn.send_query_prepared(name, []))
    if result is None:
        return None
    if result.status not in _DONE or result.get_value(0, 1) != says:
        raise StatementsMixed
    return result.get_value(0, 0)


def _ask(connection: Connection, send: Callable[[Any], None]) -> PGresult | None:
    """Send something and return the first reply; None if there is none in time. psycopg itself would wait for ever."""
    pgconn: Any = connection.pgconn
    send(pgconn)
    pgconn.flush()
    deadline = time.monotonic() + ANSWERS_WITHIN
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
