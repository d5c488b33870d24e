"""Webhook routes: check the caller, map the payload, start the run, reply; and the trace of tests.

The public route runs the published version without a token: the webhook's own security block decides. `/test` runs the
draft for its owner. A request that is refused before a run starts gets 400 and `{"code": 400, "message"}`. Internal
errors get a status of 500 or above, since senders take a 200 for a delivery.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from api.http.errors import ARGUMENT, CONFLICT, RequestRefused, not_found, use_real_status_for_internal_errors
from api.http.query_parameters import AnyQueryRoute
from api.http.replies import json_reply, parse_canvas_id, success
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import find_key
from api.requests.request_bodies import read_body
from api.requests.scopes import NEEDS_READ, NEEDS_RUN
from api.requests.token_bucket import TokenBuckets
from api.runs.turn import begin, gather
from api.webhooks import trace
from api.webhooks.payload import WebhookRequest, build_payload, check_content_type, parse_body
from api.webhooks.reply import parse_template, turn_reply
from api.webhooks.security import WebhookCall, admit, credential_headers, texts, too_large
from api.webhooks.trace import Trace, build_trace, trace_page
from canvas.document.document import BEGIN
from canvas.document.secret_fields import SecretPosition
from canvas.errors import Conflict, InvalidCanvas, InvalidRequest
from canvas.events.stream_sequencer import Position
from canvas.ids import RunId, VersionId
from providers.isolation.limited_process import OWNER
from providers.isolation.untrusted_threads import in_untrusted_thread
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import WEBHOOK, Start, Started
from store.agents import versions, webhook_runs
from store.agents.webhook_runs import WebhookTarget, WebhookTest
from store.db.transaction import Transaction
from store.primitives.ids import new_id

router = APIRouter(tags=["webhooks"], route_class=AnyQueryRoute, dependencies=[NEEDS_RUN])

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
NOT_FOUND = "Canvas not found."


@dataclass(frozen=True, slots=True)
class WebhookState:
    """The process's state for webhooks. `secret` signs the ids of tests."""

    buckets: TokenBuckets
    secret: str = field(repr=False)


def get_webhook_state(request: Request) -> WebhookState:
    """Return the WebhookState of the process."""
    webhooks: WebhookState = request.app.state.webhooks
    return webhooks


WebhookStateDep = Annotated[WebhookState, Depends(get_webhook_state)]


@dataclass(frozen=True, slots=True)
class ConfiguredWebhook:
    """A webhook with the configuration of the version that will run."""

    target: WebhookTarget
    version_id: VersionId
    params: Mapping[str, Any] = field(repr=False)
    is_test: bool


async def call_webhook(request: Request, context: ApiContextDep, webhooks: WebhookStateDep, agent_id: str) -> Response:
    """Start a run of the published version, with this request as its payload."""
    return await _answer(request, context, webhooks, agent_id, None)


async def test_webhook(
    request: Request, context: ApiContextDep, webhooks: WebhookStateDep, principal: ApiTokenCaller, agent_id: str
) -> Response:
    """Start a run of the draft for its owner, who can follow it under `/webhook/logs`."""
    return await _answer(request, context, webhooks, agent_id, principal)


for _method in METHODS:  # one by one, since each needs its own name in OpenAPI
    _is_shown = _method != "HEAD"
    router.add_api_route(
        "/agents/{agent_id}/webhook", call_webhook, methods=[_method], response_model=None, include_in_schema=_is_shown
    )
    router.add_api_route(
        "/agents/{agent_id}/webhook/test",
        test_webhook,
        methods=[_method],
        response_model=None,
        include_in_schema=_is_shown,
    )


@router.get("/agents/{agent_id}/webhook/logs", dependencies=[NEEDS_READ])
async def poll_tests(
    context: ApiContextDep,
    webhooks: WebhookStateDep,
    principal: ApiTokenCaller,
    agent_id: str,
    since_ts: str = "",
    webhook_id: str = "",
) -> Response:
    """Poll the events of tests of the webhook since a time, one test at a time."""
    tests = await run_in_thread(lambda: _tests(context, principal, agent_id))
    if not since_ts:
        return success(_nothing(time.time()))
    since = _moment(since_ts)
    if not webhook_id:
        start = trace.find_start_after(tests, since)
        if start is None:
            return success(_nothing(since))
        return success({**_nothing(start), "webhook_id": trace.webhook_id(webhooks.secret, start)})
    test = trace.find_test(tests, webhooks.secret, webhook_id)
    if test is None:
        return success({**_nothing(since), "webhook_id": webhook_id, "finished": True})
    return success(trace_page(await _trace(context, principal, test), webhook_id, since))


# -- a call, step by step ---------------------------------------------------------------------------------------------


async def _answer(
    request: Request, context: ApiContext, webhooks: WebhookState, agent_id: str, principal: RequestPrincipal | None
) -> Response:
    use_real_status_for_internal_errors(request)
    try:
        hook = await run_in_thread(lambda: _find_webhook(context, agent_id, principal))
        payload = await _payload(request, webhooks, hook)
        template = parse_template(hook.params)
        start = await run_in_thread(lambda: _start(request, context, hook, payload))
        if template is not None:
            started = await run_in_thread(lambda: context.lifecycle.start_run(start))
            return template.reply(started)
        talk = await begin(context, start.tenant_id, start, token_id=principal.token_id if principal else None)
        turn_result = await gather(talk, request)
        statuses = await run_in_thread(lambda: _statuses(context, talk.started))
    except Conflict as refused:
        return json_reply({"code": CONFLICT, "message": refused.message}, 409)
    except InvalidRequest as refused:
        return json_reply({"code": 400, "message": refused.message}, 400)
    return turn_reply(turn_result, talk.started, statuses)


def _find_webhook(context: ApiContext, agent_id: str, principal: RequestPrincipal | None) -> ConfiguredWebhook:
    """Return the webhook of a canvas. Raises InvalidRequest if it has none.

    Callers without a token do not get the reason: an agent without a webhook answers like one that does not exist.
    """
    try:
        return _find_configured_webhook(context, agent_id, principal)
    except InvalidRequest:
        if principal is not None:
            raise
        raise InvalidRequest(NOT_FOUND) from None


def _find_configured_webhook(
    context: ApiContext, agent_id: str, principal: RequestPrincipal | None
) -> ConfiguredWebhook:
    with context.database.transaction() as tx:
        canvas_id = parse_canvas_id(agent_id)
        target = webhook_runs.find_target(tx, canvas_id) if canvas_id is not None else None
        if target is None or (principal is not None and principal.tenant_id != target.tenant_id):
            raise InvalidRequest(NOT_FOUND)
        if target.category == "dataflow_canvas":
            raise InvalidRequest("Dataflow can not be triggered by webhook.")
        version_id, params = _read_configuration(tx, context, target, is_test=principal is not None)
    return ConfiguredWebhook(target, version_id, params, principal is not None)


def _read_configuration(
    tx: Transaction, context: ApiContext, target: WebhookTarget, *, is_test: bool
) -> tuple[VersionId, Mapping[str, Any]]:
    """Return the version that runs, and the params of its Begin."""
    chosen = versions.lock_draft_version if is_test else versions.lock_latest_released
    version = chosen(tx, target.tenant_id, target.canvas_id)
    try:
        document = context.versions.get(tx, version.id).document
    except InvalidCanvas:
        raise InvalidRequest("Invalid DSL format.") from None
    begin_node = document.entries.get(BEGIN)
    if begin_node is None or begin_node.params.get("mode") != "Webhook":
        raise InvalidRequest("Webhook not configured for this agent.")
    secrets = context.canvas_secrets(target.tenant_id, target.canvas_id)
    place = SecretPosition(begin_node.id, begin_node.name, begin_node.component, "")
    return version.id, secrets.open_params(place, begin_node.params)


async def _payload(request: Request, webhooks: WebhookState, hook: ConfiguredWebhook) -> dict[str, Any]:
    """Return the payload of a call. Raises InvalidRequest, also for a call that is not admitted."""
    methods = hook.params.get("methods")
    if methods and request.method not in [method.strip().upper() for method in texts(methods)]:
        raise InvalidRequest(f"HTTP method '{request.method}' not allowed for this webhook.")
    security = hook.params.get("security")
    headers = _first_values(request.headers.items())
    address = request.client.host if request.client else ""
    call = WebhookCall(hook.target.canvas_id, address, headers, hook.is_test)
    most_bytes = await run_in_thread(lambda: admit(security, call, webhooks.buckets))
    OWNER.set(str(hook.target.tenant_id))
    header = headers.get("content-type", "")
    content_type = check_content_type(header, hook.params.get("content_types"))
    body = await parse_body(
        content_type, header, await read_body(request, most_bytes, lambda size: too_large(size, most_bytes))
    )
    if hook.is_test:
        headers.pop("authorization", None)  # the owner's token, which is not part of the test
    query = _first_values(request.query_params.multi_items())
    delivery = WebhookRequest(query, headers, body, content_type)
    hidden = credential_headers(security)
    return await in_untrusted_thread(build_payload, hook.params.get("schema"), delivery, hidden)


def _first_values(items: list[tuple[str, str]]) -> dict[str, str]:
    """Return pairs as a mapping, with the first value of a repeated name."""
    return dict(reversed(items))


def _start(request: Request, context: ApiContext, hook: ConfiguredWebhook, payload: Mapping[str, Any]) -> Start:
    """Return the start of the run for a call. Raises InvalidCanvas if the version cannot run."""
    with context.database.transaction() as tx:
        context.checked_versions.check(tx, context.versions, hook.version_id)
    mark = webhook_runs.TEST if hook.is_test else webhook_runs.LIVE
    key = find_key(request)
    owner = hook.target.tenant_id
    run_request = RunRequest(query="", user_id=owner.hex, webhook_payload=payload, options={webhook_runs.OPTION: mark})
    return Start(
        tenant_id=owner,
        canvas_id=hook.target.canvas_id,
        version_id=hook.version_id,
        request=run_request,
        run_id=RunId(new_id()),
        conversation_name="webhook",
        origin=WEBHOOK,
        idempotency=(f"webhook:{mark}:{hook.target.canvas_id.hex}", key, _digest(request, payload)) if key else None,
    )


def _digest(request: Request, payload: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of a call, without undeclared headers, which differ between two deliveries of one call."""
    sent = {name: value for name, value in payload["input"].items() if name in ("query", "body")}
    others = {name: value for name, value in payload.items() if name != "input"}
    written = json.dumps([request.method, others, sent], sort_keys=True)
    return hashlib.sha256(written.encode()).digest()


def _statuses(context: ApiContext, started: Started) -> list[Any]:
    with context.database.transaction() as tx:
        return webhook_runs.list_reply_statuses(tx, started.run_id, started.after)


# -- tests ------------------------------------------------------------------------------------------------------------


def _tests(context: ApiContext, principal: RequestPrincipal, agent_id: str) -> list[WebhookTest]:
    canvas_id = parse_canvas_id(agent_id)
    with context.database.transaction() as tx:
        target = webhook_runs.find_target(tx, canvas_id) if canvas_id is not None else None
        if target is None or target.tenant_id != principal.tenant_id:
            raise not_found(NOT_FOUND)
        return webhook_runs.list_tests(tx, principal.tenant_id, target.canvas_id)


async def _trace(context: ApiContext, principal: RequestPrincipal, test: WebhookTest) -> Trace:
    """Return a test's trace. Times are read before events, so that later events are left to the next poll."""
    times = await run_in_thread(lambda: _times(context, test))
    wired: list[Any] = []
    position = Position()
    while True:
        run, found, reached = await context.streams.read(principal.tenant_id, test.run_id, position)
        wired += found
        if not found or reached.event >= run.last_event:
            break
        position = reached
    return build_trace(wired, times, trace.start_of(test))


def _times(context: ApiContext, test: WebhookTest) -> list[tuple[int, Any]]:
    with context.database.transaction() as tx:
        return webhook_runs.list_event_times(tx, test.run_id)


def _moment(text: str) -> float:
    try:
        moment = float(text)
    except ValueError:
        moment = float("nan")
    if not 0 <= moment < float("inf"):
        raise RequestRefused(ARGUMENT, "`since_ts` must be a number of seconds since 1970.")
    return moment


def _nothing(since: float) -> dict[str, Any]:
    return {"webhook_id": None, "events": [], "next_since_ts": since, "finished": False}
