"""Request and reply fields of MCP servers, with RAGFlow's names. Replies never contain secrets.

Replies show secrets as `***`. In a request, `***` keeps the stored value.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from api.http.errors import DATA, RequestRefused
from api.http.replies import date
from api.http.schemas import READ_ONLY_FIELDS, Body, Flag, NoEffect, Text
from canvas.document.mcp_tools import digest_of
from providers.http.redirects import mask_url
from providers.mcp.session import MAX_TOOLS, SERVER_TYPES, LiveTool
from scheduler.views.json_values import milliseconds
from store.mcp.pins import Pin
from store.mcp.servers import ServerFields, ServerRow

HIDDEN = "***"
MAX_CALL_SECONDS = 600.0


def _parse_object(value: Any) -> Any:
    """Return an object that may be given as JSON text, as RAGFlow's front end does."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else {}
    except ValueError:
        return value  # pydantic reports the defect


Object = Annotated[dict[str, Any], BeforeValidator(_parse_object)]


class McpServerBody(Body):
    """A server; an update has the fields that change."""

    without_effect: ClassVar[NoEffect] = {**READ_ONLY_FIELDS, "mcp_id": ()}

    name: Annotated[str, Field(max_length=255)] | None = None
    url: Annotated[str, Field(max_length=4096)] | None = None
    server_type: str | None = Field(default=None, description="`streamable-http` or `sse`")
    description: Text | None = None
    headers: Object | None = Field(default=None, description="Templates: `${name}` stands for a variable")
    variables: Object | None = None
    timeout: float | None = Field(
        default=None, ge=1, le=MAX_CALL_SECONDS, description="Time limit of one call in seconds"
    )
    allowed_tools: list[str] | None = Field(
        default=None, max_length=MAX_TOOLS, description="Tools that may be called; by default, or empty: all"
    )
    unchecked: Flag = Field(default=False, description="Store the server without connecting to it")


class McpImportBody(Body):
    """Servers in the format of the configuration files of MCP clients."""

    without_effect: ClassVar[NoEffect] = {"timeout": ()}

    servers: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]], alias="mcpServers")
    unchecked: Flag = False


class McpServerIdsBody(Body):
    """Servers by id."""

    without_effect: ClassVar[NoEffect] = {"timeout": ()}

    mcp_ids: list[str] = Field(default_factory=list[str], max_length=100)


class McpToolTestBody(Body):
    """A test call of a tool."""

    without_effect: ClassVar[NoEffect] = {"timeout": ()}

    mcp_id: str | None = None
    tool_name: str = ""
    arguments: Object = Field(default_factory=dict[str, Any])


class McpApprovalBody(Body):
    """The tools to approve; by default all that the server offers now."""

    tools: list[str] | None = None


class McpExposureBody(Body):
    """The settings of an agent that is offered as a tool."""

    name: str | None = Field(default=None, description="Name of the tool; by default from the agent's title")


def build_fields(changes: McpServerBody, before: ServerFields | None = None) -> ServerFields:
    """Return all fields of a server; fields that are not given keep their value.

    Raises RequestRefused for invalid ones.
    """
    name = (changes.name if changes.name is not None else before.name if before else "").strip()
    url = (changes.url if changes.url is not None else before.url if before else "").strip()
    if before is not None and url == mask_url(before.url):
        url = before.url
    elif HIDDEN in url:
        raise RequestRefused(DATA, f"Invalid url: {HIDDEN} stands for a hidden part. Write the whole address.")
    server_type = changes.server_type or (before.server_type if before else "streamable-http")
    if not name or len(name.encode()) > 255:
        raise RequestRefused(DATA, f"Invalid MCP name or length is {len(name)} which is large than 255.")
    if not url:
        raise RequestRefused(DATA, "Invalid url.")
    if server_type not in SERVER_TYPES:
        raise RequestRefused(DATA, f"Unsupported MCP server type: {server_type}")
    timeout = changes.timeout if changes.timeout is not None else before.call_seconds if before else 10.0
    allowed = before.allowed if before and changes.allowed_tools is None else changes.allowed_tools
    return ServerFields(
        name=name,
        url=url,
        server_type=server_type,
        description=changes.description if changes.description is not None else before.description if before else "",
        headers=_keep_hidden(changes.headers, before.headers if before else {}),
        variables=_keep_hidden(changes.variables, before.variables if before else {}),
        call_seconds=timeout,
        allowed=list(allowed) if allowed else None,
    )


def parse_imported_server(name: str, stored: Mapping[str, Any], *, unchecked: bool) -> McpServerBody:
    """Return a server of a client's configuration file: {type, url, authorization_token, headers?}.

    Raises RequestRefused for a server without a type or address.
    """
    kind = stored.get("type") or stored.get("server_type")
    url = stored.get("url")
    if not isinstance(kind, str) or not isinstance(url, str):
        raise RequestRefused(DATA, "Missing required fields (type or url)")
    kind = {"streamable_http": "streamable-http", "streamableHttp": "streamable-http", "http": "streamable-http"}.get(
        kind, kind
    )
    headers = stored.get("headers")
    headers = dict(headers) if isinstance(headers, Mapping) else {}
    variables: dict[str, Any] = {}
    token = stored.get("authorization_token")
    if isinstance(token, str) and token.strip():
        variables["authorization_token"] = token.removeprefix("Bearer ").strip()
        headers.setdefault("Authorization", "Bearer ${authorization_token}")
    return McpServerBody(
        name=name, url=url, server_type=kind, headers=headers, variables=variables, unchecked=unchecked
    )


def server_json(row: ServerRow, pins: list[Pin]) -> dict[str, Any]:
    """Return a server for a reply: names of headers and variables without values, and the approved tools."""
    fields = row.fields
    tools = {pin.name: tool_json(pin.name, pin.description, pin.schema) for pin in pins}
    return {
        "id": row.id.hex,
        "name": fields.name,
        "description": fields.description,
        "url": mask_url(fields.url),
        "server_type": fields.server_type,
        "headers": dict.fromkeys(fields.headers, HIDDEN),
        "variables": {**dict.fromkeys(fields.variables, HIDDEN), "tools": tools},
        "timeout": fields.call_seconds,
        "allowed_tools": list(fields.allowed) if fields.allowed is not None else None,
        "create_time": milliseconds(row.created_at),
        "create_date": date(row.created_at),
        "update_time": milliseconds(row.updated_at),
        "update_date": date(row.updated_at),
    }


def tool_json(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool in the format of MCP."""
    return {"name": name, "description": description, "inputSchema": dict(schema)}


def live_tools_json(fields: ServerFields, live: Mapping[str, LiveTool], pins: list[Pin]) -> list[dict[str, Any]]:
    """Return the tools that a server offers now or had, each with its state: `approved`, `changed`, `new` or `gone`."""
    seen = {pin.name: pin for pin in pins}
    shown: list[dict[str, Any]] = []
    for tool in live.values():
        pin = seen.get(tool.name)
        is_same = pin is not None and pin.digest == digest_of(tool.description, tool.schema)
        state = "new" if pin is None else "approved" if is_same else "changed"
        known = tool_json(tool.name, tool.description, tool.schema)
        enabled = fields.allowed is None or tool.name in fields.allowed
        shown.append({**known, "state": state, "enabled": enabled})
        if pin is not None and not is_same:
            shown[-1]["approved"] = tool_json(pin.name, pin.description, pin.schema)
    gone = [pin for pin in pins if pin.name not in live]
    return shown + [
        {**tool_json(pin.name, pin.description, pin.schema), "state": "gone", "enabled": False} for pin in gone
    ]


def _keep_hidden(changes: Mapping[str, Any] | None, before: Mapping[str, str]) -> dict[str, str]:
    """Return texts by name, with stored values for hidden ones. RAGFlow's tools among the variables are left out."""
    if changes is None:
        return dict(before)
    texts: dict[str, str] = {}
    for name, value in changes.items():
        if isinstance(value, Mapping | list) or value is None:
            continue
        texts[name] = before.get(name, "") if value == HIDDEN else str(value)
    return texts
