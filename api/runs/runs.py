"""Easel's own routes of runs, with real statuses: start without waiting, get, follow, cancel, answer forms."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.events.counted_stream import CountedStream
from api.events.event_stream import HEADERS, KEEPALIVE, MEDIA_TYPE, StreamEnd, ended_line, event_line
from api.http.errors import SERVER, Failure, TokenEnded, failure_reply
from api.http.paging import ListPageDep
from api.http.replies import json_reply
from api.http.reply_styles import OwnRoute
from api.http.schemas import ResumeBody, TurnBody
from api.requests.auth import RequestPrincipal, RunViewer, Viewer
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import OnceByViewer
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_READ, NEEDS_RUN, OF_ONE_AGENT
from api.runs.critical_path import CacheDep
from api.runs.event_log import LogQueryDep, add_details, read_log
from api.runs.reply_models import (
    CancelledRunReply,
    EndedTurnReply,
    EventListReply,
    ExplanationReply,
    RunListReply,
    RunReply,
    StartedReply,
)
from api.runs.run_list import KeysetDep, confine, keyset_json
from api.runs.run_lookup import find_run_id, run_not_found
from api.runs.run_wire import run_json, run_row
from api.runs.turn import (
    ActiveTurn,
    TurnResult,
    begin,
    choose_turn,
    encrypt_headers,
    follow,
    gather,
    id_headers,
    with_idempotency_key,
)
from api.visitors.redaction import Redaction
from api.visitors.visitor_answers import check_answers
from canvas.budget import parse_limits
from canvas.errors import InvalidRequest, NotFound
from canvas.events import explain
from canvas.events.run_events import RUN_FAILED, USER_INPUTS
from canvas.events.stream_sequencer import Position
from canvas.ids import RunId
from canvas.state.run_state import RunStatus
from scheduler.coordinator.run_start import RunRequest
from store.db.transaction import USE_SNAPSHOT
from store.monitoring import wait_facts
from store.monitoring.run_list import read_page
from store.primitives.json_codec import encode
from store.runs import run_queries
from store.runs.run_queries import RunSummary

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_READ])

MAX_WAIT = 300  # maximum of `Prefer: wait` in seconds


@router.post(
    "/agents/{agent_id}/runs",
    status_code=202,
    response_model=StartedReply,
    responses={200: {"model": EndedTurnReply}},
    openapi_extra=body_openapi(TurnBody),
    dependencies=[NEEDS_RUN],
)
async def start_run(
    request: Request, context: ApiContextDep, principal: Viewer, agent_id: str, body: SmallBody
) -> Response:
    """Start a run: 202 with its location. With `Prefer: wait=n`, its result if it ends in time.

    With an `Idempotency-Key`, the request can be repeated for a day without starting another run.
    """
    fields = parse_body(TurnBody, body)
    options = with_idempotency_key(request, fields.options())
    seconds = wait_seconds(request)
    start = await run_in_thread(
        lambda: choose_turn(context, principal, agent_id, options, custom_header=fields.custom_header)
    )
    talk = await begin(context, principal.tenant_id, start, token_id=principal.token_id)
    return await accepted_reply(request, talk, seconds)


@router.get("/runs", response_model=RunListReply, dependencies=[OF_ONE_AGENT])
def list_runs(
    context: ApiContextDep,
    principal: Viewer,
    page: ListPageDep,
    keyset: KeysetDep,
    external_id: str = "",
) -> Response:
    """List the caller's runs, the newest first, including refused starts: a numbered page, or the page below a run.

    With `limit`, `before` or a filter beyond agent, session and status, pages follow each other by `next`.
    """
    chosen = confine(keyset.chosen, principal)
    with context.database.transaction() as tx:
        if keyset.is_used:
            found_page = read_page(
                tx,
                principal.tenant_id,
                chosen,
                before=keyset.before,
                limit=keyset.limit,
                has_total=keyset.has_total,
            )
            return json_reply(keyset_json(found_page))
        found, total = run_queries.page(
            tx,
            principal.tenant_id,
            canvas_id=chosen.canvas_ids[0] if chosen.canvas_ids else None,
            conversation_id=chosen.session_id,
            status=chosen.statuses[0] if chosen.statuses else "",
            external_id=external_id,
            limit=page.size,
            offset=page.offset,
        )
    return json_reply({"runs": [run_row(run) for run in found], "total": total})


@router.get("/runs/{run_id}", response_model=RunReply)
def get_run(
    context: ApiContextDep,
    principal: RunViewer,
    cache: CacheDep,
    run_id: str,
    activations: Literal["tree", "none"] = "tree",
    critical: Literal["0", "1"] = "0",
) -> Response:
    """Get a run: its status, answer, open forms, totals, and its activations as a tree with times or without them.

    `critical=1` adds its critical path: the steps that decided when it ended, and where the time went.

    Here and in the following routes, `run_id` is the id of the run or its external id.
    """
    with context.database.transaction() as tx:
        tx.execute(USE_SNAPSHOT)
        chosen_run = find_run_id(tx, principal.tenant_id, run_id, context.retention)
        run = run_queries.get_summary(tx, principal.tenant_id, chosen_run)
        if run is None:
            raise run_not_found(run_id, context.retention)
        paths = cache if critical == "1" else None
        has_tree = activations == "tree"
        return json_reply(run_json(tx, context, principal, run, has_activations=has_tree, critical_paths=paths))


@router.get("/runs/{run_id}/explain", response_model=ExplanationReply)
def explain_run(context: ApiContextDep, principal: RunViewer, run_id: str) -> Response:
    """Explain what the run waits for, who or what resolves it, and until when. `also` lists further waits."""
    chosen_run = get_run_id(context, principal, run_id)
    redaction = Redaction.of(principal)
    with context.database.transaction() as tx:
        found = wait_facts.load_facts(tx, principal.tenant_id, chosen_run)
        if found is None:
            raise run_not_found(run_id)
        facts, version_id = found
        if facts.status is RunStatus.REFUSED:
            return json_reply(redaction.explanation(explain.explanation_json(explain.explain_refusal(facts), None)))
        canvas = context.versions.get_or_empty(tx, version_id).canvas
    explanation = explain.explain(facts, canvas, context.time_limit)
    return json_reply(redaction.explanation(explain.explanation_json(explanation, canvas)))


@router.get("/runs/{run_id}/events", response_model=EventListReply)
async def get_events(
    request: Request,
    context: ApiContextDep,
    principal: RunViewer,
    run_id: str,
    log_query: LogQueryDep,
    after: str = "",
) -> Response:
    """Get a run's events and text after a position: JSON, or server-sent events with `Accept: text/event-stream`.

    `after` and `Last-Event-ID` accept the id of any event. The stream ends when the run is over or waits for input.
    With `values=none`, `limit` or a filter, JSON has the stored events only, without text; with `before` from the end.
    """
    position = Position.parse(request.headers.get("last-event-id") or after or "0")
    found = await run_in_thread(lambda: _get_run(context, principal, run_id))
    chosen_run = found.id
    redaction = Redaction.of(principal, found.usage)
    is_stream = "text/event-stream" in request.headers.get("accept", "")
    if is_stream and (log_query.is_log or log_query.is_detailed):
        message = "A stream has all events as they come. Ask for JSON to use other parameters than `after`."
        raise InvalidRequest(message, field="Accept")
    if found.status == RunStatus.REFUSED:
        return _refused_events(found, position, redaction, is_stream=is_stream)
    if is_stream:
        close = context.rate_limits.open_stream(principal.stream_owner)
        return CountedStream(_lines(context, principal, found, position), close)
    if log_query.is_log:
        log = await run_in_thread(lambda: read_log(context, principal, chosen_run, position, log_query))
        if log is None:
            raise run_not_found(run_id)
        return json_reply({**log, "events": [redaction.event(event) for event in log["events"]]})
    run, wired, reached = await context.streams.read(principal.tenant_id, chosen_run, position)
    redaction = Redaction.of(principal, run.usage)
    shown: Sequence[Mapping[str, Any]] = [{"id": str(one.position), **redaction.event(one.body)} for one in wired]
    if log_query.is_detailed:
        events = shown
        shown = await run_in_thread(lambda: add_details(context, chosen_run, events))
    return json_reply({"events": shown, "position": str(reached), "status": run.status})


@router.post("/runs/{run_id}/cancel", response_model=CancelledRunReply, dependencies=[NEEDS_RUN])
def cancel_run(context: ApiContextDep, principal: Viewer, run_id: str) -> Response:
    """Cancel a run. A run that is over does not change."""
    chosen_run = get_run_id(context, principal, run_id)
    try:
        status = context.lifecycle.cancel_run(principal.tenant_id, chosen_run, by=principal.actor)
    except NotFound:
        raise run_not_found(run_id) from None
    return json_reply({"run_id": chosen_run.hex, "status": status.value})


@router.post(
    "/runs/{run_id}/resume",
    status_code=202,
    response_model=StartedReply,
    responses={200: {"model": EndedTurnReply}},
    openapi_extra=body_openapi(ResumeBody),
    dependencies=[NEEDS_RUN],
)
async def resume_run(
    request: Request, context: ApiContextDep, principal: RunViewer, run_id: str, body: SmallBody, once: OnceByViewer
) -> Response:
    """Answer the forms of a run that waits: 202, or 409 if it does not wait. `Prefer: wait=n` works as for a start.

    A run that waits for a higher budget continues with the budget in the body, or after its budget has been raised.
    Visitors of a share that allows it answer the forms of the canvas, with `inputs` only.
    """
    fields = parse_body(ResumeBody, body)
    share = principal.share
    if share is not None:
        await run_in_thread(lambda: check_answers(context, principal.tenant_id, share, fields))
    run_request = RunRequest(
        query=fields.query if fields.query is not None else "",
        inputs=fields.all_inputs(),
        files=tuple(fields.files),
        user_id=fields.user_id or principal.user_id,
        options=encrypt_headers(context, principal, fields.custom_header),
    )
    limits = parse_limits(fields.budget) if fields.budget is not None else None
    seconds = wait_seconds(request) if share is None else 0.0
    chosen_run = await run_in_thread(lambda: get_run_id(context, principal, run_id))
    talk = await follow(
        context,
        principal.tenant_id,
        chosen_run,
        lambda: context.lifecycle.resume_run(
            principal.tenant_id, chosen_run, run_request, once.run_key, limits, by=principal.actor
        ),
        token_id=principal.token_id,
    )
    if share is not None:  # without ids of the session, and without what the turn answers
        await talk.close()
        return json_reply({"run_id": chosen_run.hex}, 202)
    return await accepted_reply(request, talk, seconds)


async def accepted_reply(request: Request, talk: ActiveTurn, seconds: float) -> Response:
    """Return the result of the turn if it ends within that time, else the location of the run."""
    ids = {
        "run_id": talk.started.run_id.hex,
        "session_id": talk.started.conversation_id.hex,
        "message_id": talk.started.message_id.hex,
    }
    headers = {"Location": f"/api/v1/runs/{ids['run_id']}", **id_headers(talk)}
    if not seconds:
        await talk.close()
        return json_reply(ids, 202, headers)
    headers["Preference-Applied"] = f"wait={seconds:g}"
    try:
        async with asyncio.timeout(seconds):
            turn_result = await gather(talk, request)
    except TimeoutError:
        return json_reply(ids, 202, headers)
    return _ended_reply(request, turn_result, ids, headers)


def _ended_reply(request: Request, turn_result: TurnResult, ids: dict[str, str], headers: dict[str, str]) -> Response:
    """Return the reply about a turn that has ended: its result, its open form, or the failure of its run."""
    if turn_result.name == RUN_FAILED:
        failure = Failure(
            500, "run_failed", str(turn_result.last["message"]), SERVER, {**ids, "status": RunStatus.FAILED}
        )
        reply = failure_reply(request, failure)
        reply.headers.update(headers)
        return reply
    if not turn_result.last:  # its events have been deleted, so the row of the run is read
        return json_reply(ids, 202, headers)
    status = RunStatus.WAITING if turn_result.name == USER_INPUTS else RunStatus.SUCCEEDED
    if turn_result.was_cancelled:
        status = RunStatus.CANCELLED
    return json_reply({**turn_result.body(return_trace=False)["data"], **ids, "status": status}, 200, headers)


def _refused_events(found: RunSummary, position: Position, redaction: Redaction, *, is_stream: bool) -> Response:
    """Return the events of a refused start: none, or a stream that ends with the reason, like that of a failed run."""
    if not is_stream:
        return json_reply({"events": [], "position": str(position), "status": found.status})
    frame = {"code": 500, "message": found.error, "data": False, "run_id": found.id.hex}
    return Response(f"data:{encode(redaction.event(frame))}\n\n", headers=HEADERS, media_type=MEDIA_TYPE)


async def _lines(
    context: ApiContext, principal: RequestPrincipal, run: RunSummary, after: Position
) -> AsyncGenerator[bytes]:
    redaction = Redaction.of(principal, run.usage)
    async with context.streams.subscribe(run.id) as subscription:
        frames = context.streams.follow(
            principal.tenant_id, subscription, after, StreamEnd.REST, credential=principal.credential
        )
        try:
            async for wired in frames:
                if wired is None:
                    yield KEEPALIVE
                    continue
                redaction = redaction.after(wired.body)
                shown = redaction.event(wired.body)
                yield event_line(wired if shown is wired.body else replace(wired, body=dict(shown)))
        except TokenEnded as error:
            yield ended_line(error, run.id)
        finally:
            await frames.aclose()


def _get_run(context: ApiContext, principal: RequestPrincipal, written: str) -> RunSummary:
    """Return the caller's run with this id or external id. Raises NotFound."""
    with context.database.statements() as tx:
        found = run_queries.get_summary(tx, principal.tenant_id, find_run_id(tx, principal.tenant_id, written))
    if found is None:
        raise run_not_found(written)
    return found


def get_run_id(context: ApiContext, principal: RequestPrincipal, written: str) -> RunId:
    """Return the id of the caller's run with this id or external id. Raises NotFound."""
    with context.database.statements() as tx:
        return find_run_id(tx, principal.tenant_id, written)


def wait_seconds(request: Request) -> float:
    """Return the seconds that the client waits according to its `Prefer` header."""
    found = re.search(r"(?:^|[,;\s])wait\s*=\s*(\d{1,6})", request.headers.get("prefer", ""))
    return min(float(found[1]), MAX_WAIT) if found else 0.0
