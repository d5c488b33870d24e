"""The events of a run: what a decision appends, and their `data` in the API.

A stored body is small: `node_finished` names the activation whose values it shows, and a reader adds inputs and
outputs, so no output passes through the coordinator. Streamed text is not stored in events but in its message stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from canvas.ids import ActivationId

WORKFLOW_STARTED = "workflow_started"
NODE_STARTED = "node_started"
NODE_FINISHED = "node_finished"
MESSAGE = "message"
MESSAGE_END = "message_end"
MESSAGE_RESET = "message_reset"
USER_INPUTS = "user_inputs"
WORKFLOW_FINISHED = "workflow_finished"
RUN_FAILED = "run_failed"

CLOSING_EVENTS = frozenset({USER_INPUTS, WORKFLOW_FINISHED, RUN_FAILED})
"""Events that end the answer to a user's message: nothing follows until the user sends another."""

CANCELLED_TEXT = "Task has been canceled"


@dataclass(frozen=True, slots=True)
class Event:
    """A fact of a run, numbered when it is stored."""

    name: str
    body: Mapping[str, Any] = field(default_factory=dict)
    activation: ActivationId | None = None
    node_id: str | None = None


THOUGHTS: Mapping[str, str] = MappingProxyType(
    {
        "Begin": "",
        "Message": "Writing the answer.",
        "Categorize": "Choosing a category for the question.",
        "Switch": "Choosing the way on.",
        "UserFillUp": "Waiting for your input.",
        "Answer": "Waiting for your input.",
        "Iteration": "Going through the items of a list.",
        "IterationItem": "",
        "Loop": "Repeating until a condition holds.",
        "LoopItem": "",
        "ExitLoop": "",
        "Invoke": "Sending a request.",
        "Retrieval": "Looking for the passages that fit best.",
        "Browser": "Working in a browser.",
    }
)
"""What a node is doing, as shown to users, by component."""
QUOTED = frozenset({"LLM", "Agent", "DeepResearch"})
LONGEST_QUOTE = 200  # characters


def thoughts_of(component: str, query: str) -> str:
    """Return what a starting node is doing, for users; for model nodes it quotes the user's query."""
    if component in QUOTED:
        quote = query if len(query) <= LONGEST_QUOTE else query[: LONGEST_QUOTE - 1] + "…"
        return f"Working on an answer to: {quote}" if quote.strip() else "Working on an answer."
    return THOUGHTS.get(component, f"Running {component}.")


def node_started_data(node_id: str, name: str, component: str, created_at: float, thoughts: str = "") -> dict[str, Any]:
    """Return the `data` of `node_started`."""
    return {
        "inputs": None,
        "created_at": int(created_at),
        "component_id": node_id,
        "component_name": name,
        "component_type": component,
        "thoughts": thoughts,
    }


def node_finished_data(
    node_id: str,
    name: str,
    component: str,
    created_at: float,
    *,
    inputs: Mapping[str, Any] | None,
    outputs: Mapping[str, Any] | None,
    error: str | None,
) -> dict[str, Any]:
    """Return the `data` of `node_finished`; `elapsed_time` in seconds comes from the outputs."""
    shown = dict(outputs or {})
    return {
        "inputs": inputs or {},
        "outputs": shown,
        "component_id": node_id,
        "component_name": name,
        "component_type": component,
        "error": error,
        "elapsed_time": shown.get("_elapsed_time", 0.0),
        "created_at": created_at,
    }


def message_end_data(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `data` of `message_end`: only fields that are not empty."""
    return {name: body[name] for name in ("status", "attachment", "downloads", "reference") if body.get(name)}


def envelope(
    name: str, data: Mapping[str, Any], *, message_id: str, created_at: int, session_id: str, run_id: str
) -> dict[str, Any]:
    """Return an event as clients receive it. `task_id` is the id that a client cancels."""
    return {
        "event": name,
        "message_id": message_id,
        "created_at": created_at,
        "task_id": session_id,
        "session_id": session_id,
        "run_id": run_id,
        "data": data,
    }
