"""Options of a start: parsed and checked, from a request of the API or a message of another service, into a Start."""

import difflib
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from canvas.budget import parse_limits
from canvas.document import json_checks
from canvas.errors import InvalidRequest, NotFound
from canvas.ids import CanvasId, RunId, SessionId, TenantId, VersionId
from providers.address_policy import NO_PRIVATE_HOSTS, Guard
from scheduler.callbacks.options import parse_callbacks, refuse_secrets
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle import accept
from scheduler.lifecycle.accept import ON_BUSY, Start, Started
from scheduler.lifecycle.lifecycle import Lifecycle
from store.agents import conversations, versions
from store.db.transaction import Transaction
from store.runs import external_ids
from store.runs.external_ids import ExternalId
from store.tenants import idempotency

ROUTE = "runs"  # scope of idempotency keys of starts that do not wait for the run, by HTTP or by the task

OPTIONS: Mapping[str, tuple[type, ...]] = {
    "query": (str, dict),
    "inputs": (dict,),
    "files": (list, tuple),
    "user_id": (str,),
    "session_id": (str,),
    "name": (str,),
    "version": (str,),
    "release": (bool,),
    "on_busy": (str,),
    "idempotency_key": (str,),
    "budget": (dict,),
    "chat_template_kwargs": (dict,),
    "callbacks": (list,),
}
"""Options of a start that other services may send in a message, with the types of their values."""

ONLY_OVER_HTTP = ("custom_header", "cancel_on_disconnect")
"""Options that a message cannot have: secrets must not be stored in a broker, and a message has no connection."""

LATEST = "latest"  # a value of `version`: the last published version; the draft if none was published


def parse_start(
    tx: Transaction,
    tenant_id: TenantId,
    run_id: RunId | None,
    canvas_id: CanvasId,
    options: Mapping[str, Any],
    route: str = ROUTE,
    *,
    guard: Guard = NO_PRIVATE_HOSTS,
) -> Start:
    """Parse the options of a start. Raises InvalidRequest, which names the option, or NotFound.

    `guard`: the addresses that callbacks may have.
    """
    options = _copy_storable(options)
    session = options.get("session_id")
    conversation_id = SessionId(_id(session, "session_id")) if session else None
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
        budget=parse_limits(options["budget"]) if options.get("budget") is not None else {},
        callbacks=parse_callbacks(tx, tenant_id, options["callbacks"], guard) if options.get("callbacks") else (),
    )


def find_first_response(
    tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, options: Mapping[str, Any], route: str = ROUTE
) -> Started | None:
    """Return the response to the first request with the idempotency key of these options; None for a new key, or none.

    The response remains valid even if canvas or conversation were deleted since. Raises Conflict for another request
    with the key.
    """
    key = _key(canvas_id, _copy_storable(options), route)
    first = idempotency.find(tx, tenant_id, *key) if key is not None else None
    return Started.from_first(first) if first is not None else None


def start_for_service(
    lifecycle: Lifecycle, tenant_id: TenantId, external_id: str, canvas_id: CanvasId, options: Mapping[str, Any]
) -> Started:
    """Start a run under the caller's `external_id`. Repeated requests start it once.

    A request that answers a form starts no run: the external id leads to the resumed run. Raises InvalidRequest for
    what the caller can correct, Conflict if another request has this external id.
    """
    options = _copy_storable(options)
    external = ExternalId(external_id, _digest(canvas_id, options), canvas_id, _request(options).to_json())
    with lifecycle.coordinator.database.transaction() as tx:
        first = external_ids.find_started_run(tx, tenant_id, external)
        if first is not None:
            return accept.replay_first_response(tx, tenant_id, idempotency.FirstResponse(first, None))
        by_key = find_first_response(tx, tenant_id, canvas_id, options)
        if by_key is not None:  # with another external id
            external_ids.claim(tx, tenant_id, external, by_key.run_id)
            return by_key
        earlier = _find_in_previous_release(tx, tenant_id, canvas_id, external_id, options)
        if earlier is not None:
            return earlier
        run_id = external_ids.choose_run_id(external_id, datetime.now(UTC))
        guard = lifecycle.coordinator.callback_guard
        start = parse_start(tx, tenant_id, run_id, canvas_id, options, guard=guard)
    return lifecycle.start_run(replace(start, external=external))


def _find_in_previous_release(
    tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, external_id: str, options: Mapping[str, Any]
) -> Started | None:
    """Return the response of an earlier release to this request: it stored run ids as idempotency keys, for a day."""
    if external_ids.uuid_of(external_id) is None or "idempotency_key" in options:
        return None
    key = f"run {external_ids.key_of(external_id)}"
    return find_first_response(tx, tenant_id, canvas_id, {"idempotency_key": key, **options})


def check_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for an option that a start does not have, or whose value is of another type."""
    for name, value in options.items():
        if name in ONLY_OVER_HTTP:
            raise InvalidRequest(f'"{name}" is an option of the HTTP API only. {_known_options()}')
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, 1)
            meant = f' Did you mean "{near[0]}"?' if near else ""
            raise InvalidRequest(f"There is no option {name[:64]!r}.{meant} {_known_options()}")
        if value is not None and not isinstance(value, OPTIONS[name]):
            expected = " or ".join(_JSON_NAMES[kind] for kind in OPTIONS[name] if kind in _JSON_NAMES)
            raise InvalidRequest(f'"{name}" must be {expected}, and is {type(value).__name__}.')
    on_busy = options.get("on_busy")
    if on_busy is not None and on_busy not in ON_BUSY:
        raise InvalidRequest(f'"on_busy" is {on_busy[:64]!r}. Use one of: {", ".join(ON_BUSY)}.')
    refuse_secrets(options.get("callbacks"))


_JSON_NAMES = {str: "a text", dict: "an object", list: "a list", bool: "true or false"}


def _known_options() -> str:
    return f"The options are: {', '.join(OPTIONS)}."


def check_size(options: Mapping[str, Any], most_bytes: int) -> None:
    """Raise InvalidRequest for options of more than `most_bytes`, the size limit of HTTP requests.

    Messages of other services do not pass the API's own check. Every node would read a query, inputs or file
    descriptors of such a size again.
    """
    try:
        size = sum(len(json.dumps(value, default=str).encode()) for value in options.values())
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The options are not JSON that can be stored: {error}.") from None
    if size > most_bytes:
        raise InvalidRequest(
            f"The options have {size} bytes, and EASEL_MAX_BODY_BYTES allows {most_bytes}. Upload files."
        )


def _copy_storable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as JSON that can be stored; those in messages of other services were not checked before."""
    try:
        return json_checks.copy_storable(options)
    except json_checks.Unstorable as error:
        raise InvalidRequest(f'"{error.field}" cannot be stored: {error.reason}.') from None


def _key(canvas_id: CanvasId, options: Mapping[str, Any], route: str) -> tuple[str, str, bytes] | None:
    key = options.get("idempotency_key")
    return (route, idempotency.validate_key(key), _digest(canvas_id, options)) if key is not None else None


def _digest(canvas_id: CanvasId, options: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 digest of a request; the order of its members does not matter."""
    text = json.dumps({**options, "agent": str(canvas_id)}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).digest()


def _version(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, options: Mapping[str, Any]) -> VersionId:
    version = options.get("version")
    if version == LATEST:
        with suppress(NotFound):
            return versions.lock_latest_released(tx, tenant_id, canvas_id).id
    elif version and version != "draft":
        return versions.lock_by_id(tx, tenant_id, canvas_id, VersionId(_id(version, "version"))).id
    if options.get("release"):
        return versions.lock_latest_released(tx, tenant_id, canvas_id).id
    return versions.lock_draft_version(tx, tenant_id, canvas_id).id


def _request(options: Mapping[str, Any]) -> RunRequest:
    inputs = options.get("inputs")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise InvalidRequest('"inputs" must be an object: field name -> value, or -> {"value": …, "type": …}.')
    query = options.get("query")
    if query is not None and not isinstance(query, str | dict):
        raise InvalidRequest('"query" must be a text or an object.')
    files = options.get("files") or ()
    if not isinstance(files, list | tuple) or not all(isinstance(file, Mapping) for file in files):
        raise InvalidRequest('"files" must be a list of descriptors {id, name, mime_type, created_by}.')
    return RunRequest(
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
        raise InvalidRequest(f'"{name}" is {value!r}, which is not a valid id.') from None
