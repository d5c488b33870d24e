"""From what a caller sends to a Start: which version runs, in which conversation, with which key."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from canvas import storable
from canvas.budget import limits_of
from canvas.errors import InvalidRequest, NotFound
from scheduler.accepting import Start, Started
from scheduler.lifecycle import Lifecycle
from scheduler.turn_start import Request
from store import conversations, idempotency, versions
from store.transaction import Transaction

ROUTE = "runs"  # idempotency keys of those who start runs without waiting, by HTTP or by the task

LATEST = "latest"  # a version: what was published last, the draft where nothing was


def start_of(
    tx: Transaction,
    tenant_id: UUID,
    run_id: UUID | None,
    canvas_id: UUID,
    options: Mapping[str, Any],
    route: str = ROUTE,
) -> Start:
    """A Start from the options of the trigger. Raises InvalidRequest, which names the option, or NotFound."""
    options = _storable(options)
    session = options.get("session_id")
    conversation_id = _id(session, "session_id") if session else None
    if conversation_id is not None:
        version_id = conversations.get(tx, tenant_id, conversation_id, canvas_id).version_id
    else:
        version_id = _version(tx, tenant_id, canvas_id, options)
    return Start(
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        version_id=version_id,
        request=_request(options),
        run_id=run_id,
        conversation_id=conversation_id,
        conversation_name=str(options.get("name") or options.get("query") or "")[:250],
        on_busy=str(options.get("on_busy") or "refuse"),
        idempotency=_key(canvas_id, options, route),
        budget=limits_of(options["budget"]) if options.get("budget") is not None else {},
    )


def repeated(
    tx: Transaction, tenant_id: UUID, canvas_id: UUID, options: Mapping[str, Any], route: str = ROUTE
) -> Started | None:
    """What the first request with the key of these options was told; None for a new key, or none.

    It holds whatever has become of canvas and conversation since. Raises Conflict for another request with the key.
    """
    key = _key(canvas_id, _storable(options), route)
    first = idempotency.find(tx, tenant_id, *key) if key is not None else None
    return Started.from_first(first) if first is not None else None


def start_for(
    lifecycle: Lifecycle, tenant_id: UUID, run_id: UUID, canvas_id: UUID, options: Mapping[str, Any]
) -> Started:
    """Start a run whose id the caller has chosen. However often it is asked for, it is started once.

    The id is the key of who brings none: what answers a form leaves no run of that id to be found.
    """
    given = {"idempotency_key": f"run {run_id}", **options}
    with lifecycle.coordinator.database.transaction() as tx:
        first = repeated(tx, tenant_id, canvas_id, given)
        if first is not None:
            return first
        start = start_of(tx, tenant_id, run_id, canvas_id, given)
    return lifecycle.start_run(start)


def check_size(options: Mapping[str, Any], most_bytes: int) -> None:
    """Raise InvalidRequest for options that no HTTP request could have brought: other services send them past the edge.

    A query, inputs or descriptors of files of that size would be read again by every node.
    """
    try:
        size = sum(len(json.dumps(value, default=str).encode()) for value in options.values())
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The options are no JSON that could be stored: {error}.") from None
    if size > most_bytes:
        raise InvalidRequest(
            f"The options have {size} bytes, more than the {most_bytes} that EASEL_MAX_BODY_BYTES allows. Upload files."
        )


def _storable(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as JSON that every row takes: other services send them over Celery, past any edge."""
    try:
        return storable.copied(options)
    except storable.Unstorable as error:
        raise InvalidRequest(f'"{error.field}" cannot be stored: {error.reason}.') from None


def _key(canvas_id: UUID, options: Mapping[str, Any], route: str) -> tuple[str, str, bytes] | None:
    key = options.get("idempotency_key")
    return (route, idempotency.checked(key), _digest(canvas_id, options)) if key is not None else None


def _digest(canvas_id: UUID, options: Mapping[str, Any]) -> bytes:
    """SHA-256 of a request; the order in which somebody wrote its members does not matter."""
    written = json.dumps({**options, "agent": str(canvas_id)}, sort_keys=True, default=str)
    return hashlib.sha256(written.encode()).digest()


def _version(tx: Transaction, tenant_id: UUID, canvas_id: UUID, options: Mapping[str, Any]) -> UUID:
    wanted = options.get("version")
    if wanted == LATEST:
        with suppress(NotFound):
            return versions.latest_released(tx, tenant_id, canvas_id).id
    elif wanted and wanted != "draft":
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
