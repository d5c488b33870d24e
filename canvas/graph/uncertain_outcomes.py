"""What follows when nobody knows whether a node has acted: its worker was lost, and repeating it might act twice.

The author chooses with `on_unknown`, on the node or for the whole canvas: `fail` (the default) ends in a failure that
says what to check, `retry` takes the risk, and `ask` lets the run wait for a person, as it waits for a form. Such a
form belongs to a node that asks nothing by itself; that is how it is told from others.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast, get_args

from canvas.state.run_state import ScopeKey

OnUnknown: TypeAlias = Literal["ask", "retry", "fail"]
POLICIES: tuple[str, ...] = get_args(OnUnknown)
FIELD = "on_unknown"

HAPPENED, AGAIN = "happened", "again"
"""What a person may answer: the node goes on as finished, or gets another attempt."""

ALL_QUESTIONS = "*"
"""In an answer: every node that asks."""

OUTCOME, OUTPUTS = ".outcome", ".outputs"
"""Ends of the names of the two fields of such a form."""


def policy(params: Mapping[str, Any], canvas: Mapping[str, Any]) -> OnUnknown:
    """What the author of a node wants, else of its canvas. What is no choice came in unchecked, and counts as none."""
    for written in (params.get(FIELD), canvas.get(FIELD)):
        if is_policy(written):
            return cast(OnUnknown, written)
    return "fail"


def is_policy(written: Any) -> bool:
    """Whether this is one of the choices."""
    return isinstance(written, str) and written in POLICIES


def is_unset(written: Any) -> bool:
    """Whether nothing was chosen."""
    return written is None or written == ""


def label(node_id: str, scope: ScopeKey) -> str:
    """What a question calls its node. Several items may ask at once, so items are told apart: `Browser:0[3]`."""
    items = ".".join(str(item) for _, _, item in scope)
    return f"{node_id}[{items}]" if items else node_id


def error_of(node_id: str, name: str) -> str:
    """The failure, for people: what is not known, and what to do."""
    return f"{_doubt(node_id, name)} Check it, and start the run anew if it has to be done."


def question(node_id: str, name: str, scope: ScopeKey) -> tuple[dict[str, Any], str]:
    """The form that asks a person: its fields, and what is said above them."""
    called = label(node_id, scope)
    where = f" (item {scope[-1][2]})" if scope else ""
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
    told = f'Check it. Answer "{HAPPENED}" to go on after it, or "{AGAIN}" to have it done once more.'
    return fields, f"{_doubt(node_id, name)} {told}"


def _doubt(node_id: str, name: str) -> str:
    named = f'"{name}" ({node_id})' if name and name != node_id else node_id
    return f"Whether {named} has happened is not known: its worker was lost while it worked."
