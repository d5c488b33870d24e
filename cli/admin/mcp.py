"""MCP servers, and agents that are offered as tools: `easel mcp`."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar
from uuid import UUID

import typer

from canvas.document.mcp_tools import digest_of
from canvas.errors import InvalidRequest, NodeFailure, NotFound
from canvas.ids import TenantId
from cli.agents import agents as named
from cli.shell import output
from cli.shell.actor import find_actor
from cli.shell.connection import CommandConnection, find_tenant_id, open_connection
from cli.shell.exit_codes import Exit
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.http.redirects import mask_url
from providers.mcp.session import SERVER_TYPES, LiveTool, McpServer, McpSession
from store.mcp import agents, pins, servers
from store.mcp.servers import ServerFields, ServerRow
from store.primitives.encryption import EncryptionKey
from store.tenants import audit
from store.tenants.audit import Action

mcp = typer.Typer(
    help="MCP servers: list, add, remove, tools, test, approve; agents as tools: expose, hide.", no_args_is_help=True
)

T = TypeVar("T")

Server = Annotated[str, typer.Argument(help="The server's name or id.", metavar="SERVER")]
Tools = Annotated[list[str] | None, typer.Argument(help="Names of tools; by default all.", metavar="TOOL...")]
Agent = Annotated[str, typer.Argument(help="The agent's id or title.", metavar="AGENT")]


@mcp.command("list")
def list_servers(tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """List the MCP servers of a tenant. Secrets are never shown."""
    with open_connection() as connection, connection.database.transaction() as tx:
        rows = servers.list_servers(tx, find_tenant_id(tx, tenant), _key(connection))
    listed = [
        {"id": row.id.hex, "name": row.fields.name, "type": row.fields.server_type, "url": mask_url(row.fields.url)}
        for row in rows
    ]
    empty = "There are no MCP servers. `easel mcp add NAME URL` adds one."
    output.print_table(listed, ("id", "name", "type", "url"), as_json=as_json, empty=empty)


@mcp.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the server.", metavar="NAME")],
    url: Annotated[str, typer.Argument(help="Address of the server.", metavar="URL")],
    server_type: Annotated[
        str, typer.Option("--type", help=" or ".join(SERVER_TYPES), metavar="TYPE")
    ] = "streamable-http",
    header: Annotated[
        list[str] | None, typer.Option(help="A header; ${name} stands for a variable.", metavar="NAME=VALUE")
    ] = None,
    variable_from: Annotated[
        list[str] | None, typer.Option(help="A variable, read from the environment.", metavar="NAME=ENVIRONMENT")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Time limit of one call in seconds.", min=1, max=600)] = 10.0,
    allow: Annotated[
        list[str] | None, typer.Option(help="A tool that may be called; by default all.", metavar="TOOL")
    ] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Add it without connecting to it.")] = False,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Add a server and print its id for `mcp_id`. Its tools are approved as they are now."""
    if server_type not in SERVER_TYPES:
        raise typer.BadParameter(
            f"{server_type!r} is not a type of server. Use one of: {', '.join(SERVER_TYPES)}.", param_hint="--type"
        )
    fields = ServerFields(
        name.strip(),
        url.strip(),
        server_type,
        headers=_pairs(header, "--header"),
        variables={
            each: _from_environment(source) for each, source in _pairs(variable_from, "--variable-from").items()
        },
        call_seconds=timeout,
        allowed=allow or None,
    )
    with open_connection() as connection:
        live = {} if unchecked else _call_server(connection, "new", fields, lambda session: session.tools())
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            server_id = servers.add(tx, tenant_id, fields, _key(connection))
            audit.record(tx, tenant_id, find_actor(), Action.MCP_SERVER_ADDED, server_id, {"name": fields.name})
            for tool in live.values():
                pins.approve(tx, tenant_id, server_id, tool.name, tool.description, tool.schema)
    if as_json:
        output.print_json({"id": server_id.hex, "name": fields.name, "tools": list(live)})
        return
    output.print_line(server_id.hex)
    offers = "its tools were not checked" if unchecked else f"it offers {', '.join(live) or 'no tools'}"
    output.print_message(f'MCP server "{fields.name}" is stored; {offers}.')


@mcp.command()
def remove(server: Server, tenant: OfTenant = LOCAL_TENANT) -> None:
    """Delete a server and its secrets."""
    with open_connection() as connection:
        tenant_id, row = _find_server(connection, tenant, server)
        with connection.database.transaction() as tx:
            servers.remove(tx, tenant_id, row.id)
            audit.record(tx, tenant_id, find_actor(), Action.MCP_SERVER_DELETED, row.id, {"name": row.fields.name})
    output.print_message(f'MCP server "{row.fields.name}" is deleted.')


@mcp.command("tools")
def list_tools(server: Server, tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """List the tools that a server offers now, and whether they are as approved."""
    with open_connection() as connection:
        tenant_id, row = _find_server(connection, tenant, server)
        live = _call_server(connection, row.id.hex, row.fields, lambda session: session.tools())
        with connection.database.transaction() as tx:
            seen = {pin.name: pin.digest for pin in pins.list_pins(tx, tenant_id, row.id)}
    rows = [
        {
            "tool": tool.name,
            "state": _state(tool, seen.get(tool.name)),
            "description": tool.description,
            **({"inputSchema": dict(tool.schema)} if as_json else {}),
        }
        for tool in live.values()
    ]
    output.print_table(rows, ("tool", "state", "description"), as_json=as_json, empty="The server offers no tools.")


@mcp.command("test")
def try_out(
    server: Server,
    tool: Annotated[str, typer.Argument(help="Name of the tool on the server.", metavar="TOOL")],
    arguments: Annotated[str, typer.Option(help="Arguments as a JSON object.", metavar="JSON")] = "{}",
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Call a tool and print the result as a model would read it."""
    try:
        parsed = json.loads(arguments)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidRequest("--arguments must be a JSON object.")

    async def call(session: McpSession) -> str:
        await session.open()
        return await session.call(tool, parsed)

    with open_connection() as connection:
        _, row = _find_server(connection, tenant, server)
        output.print_line(_call_server(connection, row.id.hex, row.fields, call))


@mcp.command()
def approve(server: Server, tools: Tools = None, tenant: OfTenant = LOCAL_TENANT) -> None:
    """Approve tools as the server describes them now. Read `easel mcp tools SERVER --json` first."""
    with open_connection() as connection:
        tenant_id, row = _find_server(connection, tenant, server)
        live = _call_server(connection, row.id.hex, row.fields, lambda session: session.tools())
        names = tools or list(live)
        if missing := [name for name in names if name not in live]:
            raise NotFound(f'MCP server "{row.fields.name}" does not offer: {", ".join(missing)}.')
        with connection.database.transaction() as tx:
            for name in names:
                pins.approve(tx, tenant_id, row.id, name, live[name].description, live[name].schema)
    output.print_message(f"Approved: {', '.join(names)}.")


@mcp.command()
def expose(
    agent: Agent,
    name: Annotated[
        str | None, typer.Option(help="Name of the tool; by default from the title.", metavar="NAME")
    ] = None,
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Offer an agent's published version as a tool under /mcp and print the tool's name."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        found = named.find(tx, tenant_id, agent)
        tool = agents.expose(tx, tenant_id, found.id, name or agents.make_tool_name(found.title, found.id))
    output.print_line(tool)
    if found.published_at is None:
        output.print_message(
            f'Agent "{found.title}" is not published yet, so it is not offered: easel publish {found.id.hex}'
        )


@mcp.command()
def hide(agent: Agent, tenant: OfTenant = LOCAL_TENANT) -> None:
    """Stop offering an agent as a tool."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        found = named.find(tx, tenant_id, agent)
        agents.hide(tx, tenant_id, found.id)
    output.print_message(f'Agent "{found.title}" is not offered as a tool.')


# -- steps of the commands ---------------------------------------------------------------------------------------------
def _find_server(connection: CommandConnection, tenant: str, server: str) -> tuple[TenantId, ServerRow]:
    key = _key(connection)
    with connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        row = servers.find(tx, tenant_id, server, key)
        if row is not None:
            return tenant_id, row
        try:
            return tenant_id, servers.get(tx, tenant_id, UUID(server), key)
        except (ValueError, NotFound):
            raise NotFound(f'The MCP server "{server}" does not exist. `easel mcp list` lists them.') from None


def _call_server(
    connection: CommandConnection, server_id: str, fields: ServerFields, ask: Callable[[McpSession], Awaitable[T]]
) -> T:
    """Return the result of `ask` on a session with the server. If it fails, print the reason and exit with code 1."""
    settings = connection.servers.settings
    guard = Guard.parse(allow_any=settings.allow_any_host, allowed=settings.ssrf_allow or "")
    server = McpServer.of(
        server_id,
        fields.name,
        fields.url,
        fields.server_type,
        headers=fields.headers,
        variables=fields.variables,
        call_seconds=fields.call_seconds,
    )

    async def ask_server() -> T:
        http = HttpClient(guard, user_agent=settings.http_user_agent, contact=settings.contact)
        session = McpSession(server, http)
        try:
            return await ask(session)
        finally:
            await session.close()
            await http.aclose()

    try:
        return asyncio.run(ask_server())
    except NodeFailure as failure:
        output.print_message(failure.message, output.RED)
        raise typer.Exit(Exit.FAILED) from failure


def _key(connection: CommandConnection) -> EncryptionKey:
    return EncryptionKey.from_secret(connection.servers.settings.encryption_secret())


def _state(tool: LiveTool, approved: bytes | None) -> str:
    if approved is None:
        return "new"
    return "approved" if approved == digest_of(tool.description, tool.schema) else "changed"


def _pairs(arguments: list[str] | None, option: str) -> Mapping[str, str]:
    pairs: dict[str, str] = {}
    for pair in arguments or ():
        name, mark, value = pair.partition("=")
        if not mark or not name.strip():
            raise typer.BadParameter(f"{name!r} is not a pair. Write NAME=VALUE.", param_hint=option)
        pairs[name.strip()] = value
    return pairs


def _from_environment(variable: str) -> str:
    """Return a secret from a variable; not from an argument, which other users of the machine see."""
    value: Any = os.environ.get(variable)
    if not value:
        raise InvalidRequest(f"The environment variable {variable} is not set.")
    return value
