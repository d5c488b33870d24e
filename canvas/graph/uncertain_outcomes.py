"""Unknown outcomes: the worker of a node was lost, and repeating the node might act twice.

The author chooses with `on_unknown`, on the node or for the whole canvas: `fail` (the default) fails with an error that
says what to check, `retry` accepts the risk, and `ask` lets the run wait for a person, as it waits for a form. Such a
form belongs to a node that has no form of its own; that distinguishes it from other forms.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast, get_args

from canvas.state.run_state import ScopeKey

OnUnknown: TypeAlias = Literal["ask", "retry", "fail"]
POLICIES: tuple[str, ...] = get_args(OnUnknown)
FIELD = "on_unknown"

HAPPENED, AGAIN = "happened", "again"
"""Answers to the question: the node counts as finished, or gets another attempt."""

ALL_QUESTIONS = "*"
"""In an answer: every node with an unknown outcome."""

OUTCOME, OUTPUTS = ".outcome", ".outputs"
"""Suffixes of the names of the two fields of such a form."""


def policy(params: Mapping[str, Any], canvas: Mapping[str, Any]) -> OnUnknown:
    """Return the policy of a node, else of its canvas. An invalid value, in a canvas stored unchecked, is ignored."""
    for written in (params.get(FIELD), canvas.get(FIELD)):
        if is_policy(written):
            return cast(OnUnknown, written)
    return "fail"


def is_policy(written: Any) -> bool:
    """Whether a value is one of the policies."""
    return isinstance(written, str) and written in POLICIES


def is_unset(written: Any) -> bool:
    """Whether no policy was chosen."""
    return written is None or written == ""


def label(node_id: str, scope: ScopeKey) -> str:
    """Return the name of a node in a question. Several items may ask at once, so it has the item: `Browser:0[3]`."""
    items = ".".join(str(item) for _, _, item in scope)
    return f"{node_id}[{items}]" if items else node_id


def error_of(node_id: str, name: str) -> str:
    """Return the error of a node with an unknown outcome: what is not known, and what to do."""
    return f"{_unknown_outcome_text(node_id, name)} Check it, and start the run again if the action is needed."


def question(node_id: str, name: str, scope: ScopeKey) -> tuple[dict[str, Any], str]:
    """Return the form that asks a person about an unknown outcome: its fields, and the prompt above them."""
    called = label(node_id, scope)
    where = f" (item {scope[-1][2] + 1})" if scope else ""
    fields: dict[str, Any] = {
        called + OUTCOME: {
            "type": "options",
            "name": f"Has {name or node_id}{where} happened?",
            "options": [HAPPENED, AGAIN],
            "optional": False,
            "value": None,
        },
        called + OUTPUTS: {
            "type": "object",
            "name": "Its outputs, if it has happened",
            "optional": True,
            "value": None,
        },
    }
    help_text = f'Check it. Answer "{HAPPENED}" to continue after it, or "{AGAIN}" to repeat it.'
    return fields, f"{_unknown_outcome_text(node_id, name)} {help_text}"


def _unknown_outcome_text(node_id: str, name: str) -> str:
    node = f'"{name}" ({node_id})' if name and name != node_id else node_id
    return f"It is not known whether {node} has happened: its worker was lost while it ran."
