"""The events of a run: what a decision appends, and how they look on the wire.

A stored body is small: `node_finished` names the activation whose values it shows, and the reader puts inputs and
outputs in, so that no output passes through the coordinator. Spoken text is no event; it lives in its turn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

WORKFLOW_STARTED = "workflow_started"
NODE_STARTED = "node_started"
NODE_FINISHED = "node_finished"
MESSAGE = "message"
MESSAGE_END = "message_end"
MESSAGE_RESET = "message_reset"
USER_INPUTS = "user_inputs"
WORKFLOW_FINISHED = "workflow_finished"
RUN_FAILED = "run_failed"

LAST_OF_A_TURN = frozenset({USER_INPUTS, WORKFLOW_FINISHED, RUN_FAILED})
"""After one of these a client has nothing more to wait for until somebody speaks again."""

CANCELLED_TEXT = "Task has been canceled"


@dataclass(frozen=True, slots=True)
class Event:
    """A fact of a run, numbered when it is stored."""

    name: str
    body: Mapping[str, Any] = field(default_factory=dict)
    activation: UUID | None = None
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
"""What a node does, for whoever watches a run, by component."""
QUOTED = frozenset({"LLM", "Agent", "DeepResearch"})
LONGEST_QUOTE = 200  # characters


def thoughts_of(component: str, query: str) -> str:
    """Return what a node that begins is said to do; of models with what the user has asked."""
    if component in QUOTED:
        asked = query if len(query) <= LONGEST_QUOTE else query[: LONGEST_QUOTE - 1] + "…"
        return f"Working on an answer to: {asked}" if asked.strip() else "Working on an answer."
    return THOUGHTS.get(component, f"Running {component}.")


def node_started_data(node_id: str, name: str, component: str, created_at: float, thoughts: str = "") -> dict[str, Any]:
    """`data` of `node_started`."""
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
    """`data` of `node_finished`; `elapsed_time` in seconds is taken from the outputs."""
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
    """`data` of `message_end`: only what is there."""
    return {name: body[name] for name in ("status", "attachment", "downloads", "reference") if body.get(name)}


def envelope(
    name: str, data: Mapping[str, Any], *, message_id: str, created_at: int, session_id: str, run_id: str
) -> dict[str, Any]:
    """The frame every event travels in. `task_id` is what a client cancels."""
    return {
        "event": name,
        "message_id": message_id,
        "created_at": created_at,
        "task_id": session_id,
        "session_id": session_id,
        "run_id": run_id,
        "data": data,
    }
