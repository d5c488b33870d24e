"""The frames of a live stream as visitors of a share see them.

Frames are made once for all clients of a run. For visitors each is read again, redacted by the rules of the other
replies (api/visitors/redaction.py), and written anew: once for all visitors of the run from whom the same is hidden. A
frame without a rule is left out.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from api.events.shared_frames import SharedFrames
from api.visitors.redaction import ANSWER, COST, ERROR_TEXTS, Redaction
from canvas.ids import RunId
from scheduler.views.activation_columns import STRING_COLUMNS
from store.primitives.json_codec import encode

END_OF_FRAME = b"\n\n"
_EVENT, _DATA = b"event: ", b"data: "
_COSTS = ("calls", "tokens_in", "tokens_out", "cost")
_WORKER, _ERROR = "worker", "error"


async def redact_frames(
    frames: AsyncGenerator[bytes], redaction: Redaction, run_id: RunId, shared: SharedFrames
) -> AsyncGenerator[bytes]:
    """Yield the frames of a run's stream without what a share hides. Comments stay."""
    with shared.share((run_id, redaction), lambda frame: redact_frame(frame, redaction)) as redact:
        async with aclosing(frames):
            async for chunk in frames:
                shown = b"".join(redact(part) for part in chunk.split(END_OF_FRAME) if part)
                if shown:
                    yield shown


def redact_frame(frame: bytes, redaction: Redaction) -> bytes:
    """Return one frame, without its end, as it is sent; no bytes for one that has no rule."""
    lines = frame.split(b"\n")
    name = next((line.removeprefix(_EVENT).decode() for line in lines if line.startswith(_EVENT)), "")
    if not name:
        return frame + END_OF_FRAME
    rule = _RULES.get(name)
    if rule is None:
        return b""
    made = [
        _DATA + encode(rule(json.loads(line.removeprefix(_DATA)), redaction)).encode()
        if line.startswith(_DATA)
        else line
        for line in lines
    ]
    return b"\n".join(made) + END_OF_FRAME


def _hello(data: Mapping[str, Any], _: Redaction) -> Mapping[str, Any]:
    return data  # its run is redacted already


def _state(data: Mapping[str, Any], redaction: Redaction) -> Mapping[str, Any]:
    run = {name: value for name, value in data.items() if name not in ("edges", "progress", "revision")}
    plain = {name: data[name] for name in ("now", "revision", "edges", "progress") if name in data}
    shown = redaction.run(run)
    return {**{name: value for name, value in shown.items() if name in data}, **plain}


def _steps(data: Mapping[str, Any], redaction: Redaction) -> Mapping[str, Any]:
    columns: Sequence[str] = data["columns"]
    hidden = {_WORKER}
    hidden |= set(_COSTS) if redaction.hides(COST) else set()
    error = columns.index(_ERROR)
    rows = [
        [None if name in hidden else value for name, value in zip(columns, row, strict=True)] for row in data["rows"]
    ]
    for row in rows:
        row[error] = redaction.error(row[error])
    texts = [number for number, name in enumerate(columns) if name in STRING_COLUMNS]
    used = {row[number] for row in rows for number in texts}
    strings = [text if number in used else "" for number, text in enumerate(data["strings"])]
    return {**data, "strings": strings, "rows": rows}


def _event(data: Mapping[str, Any], redaction: Redaction) -> Mapping[str, Any]:
    return redaction.event(data)


def _delta(data: Mapping[str, Any], redaction: Redaction) -> Mapping[str, Any]:
    """Return a part of the answer. It may be the error of a model, which nothing tells before the step has ended."""
    is_hidden = redaction.hides(ANSWER) or redaction.hides(ERROR_TEXTS)
    return {**data, "text": ""} if is_hidden else data


def _call(data: Mapping[str, Any], redaction: Redaction) -> Mapping[str, Any]:
    return {"calls": [redaction.model_call(call) for call in data["calls"]]}


def _plain(data: Mapping[str, Any], _: Redaction) -> Mapping[str, Any]:
    return data


_RULES: Mapping[str, Callable[[Mapping[str, Any], Redaction], Mapping[str, Any]]] = {
    "hello": _hello,
    "state": _state,
    "steps": _steps,
    "event": _event,
    "delta": _delta,
    "reset": _plain,
    "call": _call,
    "bye": _plain,
}
