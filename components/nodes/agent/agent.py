"""Agent: an LLM that may call tools, sub-agents and MCP servers before it answers.

DSL: the fields of LLM, and `tools` (`{component_name, name, id, params}`; an Agent among them is a sub-agent), `mcp`
(`{mcp_id, tools: {name: {description, inputSchema}}}`), `max_rounds`, `user_prompt` and `description` (as a sub-agent),
`custom_header`. Additions to upstream: `tool_mode` (`prompt` for models without native function calling) and
`deep_research` (`true`, or the depth: research the question before answering it).

Without any tool an Agent is an LLM. Answers with tools are in `components/nodes/agent/answering.py`. A sub-agent is the
same, but answers the question of the Agent above instead of its own prompts, and its answer is not streamed.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from canvas.document import references
from canvas.document.drawing import MAX_AGENT_DEPTH
from canvas.outcome import Failed, Finished, Outcome
from components.base import Effect, component
from components.context import NodeContext
from components.nodes.agent.answering import AgentAnswer, AnswerSettings
from components.nodes.agent.deep_research import DEFAULT_DEPTH, parse_depth
from components.nodes.agent.tool_set import (
    AGENT,
    Function,
    ToolEntry,
    build_schema,
    index_by_name,
    mcp_function,
    numbered_name,
    parse_entry,
    parse_mcp_tools,
    tool_function,
    with_pinned_schema,
)
from components.nodes.llm.llm import answer_schema, ask_model
from components.nodes.llm.model_call import PromptParams, assemble_prompt
from components.text.templates import templates
from components.text.templates.templates import value_text
from components.tools.framework.base import ToolRun

_DESCRIPTION = (
    "Another agent that works on a task of its own and answers with what it found. Give it the task in full: it sees "
    "nothing of what you have done."
)
_ARGUMENTS: Mapping[str, str] = {
    "user_prompt": "The task: what to do, and what the answer should look like.",
    "reasoning": "Why this task is given to the agent, and what its answer is needed for.",
    "context": "What the agent has to know: facts, results so far, limits.",
}


class AgentParams(PromptParams):
    """Validated when the canvas is loaded, with tools and sub-agents.

    Afterwards `tools` is a list of `ToolEntry`, and `mcp` a list of `McpTool`.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # tools hold keys
    default_outputs: ClassVar[tuple[str, ...]] = ("content",)
    later_outputs = ("thinking", "use_tools")
    secret_headers = ("custom_header",)

    tools: list[Any] = Field(default=[], repr=False)
    mcp: list[Any] = Field(default=[])
    max_rounds: Any = 5
    user_prompt: Any = ""
    custom_header: Any = Field(default_factory=dict[str, str], repr=False)
    tool_mode: Any = "native"
    deep_research: Any = False

    @field_validator("tools", mode="before")
    @classmethod
    def _known_tools(cls, stored: Any) -> list[Any]:
        if stored is not None and not isinstance(stored, list):
            raise ValueError("[Agent] Tools must be a list")
        if _levels(stored) > MAX_AGENT_DEPTH:
            raise ValueError(f"[Agent] Tools: sub-agents are nested deeper than {MAX_AGENT_DEPTH} levels")
        return [parse_entry(tool, AgentParams.model_validate) for tool in stored or ()]

    @field_validator("mcp", mode="before")
    @classmethod
    def _known_servers(cls, stored: Any) -> list[Any]:
        if stored is not None and not isinstance(stored, list):
            raise ValueError("[Agent] MCP must be a list")
        return list(parse_mcp_tools(stored or ()))

    @field_validator("deep_research")
    @classmethod
    def _parse_research_depth(cls, value: Any, info: ValidationInfo) -> int:
        """Return the depth: 0 for no research, the usual depth for `true`."""
        depth = value.get("depth", DEFAULT_DEPTH) if isinstance(value, Mapping) else value
        if depth in (None, "", False):
            return 0
        entries: list[ToolEntry] = info.data.get("tools", [])
        if "tools" in info.data and not any(_brings_sources(entry) for entry in entries):
            raise ValueError(
                "[Agent] Deep research needs a tool that brings sources, such as Retrieval or TavilySearch"
            )
        return parse_depth(DEFAULT_DEPTH if depth is True else depth, "Agent")

    @field_validator("max_rounds")
    @classmethod
    def _is_a_count_of_rounds(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"[Agent] Max rounds {value} is not 0 or a positive integer")
        return value

    @field_validator("tool_mode")
    @classmethod
    def _is_a_mode(cls, value: Any) -> Any:
        if value not in (None, "", "native", "prompt"):
            raise ValueError(f"[Agent] Tool mode {value} is neither native nor prompt")
        return value


def effect_for(params: AgentParams) -> Effect:
    """Return `idempotent` without tools, when the node only asks a model; with tools its calls are in the journal."""
    return "keyed" if params.tools or params.mcp else "idempotent"


@component("Agent", AgentParams, effect="keyed", owns_errors=True, effect_for=effect_for)
async def agent(params: AgentParams, ctx: NodeContext) -> Outcome:
    if not ctx.has_reader:
        return Finished()
    try:
        return await _answer(params, ctx)
    finally:
        if ctx.services.mcp is not None:  # also closes the sessions of sub-agents
            await ctx.services.mcp.close()


def build_functions(params: AgentParams) -> dict[str, Function]:
    """Return the functions that the Agent offers to its model, by the name that the model sees."""
    entries: list[ToolEntry] = params.tools
    own = [tool_function(it, n) if it.tool is not None else _agent_function(it, n) for n, it in enumerate(entries)]
    headers = _headers(params.custom_header)
    return index_by_name(
        [*own, *(mcp_function(tool, number, headers) for number, tool in enumerate(params.mcp, len(own)))]
    )


async def _answer(params: AgentParams, ctx: NodeContext, question: str | None = None) -> Outcome:
    """Answer the node's own prompts, or the question of the Agent above."""
    if params.mcp:
        params = params.model_copy(update={"mcp": [await with_pinned_schema(tool, ctx) for tool in params.mcp]})
    functions = build_functions(params)
    if not functions:
        return await ask_model(params, ctx, await assemble_prompt(params, ctx, question=question))
    prompt = await assemble_prompt(params, ctx, question=question, cites=False)
    model = await ctx.model(params.llm_id)
    how = AnswerSettings(
        params,
        params.max_rounds,
        in_prompts=params.tool_mode == "prompt",
        research_depth=params.deep_research,
        schema=answer_schema(params.outputs),
    )
    answer = AgentAnswer(how, ctx, model, prompt, functions)
    if ctx.is_streaming and how.schema is None:
        return await answer.stream()
    return await answer.complete()


# -- as the tool of another Agent ------------------------------------------------------------------------------------


def _agent_function(entry: ToolEntry, number: int) -> Function:
    """Return the function that gives a task to a sub-agent."""
    params: AgentParams = entry.params
    name = numbered_name(entry.name, number)

    async def call(arguments: Mapping[str, Any], ctx: NodeContext) -> ToolRun:
        return _to_tool_run(await _answer(params, ctx, _question(params, arguments, ctx)))

    schema = build_schema(name, str(params.description or _DESCRIPTION), _parameters(params))
    return Function(name, entry.name, AGENT, schema, call, effect=effect_for(params))


def _parameters(params: AgentParams) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": text} for name, text in _ARGUMENTS.items()}
    usual = value_text(params.user_prompt)
    if usual and not references.find(usual):
        properties["user_prompt"]["default"] = usual
    return {"type": "object", "properties": properties, "required": list(_ARGUMENTS)}


def _question(params: AgentParams, arguments: Mapping[str, Any], ctx: NodeContext) -> str | None:
    """Return the question of a call, or None if the sub-agent's own prompts apply.

    References in a text that a model wrote are never filled in.
    """
    task, reasoning, context = (value_text(arguments.get(name)) for name in _ARGUMENTS)
    if not task:
        task = templates.format_text(value_text(params.user_prompt), ctx.lookup)
    if not task:
        return None
    blocks = [("REASONING", reasoning), ("CONTEXT", context), ("QUERY", task)]
    if not reasoning and not context:
        return task
    return "".join(f"\n{title}:\n{text}\n" for title, text in blocks if text)


def _to_tool_run(outcome: Outcome) -> ToolRun:
    """Return the result for the Agent above: the structured answer, the text, or the error."""
    match outcome:
        case Finished(outputs=outputs):
            answer = outputs["structured"] if "structured" in outputs else outputs.get("content")
            return ToolRun(outputs, "" if answer is None else answer)
        case Failed(error=error):
            return ToolRun({}, error, error)
        case _:
            raise AssertionError(f"an Agent does not report {type(outcome).__name__}")


def _headers(custom_header: Any) -> dict[str, str]:
    """Return the author's headers for MCP servers."""
    if not isinstance(custom_header, Mapping):
        return {}
    return {str(name): value_text(value) for name, value in custom_header.items() if value is not None}


def _brings_sources(entry: ToolEntry) -> bool:
    return entry.tool is not None and tool_function(entry, 0).brings_sources


def _levels(tools: Any) -> int:
    """Return how many levels of Agents there are, including the one with these tools."""
    nested = [tool.get("params") for tool in tools or () if isinstance(tool, Mapping) and _is_agent(tool)]
    return 1 + max((_levels(params.get("tools")) for params in nested if isinstance(params, Mapping)), default=0)


def _is_agent(tool: Mapping[str, Any]) -> bool:
    return str(tool.get("component_name")).lower() == AGENT.lower()
