"""An agent as a tool of an MCP server: its form becomes a schema, a call a turn, and the answer the result.

The arguments are the fields of the agent's Begin, a `query`, and the `session_id` of an earlier result to continue. If
the agent waits for input, the result is its question. A call with the session and the requested fields continues it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.runs.turn import TurnResult
from canvas.document import parsing
from canvas.errors import InvalidCanvas
from canvas.events import run_events
from components.nodes.flow import form_fields
from store.mcp.agents import ExposedAgent

QUERY, SESSION = "query", "session_id"

_TYPES: Mapping[str, Mapping[str, Any]] = {
    "number": {"type": "number"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "object": {"type": "object"},
}
_FILE = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("id", "name", "mime_type", "created_by")},
    "required": ["id"],
}
_QUERY: Mapping[str, Any] = {"type": "string", "description": "The message to the agent."}
_SESSION_ID: Mapping[str, Any] = {
    "type": "string",
    "description": "Continues an earlier conversation: the session_id of its last result.",
}


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a call. `structured`: the same for machines."""

    text: str
    structured: Mapping[str, Any] | None = field(default=None, repr=False)
    is_error: bool = False


def build_schema(agent: ExposedAgent) -> dict[str, Any]:
    """Return the schema of the arguments of an agent's tool."""
    form = _form(agent.dsl)
    properties = {QUERY: dict(_QUERY), SESSION: dict(_SESSION_ID)}
    properties |= {name: _property(name, described) for name, described in form.items()}
    required = [name for name, described in form.items() if not _is_optional(described)]
    return {"type": "object", "properties": properties, "required": required if form else [QUERY]}


def describe_agent(agent: ExposedAgent) -> str:
    """Return the description of the tool for models."""
    return agent.description or f"Runs the agent {agent.title}."


def build_options(agent: ExposedAgent, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the start of a call (scheduler/lifecycle/start_options.py)."""
    form = _form(agent.dsl)
    session = arguments.get(SESSION) if SESSION not in form else None
    own = {name for name in (QUERY, SESSION) if name not in form}
    inputs = {name: _input(form.get(name), value) for name, value in arguments.items() if name not in own}
    options = {"query": arguments.get(QUERY), "inputs": inputs or None, "session_id": session or None, "release": True}
    return {name: value for name, value in options.items() if value is not None}


def make_answer(turn_result: TurnResult, session_id: str, run_id: str) -> ToolAnswer:
    """Return the result of a turn."""
    ids = {"session_id": session_id, "run_id": run_id}
    if not turn_result.last or turn_result.name == run_events.RUN_FAILED:
        return ToolAnswer(str(turn_result.last.get("message") or "The run has failed."), is_error=True)
    data: Mapping[str, Any] = turn_result.last["data"]
    if turn_result.name == run_events.USER_INPUTS:
        fields = ", ".join(data.get("inputs") or {}) or "an answer"
        text = "\n".join(part for part in (turn_result.content, str(data.get("tips") or "")) if part)
        advice = f"The agent waits for: {fields}. Call again with these and session_id {session_id}."
        return ToolAnswer(f"{text}\n{advice}".strip(), {**ids, "waits_for": data.get("inputs") or {}})
    outputs = data.get("outputs")
    content = outputs.get("content") if isinstance(outputs, Mapping) else None
    text = turn_result.content or (content if isinstance(content, str) else "")
    structured: dict[str, Any] = {**ids, "answer": text}
    if turn_result.structured:
        structured["structured"] = turn_result.structured
    return ToolAnswer(text, structured)


def _form(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a document's Begin by name; {} for a document that can no longer be parsed."""
    try:
        return form_fields.fields_of(parsing.parse(document).begin_params.get("inputs"))
    except InvalidCanvas:
        return {}


def _property(name: str, described: Any) -> dict[str, Any]:
    described = described if isinstance(described, Mapping) else {}
    if form_fields.is_file(described):
        found: dict[str, Any] = dict(_FILE)
    else:
        found = dict(_TYPES.get(str(described.get("type") or "").lower(), {"type": "string"}))
    options = described.get("options")
    if isinstance(options, list) and options and found == {"type": "string"}:
        found["enum"] = [option.get("value") if isinstance(option, Mapping) else str(option) for option in options]
    found["description"] = str(described.get("name") or name)
    return found


def _input(described: Any, value: Any) -> Any:
    """Return a field's value in the format of requests, with its type, which tells files apart."""
    if not isinstance(described, Mapping):
        return {"value": value}
    return {"value": value, "type": described.get("type"), "optional": _is_optional(described)}


def _is_optional(described: Any) -> bool:
    return isinstance(described, Mapping) and described.get("optional") is True
