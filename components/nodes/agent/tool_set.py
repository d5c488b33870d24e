"""Which functions an Agent offers to its model, and under which names (components 3.5, tools 1.3).

A tool's function is named `<function>_<i>` by its place in the list, so that two of a kind can be told apart; the tools
of MCP servers follow, and the numbers go on. What an author configured is checked when the canvas is loaded: `entry_of`
makes an `Entry` of it, and `of_tool`, `of_mcp` make the functions when the Agent runs. Sub-agents are functions too;
`components/nodes/agent/agent.py` makes those.
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
from components.tools.framework.tool_node import resolved
from providers.interfaces import McpCall

AGENT = "Agent"
NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}
MCP_SECONDS = 620.0  # to open a session, to list, and the longest call that a server's row may allow

CallFunction: TypeAlias = Callable[[Mapping[str, Any], NodeContext], Awaitable[ToolRun]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A tool as its author put it into an Agent. Without a `tool` it is a sub-agent, and `params` are its own."""

    name: str
    component: str
    params: Any = field(repr=False)
    tool: Tool[Any] | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """What a model may call. `limit` is in seconds; where it is None, the limit of the component's class holds."""

    name: str
    label: str  # what people call it
    component: str
    schema: Mapping[str, Any]
    call: CallFunction
    limit: float | None = None
    brings_sources: bool = False
    effect: Effect = "idempotent"  # what repeating a call means


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of an MCP server, as it was stored with the Agent. `name` is the server's own.

    Where the Agent has no `schema`, the pinned one counts: see `with_pinned_schema`.
    """

    server: str
    name: str
    description: str
    schema: Mapping[str, Any] | None


def entry_of(stored: Any, check_agent: Callable[[Any], Any]) -> Entry:
    """A stored tool, checked. Raises ValueError with the text that a load error shows."""
    if isinstance(stored, str):
        stored = {"component_name": stored}
    if not isinstance(stored, Mapping) or not isinstance(stored.get("component_name"), str):
        raise ValueError("[Agent] Tools: each is an object with component_name, name and params")
    component = component_names.canonical(stored["component_name"])
    name = str(stored.get("name") or component)
    params = stored.get("params")
    given = {} if params is None else params
    tool = None if component == AGENT else tools.find(component)
    if tool is None and component != AGENT:
        raise ValueError(f"Can't import {component}")
    try:
        checked = check_agent(given) if tool is None else tool.params.model_validate(given)
    except ValidationError as invalid:
        raise ValueError(f"{component} configuration error: {_reason(invalid)}") from None
    return Entry(name, component, checked, tool)


def mcp_tools(stored: Any) -> list[McpTool]:
    """The stored tools of MCP servers, in order. Raises ValueError for what is none."""
    found: list[McpTool] = []
    for server in stored or ():
        if not isinstance(server, Mapping) or not isinstance(server.get("tools") or {}, Mapping):
            raise ValueError("[Agent] MCP: each is an object with mcp_id and tools by name")
        for name, told in (server.get("tools") or {}).items():
            described = told if isinstance(told, Mapping) else {}
            found.append(
                McpTool(
                    server=str(server.get("mcp_id") or ""),
                    name=str(name),
                    description=str(described.get("description") or ""),
                    schema=schema_in(described),
                )
            )
    return found


def of_tool(entry: Entry, number: int) -> Function:
    """The function that calls an entry's tool."""
    tool = entry.tool
    assert tool is not None  # sub-agents are made elsewhere
    params = tool.for_models(entry.params)
    name = numbered(str(getattr(params, "function_name", None) or tool.function), number)

    async def call(arguments: Mapping[str, Any], ctx: NodeContext) -> ToolRun:
        return await tool.run(params, _given(tool, params, arguments, ctx), ctx)

    return Function(
        name=name,
        label=entry.name,
        component=tool.name,
        schema=tool.schema(params, name),
        call=call,
        brings_sources=tool.brings_sources and params.finds_sources,
        effect=tool.effect,
    )


async def with_pinned_schema(tool: McpTool, ctx: NodeContext) -> McpTool:
    """Return the tool with the words that were pinned when somebody saw it, if the Agent has no schema of its own."""
    if tool.schema is not None or ctx.services.mcp is None:
        return tool
    try:
        pinned = await ctx.services.mcp.pinned(tool.server, tool.name)
    except NodeFailure:
        pinned = None  # an unknown server: calling the tool says so
    if pinned is None:
        ctx.log.warning("mcp_tool_without_schema", server=tool.server, tool=tool.name)
        return tool
    return replace(tool, description=tool.description or pinned.description, schema=pinned.schema)


def of_mcp(tool: McpTool, number: int, headers: Mapping[str, str] | None = None) -> Function:
    """The function that calls a tool of an MCP server, with the Agent's own headers."""
    name = numbered(tool.name, number)

    async def call(arguments: Mapping[str, Any], ctx: NodeContext) -> ToolRun:
        return await _call_mcp(tool, arguments, {**(headers or {}), **ctx.caller_headers()}, ctx)

    schema = schema_of(name, tool.description, tool.schema or NO_ARGUMENTS)
    return Function(name, tool.name, "MCP", schema, call, limit=MCP_SECONDS, effect="unsafe")


def by_name(functions: Iterable[Function]) -> dict[str, Function]:
    """Functions as they are looked up; their numbers keep names apart."""
    return {function.name: function for function in functions}


def numbered(name: str, number: int) -> str:
    """The name under which the function at this place is offered."""
    return f"{name.replace(' ', '_')}_{number}"


def schema_of(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A function as a model is offered it."""
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": dict(parameters)},
    }


async def _call_mcp(
    tool: McpTool, arguments: Mapping[str, Any], headers: Mapping[str, str], ctx: NodeContext
) -> ToolRun:
    """Call a tool by the server's own name for it. What could not be called is an answer as well."""
    servers = ctx.services.mcp
    if servers is None:
        text = f"MCP server {tool.server} is not configured for this tenant."
        return ToolRun({}, text, text)
    call = McpCall(tool.server, tool.name, arguments, tool.description, tool.schema or NO_ARGUMENTS, headers)
    try:
        return ToolRun({}, await servers.call(call))
    except NodeFailure as failure:
        return ToolRun({}, failure.message, failure.message, failure.code)


def _given(tool: Tool[Any], params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext) -> dict[str, Any]:
    """The arguments that the tool knows. Of those that need not be given, what the author has stored stands in.

    Raises UnresolvedReference where that is a reference to what the canvas does not have.
    """
    given = {name: arguments.get(name) for name in (*tool.arguments, *params.further_arguments)}
    for name, argument in tool.arguments.items():
        if not argument.required and argument.is_left_out(given[name]):
            given[name] = resolved(argument, tool.stored(params, name, argument), ctx)
    return {name: value for name, value in given.items() if value is not None}


def _reason(invalid: ValidationError) -> str:
    """The first thing that is wrong with params, without what they hold."""
    details = invalid.errors(include_url=False, include_input=False)[0]
    error = details.get("ctx", {}).get("error")
    if error is not None:
        return str(error)
    field_name = ".".join(str(step) for step in details["loc"])
    return f"{field_name}: {details['msg']}" if field_name else details["msg"]
