"""Routes of a tenant's MCP servers: list, add, change, remove, import; list, test and approve their tools.

When a server is added, or its address changes, its tools are read, and these descriptions count as approved.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from api.agents.agents import get_caller_canvas
from api.http.errors import DATA, RequestRefused, not_found
from api.http.paging import ListPageDep
from api.http.replies import parse_id, success
from api.mcp.fields import (
    McpApprovalBody,
    McpExposureBody,
    McpImportBody,
    McpServerBody,
    McpServerIdsBody,
    McpToolTestBody,
    build_fields,
    live_tools_json,
    parse_imported_server,
    server_json,
)
from api.requests.auth import ApiTokenCaller
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import IdempotentRequest, OnceByBody
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from canvas.errors import Conflict, NodeFailure, NotFound
from canvas.ids import TenantId
from providers.http.client import HttpClient
from providers.mcp.session import LiveTool, McpServer, McpSession
from store.db.transaction import Transaction
from store.mcp import agents, pins, servers
from store.mcp.servers import ServerFields, ServerRow
from store.primitives.encryption import EncryptionKey
from store.tenants import audit
from store.tenants.audit import Action, Actor

router = APIRouter(tags=["mcp"], dependencies=[NEEDS_EDIT])

UNKNOWN = "Cannot find MCP server."
_TOOL_FIELDS = ("url", "server_type", "headers", "variables")


@dataclass(frozen=True, slots=True)
class McpContext:
    """The dependencies of these routes: database, encryption key, HTTP client, and the caller."""

    context: ApiContext
    key: EncryptionKey
    http: HttpClient
    tenant_id: TenantId
    actor: Actor

    def get_row(self, tx: Transaction, server_id: str) -> ServerRow:
        """Return the caller's server.

        Raises RequestRefused, the same for a missing server and for one of another tenant.
        """
        found = parse_id(server_id)
        if found is None:
            raise not_found(UNKNOWN)
        try:
            return servers.get(tx, self.tenant_id, found, self.key)
        except NotFound:
            raise not_found(UNKNOWN) from None

    async def read_row(self, server_id: str) -> ServerRow:
        """Return the caller's server, read in its own transaction. Raises RequestRefused."""

        def work() -> ServerRow:
            with self.context.database.transaction() as tx:
                return self.get_row(tx, server_id)

        return await run_in_thread(work)

    async def list_live_tools(self, server_id: str, fields: ServerFields) -> Mapping[str, LiveTool]:
        """Return the tools that a server offers now. Raises RequestRefused with the reason if it does not answer."""
        session = self.make_session(server_id, fields)
        try:
            return await session.tools()
        except NodeFailure as failure:
            raise RequestRefused(DATA, failure.message) from failure
        finally:
            await session.close()

    def make_session(self, server_id: str, fields: ServerFields) -> McpSession:
        """Return a session, which the caller must close."""
        server = McpServer.of(
            server_id,
            fields.name,
            fields.url,
            fields.server_type,
            headers=fields.headers,
            variables=fields.variables,
            call_seconds=fields.call_seconds,
        )
        return McpSession(server, self.http)


@dataclass(frozen=True, slots=True)
class _ReachedServer:
    """A server that is to be added, and the tools that it offers."""

    fields: ServerFields
    live: Mapping[str, LiveTool]


async def get_mcp_context(request: Request, context: ApiContextDep, principal: ApiTokenCaller) -> McpContext:
    """Return the dependencies for a request."""
    http: HttpClient = request.app.state.http
    return McpContext(context, context.encryption_key, http, principal.tenant_id, principal.actor)


McpContextDep = Annotated[McpContext, Depends(get_mcp_context)]


@router.get("/mcp/servers", dependencies=[NEEDS_READ])
def list_servers(mcp: McpContextDep, page: ListPageDep, keywords: str = "") -> Response:
    """List one page of the tenant's servers, the newest first. Values of headers and variables are never shown."""
    with mcp.context.database.transaction() as tx:
        found = servers.list_servers(tx, mcp.tenant_id, mcp.key, keywords)
        rows = found[page.offset : page.offset + page.size]
        shown = [server_json(row, pins.list_pins(tx, mcp.tenant_id, row.id)) for row in rows]
    return success({"mcp_servers": shown, "total": len(found)})


@router.post("/mcp/servers", openapi_extra=body_openapi(McpServerBody))
async def add_server(mcp: McpContextDep, body: SmallBody, once: OnceByBody) -> Response:
    """Add a server. Its tools are read first and approved with it."""
    await run_in_thread(lambda: once.check_repeat(mcp.context.database))
    body_fields = parse_body(McpServerBody, body)
    fields = build_fields(body_fields)
    live = {} if body_fields.unchecked else await mcp.list_live_tools("new", fields)
    return await run_in_thread(lambda: _add_server(mcp, once, fields, live))


@router.post("/mcp/servers/import", openapi_extra=body_openapi(McpImportBody))
async def import_servers(mcp: McpContextDep, body: SmallBody, once: OnceByBody) -> Response:
    """Add the servers of a client's configuration file. Each one succeeds or fails by itself."""
    await run_in_thread(lambda: once.check_repeat(mcp.context.database))
    body_fields = parse_body(McpImportBody, body)
    if not body_fields.servers:
        raise RequestRefused(DATA, "No MCP servers provided.")
    found: dict[str, _ReachedServer | RequestRefused] = {}
    for name, stored in body_fields.servers.items():
        try:
            fields = build_fields(parse_imported_server(name, stored, unchecked=body_fields.unchecked))
            found[name] = _ReachedServer(
                fields, {} if body_fields.unchecked else await mcp.list_live_tools(name, fields)
            )
        except RequestRefused as refused:
            found[name] = refused
    return await run_in_thread(lambda: _add_imported(mcp, once, found))


@router.post("/mcp/servers/list_tools", openapi_extra=body_openapi(McpServerIdsBody))
async def list_tools_of_many(mcp: McpContextDep, body: SmallBody) -> Response:
    """List the tools that several servers offer now, by id."""
    body_fields = parse_body(McpServerIdsBody, body)
    if not body_fields.mcp_ids:
        raise RequestRefused(DATA, "No MCP server IDs provided.")
    return success({server_id: await _list_live_tools(mcp, server_id) for server_id in body_fields.mcp_ids})


@router.post("/mcp/servers/test_tool", openapi_extra=body_openapi(McpToolTestBody))
async def test_tool_by_id(mcp: McpContextDep, body: SmallBody) -> Response:
    """Test a tool of the server in the body. Returns the text that a model would read."""
    body_fields = parse_body(McpToolTestBody, body)
    return await _test_tool(mcp, body_fields.mcp_id or "", body_fields)


@router.get("/mcp/servers/{server_id}", dependencies=[NEEDS_READ])
def get_server(mcp: McpContextDep, server_id: str) -> Response:
    """Get a server with its approved tools."""
    with mcp.context.database.transaction() as tx:
        row = mcp.get_row(tx, server_id)
        return success(server_json(row, pins.list_pins(tx, mcp.tenant_id, row.id)))


@router.put("/mcp/servers/{server_id}", openapi_extra=body_openapi(McpServerBody))
@router.patch("/mcp/servers/{server_id}", operation_id="patch_server", openapi_extra=body_openapi(McpServerBody))
async def change_server(mcp: McpContextDep, server_id: str, body: SmallBody) -> Response:
    """Change the fields in the body. If the address changes, the tools are read again and approved."""
    row = await mcp.read_row(server_id)
    body_fields = parse_body(McpServerBody, body)
    fields = build_fields(body_fields, row.fields)
    moves = any(getattr(fields, name) != getattr(row.fields, name) for name in _TOOL_FIELDS)
    live = await mcp.list_live_tools(row.id.hex, fields) if moves and not body_fields.unchecked else {}
    return await run_in_thread(lambda: _change_server(mcp, row, fields, live))


@router.delete("/mcp/servers/{server_id}")
def delete_server(mcp: McpContextDep, server_id: str) -> Response:
    """Delete a server. Agents that name it fail with an error that says so."""
    with mcp.context.database.transaction() as tx:
        row = mcp.get_row(tx, server_id)
        servers.remove(tx, mcp.tenant_id, row.id)
        audit.record(tx, mcp.tenant_id, mcp.actor, Action.MCP_SERVER_DELETED, row.id, {"name": row.fields.name})
    return success(True)


@router.get("/mcp/servers/{server_id}/tools", dependencies=[NEEDS_READ])
async def list_tools(mcp: McpContextDep, server_id: str) -> Response:
    """List the tools that a server offers now, and whether they are as approved."""
    return success(await _list_live_tools(mcp, server_id))


@router.post("/mcp/servers/{server_id}/test", openapi_extra=body_openapi(McpToolTestBody))
async def test_tool(mcp: McpContextDep, server_id: str, body: SmallBody) -> Response:
    """Test a tool. Returns the text that a model would read."""
    return await _test_tool(mcp, server_id, parse_body(McpToolTestBody, body))


@router.post("/mcp/servers/{server_id}/approve", openapi_extra=body_openapi(McpApprovalBody))
async def approve_tools(mcp: McpContextDep, server_id: str, body: SmallBody) -> Response:
    """Approve tools as the server describes them now. Agents may call them from the next attempt on."""
    row = await mcp.read_row(server_id)
    body_fields = parse_body(McpApprovalBody, body)
    live = await mcp.list_live_tools(row.id.hex, row.fields)
    names = list(live) if body_fields.tools is None else body_fields.tools
    if missing := [name for name in names if name not in live]:
        raise RequestRefused(DATA, f"The server does not offer: {', '.join(missing)}.")

    def approve() -> Response:
        with mcp.context.database.transaction() as tx:
            _approve(tx, mcp, row.id, {name: live[name] for name in names})
            audit.record(
                tx,
                mcp.tenant_id,
                mcp.actor,
                Action.MCP_SERVER_CHANGED,
                row.id,
                {"name": row.fields.name, "approved": sorted(names)[:50]},
            )
            return success(live_tools_json(row.fields, live, pins.list_pins(tx, mcp.tenant_id, row.id)))

    return await run_in_thread(approve)


# -- agents as tools --------------------------------------------------------------------------------------------------


@router.get("/agents/{agent_id}/mcp", dependencies=[NEEDS_READ])
def get_exposure(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str) -> Response:
    """Get the name under which an agent is offered as a tool under `/mcp`; null if it is not."""
    with context.database.transaction() as tx:
        canvas = get_caller_canvas(tx, principal, agent_id)
        return success({"name": agents.tool_name_of(tx, principal.tenant_id, canvas.id)})


@router.put("/agents/{agent_id}/mcp", openapi_extra=body_openapi(McpExposureBody))
def expose_agent(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, body: SmallBody) -> Response:
    """Offer an agent's published version as a tool under `/mcp`."""
    body_fields = parse_body(McpExposureBody, body)
    with context.database.transaction() as tx:
        canvas = get_caller_canvas(tx, principal, agent_id)
        name = body_fields.name or agents.make_tool_name(canvas.title, canvas.id)
        return success({"name": agents.expose(tx, principal.tenant_id, canvas.id, name)})


@router.delete("/agents/{agent_id}/mcp")
def hide_agent(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str) -> Response:
    """Stop offering an agent as a tool."""
    with context.database.transaction() as tx:
        canvas = get_caller_canvas(tx, principal, agent_id)
        agents.hide(tx, principal.tenant_id, canvas.id)
    return success(True)


# -- work in threads --------------------------------------------------------------------------------------------------


async def _list_live_tools(mcp: McpContext, server_id: str) -> list[dict[str, object]]:
    row = await mcp.read_row(server_id)
    live = await mcp.list_live_tools(row.id.hex, row.fields)

    def compare_with_pins() -> list[dict[str, object]]:
        with mcp.context.database.transaction() as tx:
            return live_tools_json(row.fields, live, pins.list_pins(tx, mcp.tenant_id, row.id))

    return await run_in_thread(compare_with_pins)


async def _test_tool(mcp: McpContext, server_id: str, body_fields: McpToolTestBody) -> Response:
    row = await mcp.read_row(server_id)
    if not body_fields.tool_name:
        raise RequestRefused(DATA, "No tool name provided.")
    session = mcp.make_session(row.id.hex, row.fields)
    try:
        await session.open()
        return success(await session.call(body_fields.tool_name, body_fields.arguments))
    except NodeFailure as failure:
        raise RequestRefused(DATA, failure.message) from failure
    finally:
        await session.close()


def _add_server(
    mcp: McpContext, once: IdempotentRequest, fields: ServerFields, live: Mapping[str, LiveTool]
) -> Response:
    with once.transaction(mcp.context.database) as tx:
        server_id = _add(tx, mcp, fields, live)
        row = servers.get(tx, mcp.tenant_id, server_id, mcp.key)
        return once.store_reply(tx, success(server_json(row, pins.list_pins(tx, mcp.tenant_id, server_id))))


def _add(tx: Transaction, mcp: McpContext, fields: ServerFields, live: Mapping[str, LiveTool]) -> UUID:
    try:
        server_id = servers.add(tx, mcp.tenant_id, fields, mcp.key)
    except Conflict:
        raise RequestRefused(DATA, "Duplicated MCP server name.") from None
    _approve(tx, mcp, server_id, live)
    audit.record(tx, mcp.tenant_id, mcp.actor, Action.MCP_SERVER_ADDED, server_id, {"name": fields.name})
    return server_id


def _add_imported(
    mcp: McpContext, once: IdempotentRequest, found: Mapping[str, "_ReachedServer | RequestRefused"]
) -> Response:
    """Add the servers that answered, with another name if one is in use, and return the result of each."""
    results: list[dict[str, object]] = []
    with once.transaction(mcp.context.database) as tx:
        taken = {row.fields.name for row in servers.list_servers(tx, mcp.tenant_id, mcp.key)}
        for name, one in found.items():
            if isinstance(one, RequestRefused):
                results.append({"server": name, "success": False, "message": one.message})
                continue
            free = next(other for other in _alternative_names(one.fields.name) if other not in taken)
            server_id = _add(tx, mcp, replace(one.fields, name=free), one.live)
            taken.add(free)
            renamed = {"new_name": free} if free != one.fields.name else {}
            results.append({"server": name, "success": True, "action": "created", "id": server_id.hex, **renamed})
        return once.store_reply(tx, success({"results": results}))


def _alternative_names(name: str) -> Iterator[str]:
    """Yield a name, then alternatives if it is in use."""
    yield name
    yield from (f"{name}_{number}" for number in count())


def _change_server(mcp: McpContext, row: ServerRow, fields: ServerFields, live: Mapping[str, LiveTool]) -> Response:
    with mcp.context.database.transaction() as tx:
        try:
            servers.change(tx, mcp.tenant_id, row.id, fields, mcp.key)
        except Conflict:
            raise RequestRefused(DATA, "Duplicated MCP server name.") from None
        names = sorted(
            name for name in fields.__dataclass_fields__ if getattr(fields, name) != getattr(row.fields, name)
        )
        audit.record(
            tx, mcp.tenant_id, mcp.actor, Action.MCP_SERVER_CHANGED, row.id, {"name": fields.name, "fields": names}
        )
        if fields.url != row.fields.url:
            pins.delete_pins(tx, mcp.tenant_id, row.id)
            _approve(tx, mcp, row.id, live)
        changed = servers.get(tx, mcp.tenant_id, row.id, mcp.key)
        return success(server_json(changed, pins.list_pins(tx, mcp.tenant_id, row.id)))


def _approve(tx: Transaction, mcp: McpContext, server_id: UUID, live: Mapping[str, LiveTool]) -> None:
    for tool in live.values():
        pins.approve(tx, mcp.tenant_id, server_id, tool.name, tool.description, tool.schema)
