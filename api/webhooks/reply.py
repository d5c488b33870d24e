"""Replies to webhook callers: the author's text at once, or the answer of the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.responses import Response

from api.requests.request_bodies import parse_json
from api.runs.turn import TurnResult
from canvas.errors import InvalidRequest
from canvas.events.run_events import CANCELLED_TEXT, RUN_FAILED
from scheduler.lifecycle.accept import Started
from store.primitives.json_codec import encode

IMMEDIATELY = "Immediately"

_BODILESS = (204, 205, 304)
_JSON, _TEXT = "application/json", "text/plain"


@dataclass(frozen=True, slots=True)
class Template:
    """The reply of a webhook that does not wait for its run. `value` is JSON unless `is_text`."""

    status: int
    value: Any
    is_text: bool = False

    def reply(self, started: Started) -> Response:
        """Return the reply; a JSON object also gets the id of the run."""
        if self.is_text:
            return _reply(self.status, self.value, _TEXT, started)
        named = {**_ids(started), **self.value} if isinstance(self.value, Mapping) else self.value
        return _reply(self.status, encode(named), _JSON, started)


def parse_template(params: Mapping[str, Any]) -> Template | None:
    """Return the reply that the author wrote; None if the caller waits for the run.

    Raises InvalidRequest for a status outside of 200 to 399.
    """
    if (params.get("execution_mode") or IMMEDIATELY) != IMMEDIATELY:
        return None
    settings = params.get("response")
    written: Mapping[str, Any] = settings if isinstance(settings, Mapping) else {}
    setting = written.get("status")
    status = 200 if setting is None or setting == "" else parse_status(setting)
    if status is None or not 200 <= status <= 399:
        raise InvalidRequest(f"Invalid response status code: {str(setting)[:100]}")
    body = written.get("body_template")
    if not isinstance(body, str):
        return Template(status, body)
    if not body.strip():
        return Template(status, None)
    try:
        return Template(status, parse_json(body))
    except (ValueError, RecursionError):
        return Template(status, body, is_text=True)


def turn_reply(turn_result: TurnResult, started: Started, statuses: Sequence[Any]) -> Response:
    """Return the reply after the turn has ended. `statuses` are those of its Messages; the last one counts."""
    if turn_result.name == RUN_FAILED or turn_result.was_cancelled:
        message = turn_result.last.get("message", CANCELLED_TEXT)
        status, body = 400, {"code": 400, "message": message, "success": False}
    else:
        named = [code for code in map(parse_status, statuses) if code is not None and 200 <= code <= 599]
        status = named[-1] if named else 200
        body = {"message": turn_result.content, "success": True, "code": status}
    return _reply(status, encode({**body, **_ids(started)}), _JSON, started)


def parse_status(value: Any) -> int | None:
    """Return a status code, which may be a text; None if it is not a number."""
    if isinstance(value, bool):
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _ids(started: Started) -> dict[str, str]:
    return {"run_id": started.run_id.hex, "session_id": started.conversation_id.hex}


def _reply(status: int, body: str, media_type: str, started: Started) -> Response:
    headers = {"X-Run-Id": started.run_id.hex}
    if status in _BODILESS:
        return Response(status_code=status, headers=headers)
    return Response(body, status, headers, media_type)
