"""Routes of callbacks: addresses that are told when runs end or wait, their secrets, and their deliveries.

`docs/callbacks.md` describes what is sent, and how receivers check it.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from api.callbacks.reply_models import (
    CallbackListReply,
    CallbackRow,
    DeliveryListReply,
    DeliveryRow,
    NewCallbackReply,
    SecretReply,
)
from api.http.errors import RepeatedRequest
from api.http.query_values import parse_number, parse_position
from api.http.replies import json_reply, parse_canvas_id, parse_id
from api.http.reply_styles import OwnRoute
from api.http.schemas import Body
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.idempotency import IdempotentRequest, OnceByBody
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from api.runs.run_lookup import find_run_id
from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.ids import CanvasId, TenantId
from scheduler.callbacks.options import check_events, check_include, check_url
from scheduler.callbacks.signature import message_id
from scheduler.views.json_values import hex_of, iso
from store.agents import canvases
from store.db.transaction import Transaction
from store.monitoring import server_info
from store.primitives.encryption import seal, unseal
from store.primitives.ids import NO_ID, new_id
from store.tenants import callback_deliveries, callbacks
from store.tenants.callback_deliveries import Delivery, DeliveryStatus
from store.tenants.callbacks import TEST, Callback

router = APIRouter(prefix="/callbacks", tags=["callbacks"], dependencies=[NEEDS_EDIT], route_class=OwnRoute)

MAX_LIMIT = 100
SEALED = "sealed_secret"  # in the stored reply to a request with an idempotency key
NO_STORE = {"Cache-Control": "no-store"}

Secret = Annotated[str, Field(max_length=200)]
Description = Annotated[str, Field(max_length=200)]


class CallbackFields(Body):
    """Fields of a callback."""

    url: str | None = Field(default=None, description="https; http for private hosts that the operators allow")
    events: list[str] | None = Field(default=None, description="By default all: `run.succeeded`, `run.failed`, ...")
    include: list[str] | None = Field(default=None, description="`output`: the text of the answer")
    description: Description | None = None


class NewCallbackBody(CallbackFields):
    """A new callback."""

    agent_id: str | None = Field(default=None, description="Whose runs it is told of; none: the runs that name it")
    secret: Secret | None = Field(default=None, description="`whsec_…`; without it Easel makes one")


class ChangeCallbackBody(CallbackFields):
    """What changes of a callback."""

    enabled: bool | None = None


class RotateBody(Body):
    """The next secret."""

    secret: Secret | None = Field(default=None, description="`whsec_…`; without it Easel makes one")


class EmptyBody(Body):
    """A body without fields."""


# -- the tenant's secret ----------------------------------------------------------------------------------------------
@router.get("/secret", response_model=SecretReply)
def get_secret(context: ApiContextDep, principal: ApiTokenCaller) -> Response:
    """Get the tenant's secret. It signs for callbacks that a run brings without a secret of their own."""
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        secret, *_ = callbacks.tenant_secrets(tx, principal.tenant_id, context.encryption_key, now)
    return json_reply({"secret": secret}, headers=NO_STORE)


@router.post("/secret/rotate", response_model=SecretReply, openapi_extra=body_openapi(EmptyBody))
def rotate_secret(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, once: OnceByBody) -> Response:
    """Replace the tenant's secret. For a day the former one signs, too."""
    parse_body(EmptyBody, body)

    def rotate(tx: Transaction) -> tuple[dict[str, Any], str]:
        return {}, callbacks.rotate_tenant_secret(tx, principal.tenant_id, context.encryption_key)

    return _with_secret(context, principal.tenant_id, once, rotate)


# -- deliveries -------------------------------------------------------------------------------------------------------
@router.get("/deliveries", response_model=DeliveryListReply, dependencies=[NEEDS_READ])
def list_deliveries(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    status: str = "",
    run_id: str = "",
    callback_id: str = "",
    before: str = "",
    limit: str = "50",
) -> Response:
    """List deliveries, the newest first: `pending`, `delivered` or `dead` ones, those of one run or callback."""
    most = parse_number("limit", limit, MAX_LIMIT)
    if status and status not in list(DeliveryStatus):
        raise InvalidRequest(f"`status` is {status[:64]!r}. Use {', '.join(DeliveryStatus)}.", field="status")
    with context.database.transaction() as tx:
        found = callback_deliveries.list_deliveries(
            tx,
            principal.tenant_id,
            statuses=[status] if status else tuple(DeliveryStatus),
            run_id=find_run_id(tx, principal.tenant_id, run_id) if run_id else None,
            callback_id=_parse(callback_id, callbacks.not_found) if callback_id else None,
            before=parse_position("before", before),
            limit=most + 1,
        )
    shown = [delivery_json(each) for each in found[:most]]
    return json_reply({"deliveries": shown, "next": shown[-1]["id"] if len(found) > most else None})


@router.get("/deliveries/{delivery_id}", response_model=DeliveryRow, dependencies=[NEEDS_READ])
def get_delivery(context: ApiContextDep, principal: ApiTokenCaller, delivery_id: str) -> Response:
    """Get a delivery with its attempts."""
    parsed = _parse(delivery_id, callback_deliveries.not_found)
    with context.database.transaction() as tx:
        return json_reply(delivery_json(callback_deliveries.get(tx, principal.tenant_id, parsed)))


@router.post(
    "/deliveries/{delivery_id}/replay",
    status_code=202,
    response_model=DeliveryRow,
    openapi_extra=body_openapi(EmptyBody),
)
def replay_delivery(
    context: ApiContextDep, principal: ApiTokenCaller, delivery_id: str, body: SmallBody, once: OnceByBody
) -> Response:
    """Send a delivery again, now and with all its retries: 202. Id and body stay the same."""
    parse_body(EmptyBody, body)
    parsed = _parse(delivery_id, callback_deliveries.not_found)
    with once.transaction(context.database) as tx:
        replayed = callback_deliveries.replay(tx, principal.tenant_id, parsed)
        return once.store_reply(tx, json_reply(delivery_json(replayed), 202))


# -- stored callbacks -------------------------------------------------------------------------------------------------
@router.post("", status_code=201, response_model=NewCallbackReply, openapi_extra=body_openapi(NewCallbackBody))
def create_callback(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, once: OnceByBody) -> Response:
    """Store a callback: 201 with its secret, which is shown once.

    With `agent_id` it is told of the agent's runs, those that are open now included; without it, of runs that name it.
    """
    fields = parse_body(NewCallbackBody, body)
    if fields.url is None:
        raise InvalidRequest("`url` is missing. Write an address with https.", field="url")
    url = check_url(fields.url, context.lifecycle.coordinator.callback_guard)
    events, include = check_events(fields.events), check_include(fields.include)
    secret = callbacks.check_secret(fields.secret, "secret") if fields.secret is not None else callbacks.new_secret()
    agents: list[CanvasId] = []

    def create(tx: Transaction) -> tuple[dict[str, Any], str]:
        callback_id = new_id()
        if fields.agent_id is not None:
            agents.append(_agent(tx, principal, fields.agent_id))
        made = callbacks.create(
            tx,
            principal.tenant_id,
            callback_id,
            canvas_id=agents[0] if agents else None,
            url=url,
            events=events,
            include=include,
            description=fields.description or "",
            sealed_secret=callbacks.seal_secret(context.encryption_key, principal.tenant_id, callback_id, secret),
        )
        return callback_json(made), secret

    reply = _with_secret(context, principal.tenant_id, once, create, 201)
    for canvas_id in agents:
        context.lifecycle.flag_runs_of(principal.tenant_id, canvas_id)
    return reply


@router.get("", response_model=CallbackListReply, dependencies=[NEEDS_READ])
def list_callbacks(
    context: ApiContextDep, principal: ApiTokenCaller, agent_id: str = "", after: str = "", limit: str = "50"
) -> Response:
    """List stored callbacks, the oldest first, or those of one agent."""
    most = parse_number("limit", limit, MAX_LIMIT)
    with context.database.transaction() as tx:
        chosen = _agent(tx, principal, agent_id) if agent_id else None
        first = parse_position("after", after) or NO_ID
        found = callbacks.list_callbacks(tx, principal.tenant_id, chosen, after=first, limit=most + 1)
    shown = [callback_json(each) for each in found[:most]]
    return json_reply({"callbacks": shown, "next": shown[-1]["id"] if len(found) > most else None})


@router.get("/{callback_id}", response_model=CallbackRow, dependencies=[NEEDS_READ])
def get_callback(context: ApiContextDep, principal: ApiTokenCaller, callback_id: str) -> Response:
    """Get a stored callback."""
    parsed = _parse(callback_id, callbacks.not_found)
    with context.database.transaction() as tx:
        return json_reply(callback_json(callbacks.get(tx, principal.tenant_id, parsed)))


@router.patch("/{callback_id}", response_model=CallbackRow, openapi_extra=body_openapi(ChangeCallbackBody))
def change_callback(context: ApiContextDep, principal: ApiTokenCaller, callback_id: str, body: SmallBody) -> Response:
    """Change a stored callback, disable it, or enable it. While it is disabled, nothing is recorded for it."""
    fields = parse_body(ChangeCallbackBody, body)
    parsed = _parse(callback_id, callbacks.not_found)
    guard = context.lifecycle.coordinator.callback_guard
    with context.database.transaction() as tx:
        now = callbacks.get(tx, principal.tenant_id, parsed)
        changed = callbacks.change(
            tx,
            principal.tenant_id,
            parsed,
            url=check_url(fields.url, guard) if fields.url is not None else now.url,
            events=check_events(fields.events) if fields.events is not None else now.events,
            include=check_include(fields.include) if fields.include is not None else now.include,
            description=fields.description if fields.description is not None else now.description,
            is_enabled=fields.enabled if fields.enabled is not None else now.disabled_at is None,
        )
    return json_reply(callback_json(changed))


@router.delete("/{callback_id}", status_code=204)
def delete_callback(context: ApiContextDep, principal: ApiTokenCaller, callback_id: str) -> Response:
    """Delete a stored callback. What is still pending for it ends as dead."""
    parsed = _parse(callback_id, callbacks.not_found)
    with context.database.transaction() as tx:
        callbacks.remove(tx, principal.tenant_id, parsed)
    return Response(status_code=204)


@router.post("/{callback_id}/rotate", response_model=NewCallbackReply, openapi_extra=body_openapi(RotateBody))
def rotate_callback(
    context: ApiContextDep, principal: ApiTokenCaller, callback_id: str, body: SmallBody, once: OnceByBody
) -> Response:
    """Replace the secret of a callback; the new one is shown once. For a day the former one signs, too."""
    fields = parse_body(RotateBody, body)
    parsed = _parse(callback_id, callbacks.not_found)
    secret = callbacks.check_secret(fields.secret, "secret") if fields.secret is not None else callbacks.new_secret()

    def rotate(tx: Transaction) -> tuple[dict[str, Any], str]:
        sealed = callbacks.seal_secret(context.encryption_key, principal.tenant_id, parsed, secret)
        return callback_json(callbacks.rotate(tx, principal.tenant_id, parsed, sealed)), secret

    return _with_secret(context, principal.tenant_id, once, rotate)


@router.post("/{callback_id}/test", status_code=202, response_model=DeliveryRow, openapi_extra=body_openapi(EmptyBody))
def test_callback(
    context: ApiContextDep, principal: ApiTokenCaller, callback_id: str, body: SmallBody, once: OnceByBody
) -> Response:
    """Send `callback.test` to a callback: 202 with the delivery."""
    parse_body(EmptyBody, body)
    parsed = _parse(callback_id, callbacks.not_found)
    with once.transaction(context.database) as tx:
        if callbacks.get(tx, principal.tenant_id, parsed).disabled_at is not None:
            raise Conflict("The callback is disabled. Enable it first.")
        made = callback_deliveries.put_test(tx, principal.tenant_id, new_id(), parsed, TEST)
        return once.store_reply(tx, json_reply(delivery_json(made), 202))


# -- replies ----------------------------------------------------------------------------------------------------------
def callback_json(callback: Callback) -> dict[str, Any]:
    """Return a callback as replies have it."""
    return {
        "id": callback.id.hex,
        "agent_id": hex_of(callback.canvas_id),
        "url": callback.url,
        "events": list(callback.events),
        "include": list(callback.include),
        "description": callback.description,
        "enabled": callback.disabled_at is None,
        "disabled_because": callback.disabled_because,
        "disabled_at": iso(callback.disabled_at),
        "former_secret_until": iso(callback.former_until),
        "created_at": iso(callback.created_at),
    }


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery as replies have it."""
    is_pending = delivery.status == DeliveryStatus.PENDING
    return {
        "id": delivery.id.hex,
        "message_id": message_id(delivery.id),
        "callback_id": delivery.callback_id.hex,
        "event": delivery.event,
        "run_id": hex_of(delivery.run_id),
        "agent_id": hex_of(delivery.canvas_id),
        "status": delivery.status,
        "attempt_count": delivery.attempt,
        "attempts": list(delivery.latest_attempts or ()),
        "occurred_at": iso(delivery.occurred_at),
        "next_attempt_at": iso(delivery.due_at) if is_pending else None,
        "ended_at": iso(delivery.ended_at),
    }


def _with_secret(
    context: ApiContext,
    tenant_id: TenantId,
    once: IdempotentRequest,
    work: Callable[[Transaction], tuple[dict[str, Any], str]],
    status: int = 200,
) -> Response:
    """Do the work of a request and reply with its secret. For a repeat the reply is stored, its secret encrypted."""
    binding = f"callback_replies/{tenant_id}"
    try:
        with once.transaction(context.database) as tx:
            shown, secret = work(tx)
            sealed = b64encode(seal(context.encryption_key, secret, binding)).decode()
            once.store_reply(tx, json_reply({**shown, SEALED: sealed}, status))
    except RepeatedRequest as repeat:
        shown = json.loads(bytes(repeat.reply.body))
        secret = unseal(context.encryption_key, b64decode(shown.pop(SEALED)), binding)
        raise RepeatedRequest(json_reply({**shown, "secret": secret}, status, NO_STORE)) from None
    return json_reply({**shown, "secret": secret}, status, NO_STORE)


def _parse(written: str, absent: Callable[[str], NotFound]) -> UUID:
    parsed = parse_id(written)
    if parsed is None:
        raise absent(written)
    return parsed


def _agent(tx: Transaction, principal: RequestPrincipal, written: str) -> CanvasId:
    """Return the id of an agent of the caller. Raises NotFound."""
    parsed = parse_canvas_id(written)
    if parsed is None or canvases.find_title(tx, principal.tenant_id, parsed) is None:
        raise NotFound(f"There is no agent {written[:64]}.")
    return parsed
