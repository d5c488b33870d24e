"""The forms in which a turn is streamed: RAGFlow's, with one for share links, and that of the design of RAGFlow's Go
port (`port`).

    ragflow   id:5\\ndata:{"event": "message", ...}
    port      id:5\\nevent:message\\ndata:{"event": "message", ..., "answer": "Hello"}

In `port` a frame has RAGFlow's envelope, with further keys beside it, and its name as an `event:` line: `message`
(`answer`, and `reference` with a `message_end`), `waiting_for_user` (`cpn_id`), `error` (`error`), and `done` at the
end. Other events have their own names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from api.events.event_stream import DONE, Envelope, ended_line, event_line
from api.http.errors import DATA, TokenEnded
from canvas.events import run_events
from canvas.ids import RunId
from store.primitives.json_codec import encode

_TAGS = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class StreamDialect:
    """How a turn is written: an envelope; the frame of a turn without events, with the session's id; the end of the
    stream; the end of a stream whose token has ended.
    """

    event: Callable[[Envelope], bytes]
    empty: Callable[[str], bytes]
    done: bytes
    ended: Callable[[TokenEnded, RunId], bytes]


def message_text(data: Mapping[str, Any]) -> str:
    """Return the text of a `message`, with think markers as tags."""
    if data.get("start_to_think"):
        return _TAGS[0]
    return _TAGS[1] if data.get("end_to_think") else str(data.get("content") or "")


def is_think_tag(text: str) -> bool:
    """Return whether a text of `message_text` is a marker and no text of the answer."""
    return text in _TAGS


def _ragflow_empty(session_id: str) -> bytes:
    return f"data:{encode({'session_id': session_id, 'data': {}})}\n\n".encode()


def _share_link_line(wired: Envelope) -> bytes:
    """Return a frame; that of a failed run is a message, which RAGFlow's page of share links shows and reports."""
    if wired.name == run_events.RUN_FAILED:
        message = f"Error {DATA}: {wired.body['message']}"
        wired = replace(wired, body={**wired.body, "event": "message", "data": {"content": message}, "code": DATA})
    return event_line(wired)


def _port_line(wired: Envelope) -> bytes:
    name, keys = _port_keys(wired)
    return f"id:{wired.position}\nevent:{name}\ndata:{encode({**wired.body, **keys})}\n\n".encode()


def _port_keys(wired: Envelope) -> tuple[str, dict[str, Any]]:
    """Return the name of an envelope's frame, and the keys that stand beside the envelope."""
    data = wired.body["data"]
    match wired.name:
        case run_events.MESSAGE:
            return "message", {"answer": message_text(data)}
        case run_events.MESSAGE_END:
            return "message", {"answer": "", "reference": data.get("reference") or {}}
        case run_events.USER_INPUTS:
            return "waiting_for_user", {"cpn_id": next(iter(data.get("forms") or {}), "")}
        case run_events.RUN_FAILED:
            return "error", {"error": wired.body["message"]}
        case other:
            return other, {}


def _port_empty(session_id: str) -> bytes:
    return f"event:message\ndata:{encode({'session_id': session_id, 'data': {}, 'answer': ''})}\n\n".encode()


def _port_ended(error: TokenEnded, run_id: RunId) -> bytes:
    body = {**error.body, "run_id": run_id.hex, "error": error.message}
    return f"event:error\ndata:{encode(body)}\n\n".encode()


RAGFLOW = StreamDialect(event_line, _ragflow_empty, DONE, ended_line)
SHARE_LINK = StreamDialect(_share_link_line, _ragflow_empty, DONE, ended_line)
PORT = StreamDialect(_port_line, _port_empty, b"event:done\ndata:[DONE]\n\n", _port_ended)
DIALECTS = {"ragflow": RAGFLOW, "port": PORT}
