"""The MCP servers of a tenant, for one attempt. A session opens with the first call, and tools are checked.

A server's row is read once per attempt. Before the first call of a tool, its live description and schema are compared
with the pinned ones (store/mcp/pins.py) and with those of the canvas. A description that is in neither is refused, so a
server cannot change what an agent takes a tool for. Other tools that the server lists are ignored.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog

from canvas.document.mcp_tools import digest_of
from canvas.errors import ExecutorError, NotFound, ToolError
from canvas.ids import TenantId
from providers.http.client import HttpClient
from providers.interfaces import McpCall, McpToolDescription
from providers.mcp.session import CLOSED, LiveTool, McpServer, McpSession
from store.db.database import Database
from store.mcp import pins as mcp_pins
from store.mcp import servers
from store.mcp.pins import Pin
from store.mcp.servers import ServerRow
from store.primitives.encryption import CannotUnseal, EncryptionKey
from store.tenants import sealed_headers

log = structlog.get_logger()


class McpToolChanged(ToolError):
    """A tool's description or schema has changed since it was approved."""

    code = "mcp_tool_changed"


class McpToolNotAllowed(ToolError):
    """The tenant's list of allowed tools does not have the tool, or the server does not offer it."""

    code = "mcp_tool_not_allowed"


@dataclass(frozen=True, slots=True)
class McpServers:
    """The MCP servers of every tenant. `of` returns those of one, for one attempt."""

    database: Database
    encryption_key: EncryptionKey | None

    def caller_headers(self, tenant_id: TenantId, request: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the headers that the request of a turn has for these servers. Raises ToolError if decryption fails."""
        if self.encryption_key is None:
            return {}
        try:
            return sealed_headers.unseal_headers(self.encryption_key, tenant_id, request)
        except CannotUnseal as error:
            raise ToolError(f"The request's custom_header: {error.message}") from error

    def of(self, tenant_id: TenantId, http: HttpClient) -> "AttemptMcpClient":
        """Return the servers of a tenant, for one attempt."""
        return AttemptMcpClient(tenant_id, self.database, self.encryption_key, http)


@dataclass
class _OpenSession:
    """A session, and the tools that were checked in it."""

    session: McpSession
    checked: set[tuple[str, bytes]] = field(default_factory=set[tuple[str, bytes]])


class AttemptMcpClient:
    """Implements `providers.interfaces.Mcp` for concurrent callers on one event loop."""

    def __init__(self, tenant_id: TenantId, database: Database, key: EncryptionKey | None, http: HttpClient) -> None:
        self._tenant_id = tenant_id
        self._database = database
        self._key = key
        self._http = http
        self._rows: dict[str, asyncio.Future[ServerRow]] = {}
        self._sessions: dict[tuple[str, frozenset[tuple[str, str]]], _OpenSession] = {}
        self._is_closed = False

    async def call(self, call: McpCall) -> str:
        if self._is_closed:
            return CLOSED
        row = await self._row(call.server)
        if row.fields.allowed is not None and call.tool not in row.fields.allowed:
            raise McpToolNotAllowed(
                f'Tool "{call.tool}" of MCP server "{row.fields.name}" is not among those that this tenant allows.'
            )
        known = self._session(row, call.headers)
        await self._check(known, row, call)
        return await known.session.call(call.tool, call.arguments)

    async def load_pinned_description(self, server: str, tool: str) -> McpToolDescription | None:
        row = await self._row(server)
        pins = await asyncio.to_thread(self._load_pins, row.id)
        return next((McpToolDescription(pin.description, pin.schema) for pin in pins if pin.name == tool), None)

    def _load_pins(self, server_id: UUID) -> list[Pin]:
        with self._database.transaction() as tx:
            return mcp_pins.list_pins(tx, self._tenant_id, server_id)

    async def close(self) -> None:
        self._is_closed = True
        sessions = [known.session for known in self._sessions.values()]
        await asyncio.gather(*(session.close() for session in sessions))

    async def _row(self, server: str) -> ServerRow:
        """The server's row, read once. Raises ToolError for one that this tenant does not have."""
        reading = self._rows.get(server)
        if reading is None:
            reading = self._rows[server] = asyncio.ensure_future(asyncio.to_thread(self._read, server))
        try:
            return await asyncio.shield(reading)
        except (NotFound, ValueError) as error:
            raise ToolError(f"MCP server {server} is not configured for this tenant.") from error
        except ExecutorError as error:
            raise ToolError(error.message) from error

    def _read(self, server: str) -> ServerRow:
        if self._key is None:
            raise ToolError("This worker has no encryption key, so it cannot read MCP servers. Set EASEL_SECRET_KEY.")
        with self._database.transaction() as tx:
            return servers.get(tx, self._tenant_id, UUID(server), self._key)

    def _session(self, row: ServerRow, headers: Mapping[str, str]) -> _OpenSession:
        """Return the session for these headers; a new one if the last has ended."""
        key = row.id.hex, frozenset(headers.items())
        known = self._sessions.get(key)
        if known is None or known.session.is_over:
            known = self._sessions[key] = _OpenSession(McpSession(self._server(row, headers), self._http))
        return known

    def _server(self, row: ServerRow, headers: Mapping[str, str]) -> McpServer:
        fields = row.fields
        server = McpServer.of(
            row.id.hex,
            fields.name,
            fields.url,
            fields.server_type,
            headers=fields.headers,
            variables=fields.variables,
            call_seconds=fields.call_seconds,
            custom_header=headers,
        )
        if server.dropped:
            log.warning("mcp_headers_dropped", server=row.id.hex, count=len(server.dropped))
        return server

    async def _check(self, known: _OpenSession, row: ServerRow, call: McpCall) -> None:
        """Raise ToolError if a tool has changed since it was approved, or is not offered."""
        offered = digest_of(call.description, call.schema)
        if (call.tool, offered) in known.checked:
            return
        live = (await known.session.tools()).get(call.tool)
        if live is None:
            raise McpToolNotAllowed(f'MCP server "{row.fields.name}" does not offer the tool "{call.tool}".')
        found = digest_of(live.description, live.schema)
        pinned = await asyncio.to_thread(self._load_pin, row.id, live)
        if found not in (pinned, offered):
            log.warning("mcp_tool_changed", server=row.id.hex, tool=call.tool)
            raise McpToolChanged(
                f'Tool "{call.tool}" of MCP server "{row.fields.name}" has changed its description or schema since it '
                f'was approved, and is not called. Look at it, then approve it: easel mcp approve "{row.fields.name}" '
                f"{call.tool}"
            )
        known.checked.add((call.tool, offered))

    def _load_pin(self, server_id: UUID, live: LiveTool) -> bytes | None:
        with self._database.transaction() as tx:
            return mcp_pins.pin(tx, self._tenant_id, server_id, live.name, live.description, live.schema)
