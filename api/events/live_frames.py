"""The frames of a live stream as bytes: server-sent events with a name, and the position of the reader where it moved.

No frame has values of nodes: of an event its inputs, outputs and citations are left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from canvas.events.run_events import MESSAGE_RESET
from canvas.events.stream_sequencer import THINK_END, THINK_START, Position, SequencedEvent, TextDelta
from scheduler.views.activation_columns import COLUMNS, StringTable, to_columns
from scheduler.views.call_views import call_json
from scheduler.views.event_frames import EventSerializer
from scheduler.views.json_values import hex_of, milliseconds
from store.primitives.json_codec import encode
from store.runs.activation_list import ActivationListRow
from store.runs.event_log import EventDetails
from store.runs.events import EventRow
from store.runs.model_calls import StoredCall

MAX_CALLS = 500  # of a frame
VALUE_FIELDS = ("inputs", "outputs", "reference", "attachment", "downloads")
"""Members of `data` of events that have values of nodes."""

_THINK_MARKERS = re.compile(f"([{THINK_START}{THINK_END}])")


class ByeReason(StrEnum):
    """Why a live stream ends. After OVER a client does not connect again."""

    OVER = "over"
    SHARE_REVOKED = "share_revoked"
    SIGNED_OUT = "signed_out"
    SHUTTING_DOWN = "shutting_down"


def encode_frame(name: str, data: Any, position: Position | None = None) -> bytes:
    """Return a frame. `position`: of the reader after it, if the frame moves it."""
    return frame_of(name, encode(data).encode(), position)


def frame_of(name: str, data: bytes, position: Position | None = None) -> bytes:
    """Return a frame whose data is encoded already."""
    id_line = f"id: {position}\n" if position is not None else ""
    return f"event: {name}\n{id_line}data: ".encode() + data + b"\n\n"


def steps_frame(revision: int, rows: Sequence[ActivationListRow], last_finished: Mapping[str, int]) -> bytes:
    """Return a frame with activations in columns; no bytes if there are none."""
    if not rows:
        return b""
    strings = StringTable()
    listed = to_columns(rows, last_finished, strings)
    return encode_frame("steps", {"revision": revision, "columns": COLUMNS, "strings": strings.texts, "rows": listed})


def call_frames(calls: Sequence[StoredCall]) -> bytes:
    """Return frames with model calls without their bodies; no bytes if there are none."""
    pages = (calls[at : at + MAX_CALLS] for at in range(0, len(calls), MAX_CALLS))
    return b"".join(encode_frame("call", {"calls": [call_json(call) for call in page]}) for page in pages)


def event_frame(wire: EventSerializer, frame: SequencedEvent[EventRow], details: EventDetails | None) -> bytes:
    """Return the frame of a stored event: `reset` if it withdraws text, else `event`."""
    if frame.stored.name == MESSAGE_RESET:
        reset = {
            "stream": hex_of(frame.stored.activation),
            "epoch": frame.epoch,
            "retained_length": frame.retained_length,
            "seq": frame.number,
        }
        return encode_frame("reset", reset, frame.position)
    ((position, body),) = wire.frames(frame)
    data = body["data"]
    if isinstance(data, Mapping):
        body["data"] = {name: value for name, value in data.items() if name not in VALUE_FIELDS}
    return encode_frame("event", {**body, **details_json(details)}, position)


def details_json(details: EventDetails | None) -> dict[str, Any]:
    """Return the activation of an event, its item and its attempt, and the time of the event."""
    if details is None:
        return {"activation": None, "item": None, "attempt": None, "at": None}
    return {
        "activation": hex_of(details.activation),
        "item": details.item,
        "attempt": details.attempt,
        "at": milliseconds(details.at),
    }


def delta_frames(delta: TextDelta, node_id: str, *, is_thinking: bool) -> Iterator[tuple[bytes, bool]]:
    """Yield frames of a text delta, each with whether the text after it is of thinking.

    A frame has text of thinking or other text. The markers that begin and end thinking belong to it, so the texts
    together are that of the stream's row.
    """
    at = (delta.position.offset or 0) - len(delta.text)
    for text, is_thought, continues in _split_thinking(delta.text, is_thinking=is_thinking):
        data = {"stream": delta.stream_id.hex, "node_id": node_id, "offset": at, "text": text, "thinking": is_thought}
        at += len(text)
        yield encode_frame("delta", data, Position(delta.position.event, at)), continues


def ends_in_thinking(text: str, *, is_thinking: bool = False) -> bool:
    """Return whether text that follows this one is of thinking. `is_thinking`: whether this text begins in it."""
    begun, ended = text.rfind(THINK_START), text.rfind(THINK_END)
    return is_thinking if begun == ended == -1 else begun > ended


def _split_thinking(text: str, *, is_thinking: bool) -> Iterator[tuple[str, bool, bool]]:
    """Yield the parts of a text, whether each is of thinking, and whether what follows it is."""
    part = ""
    for token in _THINK_MARKERS.split(text):
        if token == THINK_START and not is_thinking:
            if part:
                yield part, False, False
            part, is_thinking = token, True
        elif token == THINK_END and is_thinking:
            yield part + token, True, False
            part, is_thinking = "", False
        else:
            part += token
    if part:
        yield part, is_thinking, is_thinking
