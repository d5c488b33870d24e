"""The route that follows a run live: its events, text, counts and rows as server-sent events until it is over."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.events.counted_stream import CountedStream
from api.events.live_frames import ByeReason
from api.events.live_stream import CallerCheck, LiveRequest
from api.http.errors import CONNECTION, DATA, Failure, failure_reply
from api.http.reply_styles import OwnRoute
from api.pages import page_files
from api.requests.auth import RequestPrincipal, RunViewer, find_end
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.scopes import NEEDS_READ
from api.runs.run_lookup import find_run_id, run_not_found
from api.runs.run_wire import run_json
from api.visitors.live_redaction import redact_frames
from api.visitors.redaction import Redaction
from canvas.events.stream_sequencer import Position
from canvas.ids import RunId
from scheduler.views.json_values import milliseconds
from store.db.transaction import USE_SNAPSHOT
from store.monitoring import server_info
from store.runs import run_queries

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_READ])

RETRY_AFTER = 10  # seconds
EVENT_STREAM = "text/event-stream"
_OPENAPI: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Frames `hello`, `state`, `steps`, `event`, `delta`, `reset`, `call`, `bye`: docs/http.md, "
        '"Watching a run live"',
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    },
    406: {"description": f"The request does not accept {EVENT_STREAM}"},
    503: {"description": "The process has too many live streams (EASEL_LIVE_STREAMS)"},
}


@router.get("/runs/{run_id}/live", response_class=Response, responses=_OPENAPI)
async def follow_run(
    request: Request,
    context: ApiContextDep,
    principal: RunViewer,
    run_id: str,
    after: str = "",
    rev: Annotated[int, Query(ge=0, lt=2**31)] = 0,
) -> Response:
    """Follow a run live until it is over, with `Accept: text/event-stream`.

    `after` (or `Last-Event-ID`) is the id of the last frame that the client has, `rev` the revision whose rows it has.
    """
    position = Position.parse(request.headers.get("last-event-id") or after or "0")
    found_id, status, shown = await run_in_thread(lambda: _load_run(context, principal, run_id))
    if EVENT_STREAM not in request.headers.get("accept", ""):
        message = f"A live stream needs the header `Accept: {EVENT_STREAM}`."
        return failure_reply(request, Failure(406, "not_acceptable", message, DATA, {"field": "Accept"}))
    close = context.rate_limits.open_stream(principal.stream_owner)
    live = context.live
    if live.is_closing or not live.admit():
        close()
        message = f"This process has too many live streams. Try again in {RETRY_AFTER} s, or poll the run."
        headers = {"Retry-After": str(RETRY_AFTER)}
        return failure_reply(request, Failure(503, "too_many_streams", message, CONNECTION, headers=headers))
    hello = {
        "now": shown["now"],
        "build": page_files.find_build() if page_files.pages_are_served(is_on=context.sign_ins.is_on) else None,
        "heartbeat": live.keepalive_interval,
        "run": shown,
        "position": str(position),
        "revision": shown.get("revision", 0),
    }
    check = caller_check(context, principal)
    frames = live.follow(LiveRequest(principal.tenant_id, found_id, status, position, rev, hello, check))
    redaction = Redaction.of(principal)
    if redaction.is_visitor:
        frames = redact_frames(frames, redaction, found_id, live.visitor_frames)

    def release() -> None:
        live.release()
        close()

    return CountedStream(frames, release)


def caller_check(context: ApiContext, principal: RequestPrincipal) -> CallerCheck:
    """Return the check of a caller, who may watch until the token or the sign-in has ended, or the share is revoked."""

    async def check() -> ByeReason | None:
        reason = await find_end(context, principal)
        return ByeReason(reason) if reason is not None else None

    return check


def _load_run(context: ApiContext, principal: RequestPrincipal, written: str) -> tuple[RunId, str, Mapping[str, Any]]:
    """Return the id and the status of the caller's run, and what its page shows at its head. Raises NotFound."""
    with context.database.transaction() as tx:
        tx.execute(USE_SNAPSHOT)
        run = run_queries.get_summary(tx, principal.tenant_id, find_run_id(tx, principal.tenant_id, written))
        if run is None:
            raise run_not_found(written)
        now = milliseconds(server_info.read_clock(tx))
        return run.id, run.status, {"now": now, **run_json(tx, context, principal, run, has_activations=False)}
