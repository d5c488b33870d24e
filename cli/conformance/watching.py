"""The events of a turn as a client would have received them, read from the rows."""

from collections.abc import Iterator, Mapping
from typing import Any

from canvas import events as names
from canvas.graph import Canvas
from components.context import THINK_END, THINK_START
from scheduler.versions import Versions
from store import events, turns
from store.database import Transaction
from store.events import Stored


def events_of(tx: Transaction, versions: Versions, row: Mapping[str, Any], after: int) -> list[dict[str, Any]]:
    """{event, data} of a run's events after a number, with the spoken text of each turn where it was said."""
    canvas = versions.canvas(tx, row["version_id"])
    spoken = {turn.opened_at: turn for turn in turns.opened(tx, row["id"])}
    shown: list[dict[str, Any]] = []
    for stored in events.after(tx, row["id"], after, most=100_000):
        if stored.name != names.RUN_FAILED:
            shown.append({"event": stored.name, "data": _data(canvas, row, stored)})
        turn = spoken.get(stored.number)
        if turn is not None:
            shown += [{"event": names.MESSAGE, "data": piece} for piece in _pieces(turn.text)]
    return shown


def _data(canvas: Canvas, row: Mapping[str, Any], stored: Stored) -> dict[str, Any]:
    node = canvas.node(stored.node_id) if stored.node_id else None
    at = stored.created_at.timestamp()
    match stored.name:
        case names.NODE_STARTED if node is not None:
            return names.node_started_data(node.id, node.name, node.component, at)
        case names.NODE_FINISHED if node is not None:
            return names.node_finished_data(
                node.id,
                node.name,
                node.component,
                at,
                inputs=stored.inputs,
                outputs=stored.outputs,
                error=stored.body.get("error"),
            )
        case names.MESSAGE_END:
            return names.message_end_data(stored.body)
        case names.WORKFLOW_FINISHED:
            outputs = stored.body.get("outputs", stored.outputs)
            return {"inputs": row["request"]["inputs"], "outputs": outputs}
        case _:
            return dict(stored.body)


def _pieces(text: str) -> Iterator[dict[str, Any]]:
    """The parts of a spoken text between think markers, and the markers themselves."""
    said = ""
    for letter in text:
        if letter not in (THINK_START, THINK_END):
            said += letter
            continue
        if said:
            yield {"content": said}
        said = ""
        yield {"content": "", "start_to_think" if letter == THINK_START else "end_to_think": True}
    if said:
        yield {"content": said}
