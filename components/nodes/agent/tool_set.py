"""The functions that an Agent offers to its model, and their names.

A tool's function is named `<function>_<i>` by its position in the list, so that two tools of one kind have different
names. The tools of MCP servers follow, with the next numbers. The author's configuration is validated when the canvas
is loaded: `parse_entry` builds a `ToolEntry`; `tool_function` and `mcp_function` build the functions when the Agent
runs. Sub-agents are functions too; `components/nodes/agent/agent.py` builds those.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pydantic import ValidationError

from canvas.document import component_names
from canvas.document.mcp_tools import schema_in
from canvas.errors import NodeFailure
from components import tools
from components.base import Effect
from components.context import NodeContext
from components.tools.framework.base import Tool, ToolParams, ToolRun
from components.tools.framework.tool_node import resolve_argument
from providers.interfaces import McpCall

AGENT = "Agent"
NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}
MCP_SECONDS = 620.0  # for opening a session, listing the tools, and the longest call that can be configured

CallFunction: TypeAlias = Callable[[Mapping[str, Any], NodeContext], Awaitable[ToolRun]]


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """A tool that an author added to an Agent. Without a `tool` it is a sub-agent with these `params`."""

    name: str
    component: str
    params: Any = field(repr=False)
    tool: Tool[Any] | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a model may call. `limit` is in seconds; None means the component's usual time limit."""

    name: str
    label: str  # the display name
    component: str
    schema: Mapping[str, Any]
    call: CallFunction
    limit: float | None = None
    brings_sources: bool = False
    effect: Effect = "idempotent"  # what repeating a call means


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of an MCP server as stored with the Agent. `name` is the server's name for it.

    If the Agent has no `schema`, the pinned one applies: see `with_pinned_schema`.
    """

    server: str
    name: str
    description: str
    schema: Mapping[str, Any] | None


def parse_entry(stored: Any, check_agent: Callable[[Any], Any]) -> ToolEntry:
    """Validate a stored tool and return it. Raises ValueError with the text of the load error."""
    if isinstance(stored, str):
        stored = {"component_name": stored}
    if not isinstance(stored, Mapping) or not isinstance(stored.get("component_name"), str):
        raise ValueError("[Agent] Tools: each is an object with component_name, name and params")
    component = component_names.canonical(stored["component_name"])
    name = str(stored.get("name") or component)
    fields: Any = {} if stored.get("params") is None else stored["params"]
    tool = None if component == AGENT else tools.find(component)
    if tool is None and component != AGENT:
        raise ValueError(f"Can't import {component}")
    try:
        params = check_agent(fields) if tool is None else tool.params.model_validate(fields)
    except ValidationError as invalid:
        raise ValueError(f"{component} configuration error: {_first_error(invalid)}") from None
    return ToolEntry(name, component, params, tool)


def parse_mcp_tools(stored: Any) -> list[McpTool]:
    """Validate the stored tools of MCP servers and return them in order. Raises ValueError for an invalid one."""
    found: list[McpTool] = []
    for server in stored or ():
        if not isinstance(server, Mapping) or not isinstance(server.get("tools") or {}, Mapping):
            raise ValueError("[Agent] MCP: each is an object with mcp_id and tools by name")
        for name, value in (server.get("tools") or {}).items():
            details = value if isinstance(value, Mapping) else {}
            found.append(
                McpTool(
                    server=str(server.get("mcp_id") or ""),
                    name=str(name),
                    description=str(details.get("description") or ""),
                    schema=schema_in(details),
                )
            )
    return found


def tool_function(entry: ToolEntry, number: int) -> Function:
    """Return the function that calls an entry's tool."""
    tool = entry.tool
    assert tool is not None  # agent.py builds the functions of sub-agents
    params = tool.adapt_for_models(entry.params)
    name = numbered_name(str(getattr(params, "function_name", None) or tool.function), number)

    async def call(arguments: Mapping[str, Any], ctx: NodeContext) -> ToolRun:
        return await tool.run(params, _complete_arguments(tool, params, arguments, ctx), ctx)

    return Function(
        name=name,
        label=entry.name,
        component=tool.name,
        schema=tool.schema(params, name),
        call=call,
        brings_sources=tool.brings_sources and params.can_find_sources,
        effect=tool.effect,
    )


async def with_pinned_schema(tool: McpTool, ctx: NodeContext) -> McpTool:
    """Return the tool with its pinned description and schema, if the Agent has no schema of its own."""
    if tool.schema is not None or ctx.services.mcp is None:
        return tool
    try:
        pinned = await ctx.services.mcp.load_pinned_description(tool.server, tool.name)
    except NodeFailure:
        pinned = None  # an unknown server; a call of the tool reports it
    if pinned is None:
        ctx.log.warning("mcp_tool_without_schema", server=tool.server, tool=tool.name)
        return tool
    return replace(tool, description=tool.description or pinned.description, schema=pinned.schema)


def mcp_function(tool: McpTool, number: int, headers: Mapping[str, str] | None = None) -> Function:
    """Return the function that calls a tool of an MCP server, with the Agent's own headers."""
    name = numbered_name(tool.name, number)

    async def call(arguments: Mapping[str, Any], ctx: NodeContext) -> ToolRun:
        return await _call_mcp(tool, arguments, {**(headers or {}), **ctx.caller_headers()}, ctx)

    schema = build_schema(name, tool.description, tool.schema or NO_ARGUMENTS)
    return Function(name, tool.name, "MCP", schema, call, limit=MCP_SECONDS, effect="unsafe")


def index_by_name(functions: Iterable[Function]) -> dict[str, Function]:
    """Return the functions by name; their numbers make the names unique."""
    return {function.name: function for function in functions}


def numbered_name(name: str, number: int) -> str:
    """Return the name that the model sees for the function at this position."""
    return f"{name.replace(' ', '_')}_{number}"


def build_schema(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema by which a model is offered a function."""
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": dict(parameters)},
    }


async def _call_mcp(
    tool: McpTool, arguments: Mapping[str, Any], headers: Mapping[str, str], ctx: NodeContext
) -> ToolRun:
    """Call a tool under the server's name for it. An error becomes the result, for the model to read."""
    servers = ctx.services.mcp
    if servers is None:
        text = f"MCP server {tool.server} is not configured for this tenant."
        return ToolRun({}, text, text)
    call = McpCall(tool.server, tool.name, arguments, tool.description, tool.schema or NO_ARGUMENTS, headers)
    try:
        return ToolRun({}, await servers.call(call))
    except NodeFailure as failure:
        return ToolRun({}, failure.message, failure.message, failure.code)


def _complete_arguments(
    tool: Tool[Any], params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext
) -> dict[str, Any]:
    """Return the arguments that the tool knows. A missing optional argument gets the author's stored value.

    Raises UnresolvedReference if that value refers to something that the canvas does not have.
    """
    values = {name: arguments.get(name) for name in (*tool.arguments, *params.extra_arguments)}
    for name, argument in tool.arguments.items():
        if not argument.required and argument.is_omitted(values[name]):
            values[name] = resolve_argument(argument, tool.stored_value(params, name, argument), ctx)
    return {name: value for name, value in values.items() if value is not None}


def _first_error(invalid: ValidationError) -> str:
    """Return the first error of the params, without their values."""
    details = invalid.errors(include_url=False, include_input=False)[0]
    error = details.get("ctx", {}).get("error")
    if error is not None:
        return str(error)
    field_name = ".".join(str(step) for step in details["loc"])
    return f"{field_name}: {details['msg']}" if field_name else details["msg"]
