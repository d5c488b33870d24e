"""Opens read-only sessions on the databases that ExeSQL queries: checked hosts, one process per session.

    async with DatabaseServers(guard).connect({"db_type": "postgres", "host": "db.example.com", ...}) as session:
        rows = await session.execute("SELECT 1 AS n", 10)

Implements `providers.interfaces.Databases`. Cancelling the caller cancels the statement, if the driver can do that, and
kills the process of the session. `providers/databases/session_process.py` describes the limits of the process.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

from canvas.errors import AddressRefused, ToolError
from providers import address_policy
from providers.address_policy import Guard, Resolve, resolve_checked
from providers.databases.drivers import DRIVERS, Target
from providers.databases.sessions import open_session
from providers.interfaces import DatabaseSession

MAX_ADDRESSES = 3  # addresses of one host that are tried


class ClosableSession(DatabaseSession, Protocol):
    """A session that `DatabaseServers` closes."""

    def close(self) -> None:
        """End the session without waiting."""
        ...


OpenSession = Callable[[str, Sequence[Target]], Awaitable[ClosableSession]]
"""Connects to the first address that answers; the text is the `db_type`. Raises ToolError."""


class DatabaseServers:
    """Opens sessions on servers that the guard allows, except on Easel's own database, (host, port, name) in `own`."""

    def __init__(
        self,
        guard: Guard,
        *,
        own: tuple[str, int, str] | None = None,
        resolve: Resolve = address_policy.resolve_in_thread,
        trino_use_tls: bool = False,
        open_session: OpenSession = open_session,
    ) -> None:
        self._guard = guard
        self._own = own
        self._resolve = resolve
        self._trino_use_tls = trino_use_tls
        self._open_session = open_session

    @asynccontextmanager
    async def connect(self, params: Mapping[str, Any]) -> AsyncGenerator[DatabaseSession]:
        """Open a session on the database that a node names. Raises AddressRefused or ToolError."""
        kind = params["db_type"]
        if kind not in DRIVERS:
            raise ToolError(f"Database type {kind} is not supported.")
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
                tls=self._trino_use_tls and kind == "trino",
            )
            for address in found[:MAX_ADDRESSES]
        ]
        session = await self._open_session(kind, targets)
        try:
            yield session
        finally:
            session.close()

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = await resolve_checked(host, port, self._guard, resolve=self._resolve)
        except AddressRefused as refused:
            raise AddressRefused(f"Database host '{host}' is not allowed: {refused.message}") from refused
        return found

    async def _is_own(self, host: str, port: int, database: str, found: list[str]) -> bool:
        """Return whether this is Easel's own database, under any name or address."""
        if self._own is None or (port, database) != self._own[1:]:
            return False
        own = self._own[0]
        if host.lower().rstrip(".") == own:
            return True
        try:
            ours = await resolve_checked(own, port, self._guard, trusted=True, resolve=self._resolve)
        except ToolError:  # a socket directory, or a name that cannot be resolved at the moment
            return False
        return not set(ours).isdisjoint(found)


def database_servers(guard: Guard, own: tuple[str, int, str] | None, *, trino_use_tls: bool) -> DatabaseServers:
    """Return the `DatabaseServers` of a deployment."""
    return DatabaseServers(guard, own=own, trino_use_tls=trino_use_tls)


def database_location(database_url: str) -> tuple[str, int, str]:
    """Return (host, port, name) of Easel's own database, for `DatabaseServers`."""
    own = urlsplit(database_url)
    return (own.hostname or "").lower(), own.port or 5432, own.path.lstrip("/")
