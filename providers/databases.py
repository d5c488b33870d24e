"""The databases that ExeSQL asks: hosts checked, sessions that only read, statements in a thread of their own.

    async with Servers(guard).connect({"db_type": "postgres", "host": "db.example.com", ...}) as connection:
        rows = await connection.execute("SELECT 1 AS n", 10)

It keeps the promise of `providers.services.Databases`. Whoever stops waiting calls the statement off where the driver
can; everywhere else the server's own time limit ends it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit

from canvas.errors import AddressRefused, ToolError
from providers import addresses, drivers
from providers.addresses import Guard, Resolve, addresses_of
from providers.drivers import Driver, Target
from providers.services import Bound, Rows

MOST_ADDRESSES = 3  # of one host that are tried
MOST_CHARACTERS = 32 * 1024 * 1024  # of all rows of a statement; what a canvas can hold is far less
FIRST_ROWS = 4  # that are fetched at once; then ever more, until they are too large

T = TypeVar("T")


class Servers:
    """Any server that the guard lets through, but for Easel's own database: `own` is its (host, port, name)."""

    def __init__(
        self,
        guard: Guard,
        *,
        own: tuple[str, int, str] | None = None,
        resolve: Resolve = addresses.looked_up,
        known: Mapping[str, Driver] = drivers.DRIVERS,
    ) -> None:
        self._guard = guard
        self._own = own
        self._resolve = resolve
        self._known = known

    @asynccontextmanager
    async def connect(self, params: Mapping[str, Any]) -> AsyncGenerator["Session"]:
        """A session on the database that a node names. Raises AddressRefused or ToolError."""
        driver = self._known.get(params["db_type"])
        if driver is None:
            raise ToolError(f"Database type {params['db_type']} is not supported.")
        host, port, database = str(params["host"]).strip(), int(params["port"]), str(params["database"])
        found = await self._addresses(host, port)
        if await self._is_own(host, port, database, found):
            raise ToolError(f"For the security reason, it does not support database named {database}.")
        targets = [
            Target(
                host=host,
                address=address,
                port=port,
                database=database,
                username=str(params["username"]),
                password=str(params["password"] or ""),
                timeout=float(params["timeout"]),
            )
            for address in found[:MOST_ADDRESSES]
        ]
        session = Session(driver)
        try:
            await session.open(targets)
            yield session
        finally:
            session.close()

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = await addresses_of(host, port, self._guard, resolve=self._resolve)
        except AddressRefused as refused:
            raise AddressRefused(f"Database host '{host}' is not allowed: {refused.message}") from refused
        return found

    async def _is_own(self, host: str, port: int, database: str, found: list[str]) -> bool:
        """Whether it is Easel's own database, by whatever name or address."""
        if self._own is None or (port, database) != self._own[1:]:
            return False
        own = self._own[0]
        if host.lower().rstrip(".") == own:
            return True
        try:
            ours = await addresses_of(own, port, self._guard, trusted=True, resolve=self._resolve)
        except ToolError:  # a socket's folder, or a name that nobody knows at the moment
            return False
        return not set(ours).isdisjoint(found)


def reached(guard: Guard, own: tuple[str, int, str] | None, *, trino_use_tls: bool) -> Servers:
    """The servers of a deployment, with the drivers as its settings want them."""
    trino = replace(drivers.DRIVERS["trino"], connect=partial(drivers.connect_trino, tls=trino_use_tls))
    return Servers(guard, own=own, known={**drivers.DRIVERS, "trino": trino})


def place_of(database_url: str) -> tuple[str, int, str]:
    """(host, port, name) of Easel's own database, as `Servers` wants it."""
    own = urlsplit(database_url)
    return (own.hostname or "").lower(), own.port or 5432, own.path.lstrip("/")


class Session:
    """One connection and the thread that uses it. `close` waits for nobody: the thread closes when it is done."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sql")
        self._connection: Any = None

    async def open(self, targets: list[Target]) -> None:
        """Connect to the first address that answers. Raises ToolError."""
        await self._in_thread(lambda: self._open(targets))

    async def execute(self, sql: str | Bound, most_rows: int) -> Rows:
        """The first rows of one statement. Raises ToolError in the server's words; the session goes on after it."""
        return await self._in_thread(lambda: self._execute(sql, most_rows))

    def close(self) -> None:
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, work)
        except asyncio.CancelledError:
            if self._connection is not None:  # on a thread of its own: those of the loop may all be waiting
                Thread(target=self._call_off, name="sql-call-off", daemon=True).start()
            raise

    def _open(self, targets: list[Target]) -> None:
        last: Exception | None = None
        for target in targets:
            try:
                self._connection = self._driver.connect(target)
                return
            except ToolError:
                raise
            except Exception as error:  # noqa: BLE001 (each driver has errors of its own; all of them are shown)
                last = error
        assert last is not None  # there is at least one address
        reason = self._driver.reason(last)
        raise ToolError(f"Database Connection Failed! \n{reason}", retryable=True) from last

    def _execute(self, sql: str | Bound, most_rows: int) -> Rows:
        text, values = (sql, ()) if isinstance(sql, str) else (self._driver.marked(sql.parts), sql.values)
        try:
            cursor = self._driver.ask(self._connection, text, values, most_rows)
            try:
                columns = [str(column[0]) for column in cursor.description or ()]
                return Rows(columns, _fetched(cursor, most_rows) if columns else [])
            finally:
                cursor.close()
        except ToolError:
            raise
        except Exception as error:
            raise ToolError(self._driver.reason(error)) from error
        finally:
            with suppress(Exception):  # a broken connection says so at the next statement
                self._connection.rollback()

    def _call_off(self) -> None:
        with suppress(Exception):  # it is a courtesy to the server; its time limit ends the statement as well
            self._driver.call_off(self._connection)

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # nobody waits for this connection any more
                self._connection.close()


def _fetched(cursor: Any, most_rows: int) -> list[tuple[Any, ...]]:
    """The first rows, a few and then more at a time: a driver holds in memory what it is asked for at once."""
    rows: list[tuple[Any, ...]] = []
    room, number = MOST_CHARACTERS, FIRST_ROWS
    while len(rows) < most_rows:
        found = [tuple(row) for row in cursor.fetchmany(min(number, most_rows - len(rows)))]
        if not found:
            break
        rows += found
        size = sum(_size(value) for row in found for value in row)
        room -= size
        if room < 0:
            raise ToolError(f"The rows hold more than {MOST_CHARACTERS:,} characters. Ask for less of them.")
        number = max(1, min(4 * number, number * room // max(1, size)))  # so that the next ones will fit
    return rows


def _size(value: Any) -> int:
    """About how much room a value takes; of lists and the like their text."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return len(value)
    return len(str(value)) if isinstance(value, list | tuple | dict | set) else 8
