"""Model calls, tool calls and attempts of a run as JSON, for the API and the command line."""

from collections.abc import Mapping
from typing import Any

from canvas.budget import usage_json
from scheduler.views.json_values import elapsed_ms, hex_of, iso
from store.runs.attempt_records import ToolCallRow
from store.runs.attempts import StoredAttempt
from store.runs.model_calls import CallBodies, StoredCall


def call_json(call: StoredCall) -> dict[str, Any]:
    """Return a model call without its bodies; `bodies` says whether they are `stored`, `hidden` or `none`."""
    return {
        "id": call.id.hex,
        "activation_id": call.activation_id.hex,
        "attempt": call.attempt,
        "round": call.round,
        "kind": call.kind,
        "model": call.model,
        "account": call.account,
        "status": call.status,
        "error": call.error,
        "tries": call.tries,
        "waited_ms": call.waited_ms,
        "usage": _usage(call.usage),
        "bodies": _state_of_bodies(call.request),
        "started_at": iso(call.started_at),
        "first_token_at": iso(call.first_token_at),
        "ended_at": iso(call.ended_at),
        "elapsed_ms": elapsed_ms(call.started_at, call.ended_at),
    }


def call_with_bodies_json(call: StoredCall, bodies: CallBodies) -> dict[str, Any]:
    """Return a model call with its bodies; they are null where they are not stored."""
    is_stored = _state_of_bodies(call.request) == "stored"
    return {
        **call_json(call),
        "request": bodies.request if is_stored else None,
        "response": bodies.response if is_stored else None,
    }


def attempt_json(attempt: StoredAttempt) -> dict[str, Any]:
    """Return an attempt after which its activation became ready again."""
    return {
        "activation_id": attempt.activation_id.hex,
        "attempt": attempt.attempt,
        "ready_at": iso(attempt.ready_at),
        "started_at": iso(attempt.started_at),
        "ended_at": iso(attempt.ended_at),
        "elapsed_ms": elapsed_ms(attempt.started_at, attempt.ended_at),
        "worker": attempt.worker,
        "end_reason": attempt.end_reason,
        "code": attempt.code,
        "error": attempt.error,
        "next_attempt_at": iso(attempt.next_attempt_at),
        "usage": _usage(attempt.usage),
        "crash_count": attempt.crash_count,
    }


def tool_call_json(call: ToolCallRow) -> dict[str, Any]:
    """Return a tool call. What a row of an earlier release lacks is null."""
    body = call.body
    return {
        "id": call.id.hex,
        "activation_id": hex_of(call.activation_id),
        "node_id": call.node_id,
        "attempt": call.attempt,
        "round": call.round,
        "ordinal": call.ordinal,
        "path": body.get("path"),
        "tool_name": body.get("tool_name"),
        "arguments": body.get("arguments"),
        "result": body.get("result"),
        "failed": call.failed,
        "replayed": call.replayed,
        "started_at": iso(call.started_at),
        "elapsed_ms": round(1000 * body["elapsed_time"]) if isinstance(body.get("elapsed_time"), int | float) else None,
    }


def _state_of_bodies(request: Mapping[str, Any] | None) -> str:
    if request is None:
        return "none"
    return "hidden" if request == {"hidden": True} else "stored"


def _usage(usage: Mapping[str, int] | None) -> Mapping[str, Any] | None:
    return usage_json(usage) if usage else None
