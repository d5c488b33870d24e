"""Frames of a run as the HTTP API sends them (engine 5), for `--json`."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from canvas import events
from canvas.graph import Canvas
from canvas.transcript import Event, Frame, Said, message_data
from store.events import Stored


def wire_events(frame: Frame[Stored], canvas: Canvas, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The wire events of one frame; `id` is the position to go on from after each."""
    if isinstance(frame, Said):
        for position, data in message_data(frame):
            yield {"id": str(position), **_enveloped(events.MESSAGE, data, row, int(time.time()))}
    elif frame.stored.name == events.RUN_FAILED:
        failure = {"code": 500, "message": frame.stored.body.get("error", ""), "data": False}
        yield {"id": str(frame.position), **failure, **_ids(row)}
    else:
        data = _data(frame, canvas, row)
        yield {
            "id": str(frame.position),
            **_enveloped(frame.stored.name, data, row, int(frame.stored.created_at.timestamp())),
        }


def _enveloped(name: str, data: Mapping[str, Any], row: Mapping[str, Any], created_at: int) -> dict[str, Any]:
    return events.envelope(
        name,
        data,
        message_id=str(row["message_id"]),
        created_at=created_at,
        session_id=str(row["conversation_id"]),
        run_id=str(row["id"]),
    )


def _ids(row: Mapping[str, Any]) -> dict[str, str]:
    session = str(row["conversation_id"])
    return {"task_id": session, "session_id": session, "run_id": str(row["id"])}


def _data(frame: Event[Stored], canvas: Canvas, row: Mapping[str, Any]) -> dict[str, Any]:
    stored = frame.stored
    node = canvas.node(stored.node_id) if stored.node_id in canvas.numbers else None
    at = stored.created_at.timestamp()
    match stored.name:
        case events.NODE_STARTED if node is not None:
            return events.node_started_data(node.id, node.name, node.component, at)
        case events.NODE_FINISHED if node is not None:
            error = stored.body.get("error")
            return events.node_finished_data(
                node.id, node.name, node.component, at, inputs=stored.inputs, outputs=stored.outputs, error=error
            )
        case events.MESSAGE_END:
            return events.message_end_data(stored.body)
        case events.MESSAGE_RESET:
            return {"turn": str(stored.activation), "epoch": frame.epoch, "keep": frame.keep}
        case events.WORKFLOW_FINISHED:
            begun = row["started_at"] or row["created_at"]
            return {
                "inputs": row["request"].get("inputs"),
                "outputs": stored.body.get("outputs", stored.outputs),
                "elapsed_time": (stored.created_at - begun).total_seconds(),
                "created_at": at,
                "usage": row["usage"],
            }
        case _:
            return dict(stored.body)
