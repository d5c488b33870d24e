"""From what a caller sends to a Start: which version runs, in which conversation, with which key."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from canvas import storable
from canvas.errors import InvalidCanvas, InvalidRequest
from scheduler.lifecycle import Start
from scheduler.turn_start import Request
from store import conversations, versions
from store.database import Transaction

ROUTE = "runs"


def start_of(
    tx: Transaction, tenant_id: UUID, run_id: UUID | None, canvas_id: UUID, options: Mapping[str, Any]
) -> Start:
    """A Start from the options of the trigger. Raises InvalidRequest, which names the option, or NotFound."""
    options = _storable(options)
    session = options.get("session_id")
    conversation_id = _id(session, "session_id") if session else None
    if conversation_id is not None:
        version_id = conversations.get(tx, tenant_id, conversation_id, canvas_id).version_id
    else:
        version_id = _version(tx, tenant_id, canvas_id, options)
    key = options.get("idempotency_key")
    return Start(
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        version_id=version_id,
        request=_request(options),
        run_id=run_id,
        conversation_id=conversation_id,
        conversation_name=str(options.get("name") or options.get("query") or "")[:250],
        on_busy=str(options.get("on_busy") or "refuse"),
        idempotency=(ROUTE, str(key), _digest(canvas_id, options)) if key else None,
    )


def _storable(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as JSON that every row takes: other services send them over Celery, past any edge."""
    try:
        return storable.copied(options)
    except InvalidCanvas as error:
        raise InvalidRequest(f'"{error.field}" cannot be stored: {error.message.rpartition(": ")[2]}') from None


def _digest(canvas_id: UUID, options: Mapping[str, Any]) -> bytes:
    """SHA-256 of a request; the order in which somebody wrote its members does not matter."""
    written = json.dumps({**options, "agent": str(canvas_id)}, sort_keys=True, default=str)
    return hashlib.sha256(written.encode()).digest()


def _version(tx: Transaction, tenant_id: UUID, canvas_id: UUID, options: Mapping[str, Any]) -> UUID:
    wanted = options.get("version")
    if wanted and wanted != "draft":
        return versions.version_by_id(tx, tenant_id, canvas_id, _id(wanted, "version")).id
    if options.get("release"):
        return versions.latest_released(tx, tenant_id, canvas_id).id
    return versions.snapshot(tx, tenant_id, canvas_id).id


def _request(options: Mapping[str, Any]) -> Request:
    inputs = options.get("inputs")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise InvalidRequest('"inputs" must be an object: field name -> value, or -> {"value": …, "type": …}.')
    query = options.get("query")
    if query is not None and not isinstance(query, str | dict):
        raise InvalidRequest('"query" must be a text or an object.')
    files = options.get("files") or ()
    if not isinstance(files, list | tuple) or not all(isinstance(file, Mapping) for file in files):
        raise InvalidRequest('"files" must be a list of descriptors {id, name, mime_type, created_by}.')
    return Request(
        query=query,
        inputs=inputs,
        files=tuple(files),
        user_id=str(options.get("user_id") or ""),
        chat_template_kwargs=options.get("chat_template_kwargs"),
    )


def _id(value: Any, name: str) -> UUID:
    try:
        return UUID(str(value))
    except ValueError:
        raise InvalidRequest(f'"{name}" is {value!r}, which is no id.') from None
