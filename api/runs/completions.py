"""Routes of chat completions: start or resume a run, then stream the turn or wait for its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.events.event_dialects import DIALECTS, RAGFLOW, StreamDialect
from api.http.errors import ARGUMENT, RequestRefused, UnsupportedParameter, strict_status
from api.http.replies import json_reply, result
from api.http.reply_styles import Style, set_style
from api.http.schemas import CompletionBody, RunBody, parse_flag
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import find_key
from api.requests.request_bodies import SmallBody, body_openapi, parse_body, with_query
from api.requests.scopes import NEEDS_RUN, OF_ONE_AGENT
from api.runs import openai_wire
from api.runs.run_copies import plan_from_failure
from api.runs.turn import (
    ActiveTurn,
    TurnResult,
    TurnToStart,
    begin,
    begin_stream,
    choose_turn,
    gather,
    id_headers,
    ignored_headers,
    stream_reply,
    with_callbacks,
    with_idempotency_key,
)
from canvas.errors import InvalidRequest
from canvas.events.run_events import RUN_FAILED
from scheduler.lifecycle import run_copies
from scheduler.lifecycle.run_copies import CopyOptions, ForkOptions
from scheduler.lifecycle.start_options import LATEST

router = APIRouter(tags=["chat"], dependencies=[NEEDS_RUN])

ROUTE = "completions"  # of idempotency keys, under either path
OPENAI_FLAG = "openai-compatible"


@router.post("/agents/chat/completions", openapi_extra=body_openapi(CompletionBody), dependencies=[OF_ONE_AGENT])
async def complete(
    request: Request,
    context: ApiContextDep,
    principal: ApiTokenCaller,
    body: SmallBody,
    events: str = "",
    release: str = "",
) -> Response:
    """Send a message to an agent. The answer is one object, or server-sent events with `stream`."""
    return await _complete(request, context, principal, with_query(body, events=events, release=release))


@router.post("/agents/{agent_id}/completions", openapi_extra=body_openapi(CompletionBody), deprecated=True)
async def complete_by_path(
    request: Request,
    context: ApiContextDep,
    principal: ApiTokenCaller,
    agent_id: str,
    body: SmallBody,
    events: str = "",
    release: str = "",
) -> Response:
    """Send a message to the agent in the path. The answer is one object, or server-sent events with `stream`."""
    updates = with_query(body, events=events, release=release)
    return await _complete(request, context, principal, {**updates, "agent_id": agent_id})


@router.post("/agents/{agent_id}/run", openapi_extra=body_openapi(RunBody))
async def run(
    request: Request,
    context: ApiContextDep,
    principal: ApiTokenCaller,
    agent_id: str,
    body: SmallBody,
    version: str = "",
    session_id: str = "",
    user_input: str = "",
    resume_from: str = "",
) -> Response:
    """Run the published version, the draft if there is none, or the `version` of this id (`draft`: the draft).

    `resume_from` is a run of this agent that has failed or was cancelled: a fork of it goes on from the failed point.
    What was finished stays finished. `confirm_unsafe` in the body names nodes whose side effects may happen again.
    """
    fields = _parse_run_body(request, body)
    if "text/event-stream" in request.headers.get("accept", ""):
        fields = fields.model_copy(update={"stream": True})
    query = RunQuery(version, session_id, user_input, resume_from)
    return await _run(request, context, principal, agent_id, body, fields, query, RAGFLOW)


@router.post("/agents/{agent_id}/stream", openapi_extra=body_openapi(RunBody))
async def stream(
    request: Request,
    context: ApiContextDep,
    principal: ApiTokenCaller,
    agent_id: str,
    body: SmallBody,
    version: str = "",
    session_id: str = "",
    user_input: str = "",
    resume_from: str = "",
    dialect: str = "port",
) -> Response:
    """Run as `/run` does, and stream the turn with named events: message, waiting_for_user, error, done.

    With `dialect=ragflow` the frames are those of the other routes.
    """
    if dialect not in DIALECTS:
        raise InvalidRequest(f"Unknown dialect {dialect[:64]!r}. Use port or ragflow.", field="dialect")
    fields = _parse_run_body(request, body)
    if body.get("stream") is not None and not fields.stream:
        raise InvalidRequest("This route streams. Leave out `stream`, or use /run.", field="stream")
    fields = fields.model_copy(update={"stream": True})
    query = RunQuery(version, session_id, user_input, resume_from)
    return await _run(request, context, principal, agent_id, body, fields, query, DIALECTS[dialect])


@dataclass(frozen=True, slots=True)
class RunQuery:
    """The query parameters of a run, which come before the fields of the body; "" for those that were not sent."""

    version: str
    session_id: str
    user_input: str
    resume_from: str


def _parse_run_body(request: Request, body: Mapping[str, Any]) -> RunBody:
    if parse_flag(body.get(OPENAI_FLAG)):
        set_style(request, Style.OPENAI)
        raise UnsupportedParameter(f"`{OPENAI_FLAG}` is for /agents/chat/completions.", field=OPENAI_FLAG)
    return parse_body(RunBody, body)


async def _run(
    request: Request,
    context: ApiContext,
    principal: RequestPrincipal,
    agent_id: str,
    body: Mapping[str, Any],
    fields: RunBody,
    query: RunQuery,
    dialect: StreamDialect,
) -> Response:
    """Answer with the turn of a run, or of a fork of `resume_from`."""
    if source := query.resume_from or fields.resume_from:
        return await _resume_from(request, context, principal, agent_id, source, fields, dialect)
    asked = next((text for text in (query.user_input, fields.user_input, fields.message) if text), None)
    updates: dict[str, Any] = {}
    if fields.query is None and fields.question is None and asked is not None:
        updates["query"] = asked
    if query.session_id or fields.session_id:
        updates["session_id"] = query.session_id or fields.session_id
    else:
        updates["version"] = query.version or fields.version or LATEST
    fields = fields.model_copy(update=updates)
    return await answer_turn(request, context, principal, agent_id, fields, body, ROUTE, dialect=dialect)


async def _resume_from(
    request: Request,
    context: ApiContext,
    principal: RequestPrincipal,
    agent_id: str,
    source: str,
    fields: RunBody,
    dialect: StreamDialect,
) -> Response:
    """Answer with the turn of a fork that goes on where its source has failed."""
    given = [name for name in ("query", "question", "inputs", "files", "session_id") if getattr(fields, name)]
    if given:
        raise InvalidRequest(
            f"`{given[0]}` and `resume_from` exclude each other: the run goes on with its own request.", field=given[0]
        )
    key = find_key(request, fields.idempotency_key)
    options = ForkOptions(CopyOptions(version=fields.version or run_copies.SAME, budget=fields.budget))
    start = await run_in_thread(
        lambda: plan_from_failure(context, principal, agent_id, source, options, fields.confirm_unsafe, key)
    )
    start = await run_in_thread(lambda: with_callbacks(context, principal.tenant_id, start, fields.callbacks))
    return await answer_started(request, context, principal, start, fields, dialect=dialect)


async def _complete(
    request: Request, context: ApiContext, principal: RequestPrincipal, body: Mapping[str, Any]
) -> Response:
    if parse_flag(body.get(OPENAI_FLAG)):
        set_style(request, Style.OPENAI)
        if not body.get("agent_id"):
            raise InvalidRequest("`agent_id` is required.", field="agent_id")
        return await openai_wire.answer(request, context, principal, str(body["agent_id"]), body)
    if body.get("messages") is not None:
        raise UnsupportedParameter(
            f'`messages` are read with `"{OPENAI_FLAG}": true`. Else use `query`.', field="messages"
        )
    fields = parse_body(CompletionBody, body)
    if not fields.agent_id:
        raise RequestRefused(ARGUMENT, "`agent_id` is required.")
    return await answer_turn(request, context, principal, fields.agent_id, fields, body, ROUTE)


async def answer_turn(
    request: Request,
    context: ApiContext,
    principal: RequestPrincipal,
    agent_id: str,
    fields: CompletionBody,
    body: Mapping[str, Any],
    route: str,
    *,
    with_tags: bool = True,
    dialect: StreamDialect = RAGFLOW,
) -> Response:
    """Start or resume a run and answer with its turn, streamed or as one object.

    `route` is the route of idempotency keys. `with_tags`: the text contains thoughts between think tags.
    """
    options = with_idempotency_key(request, fields.options())
    headers = fields.custom_header
    start = await run_in_thread(
        lambda: choose_turn(context, principal, agent_id, options, route, custom_header=headers)
    )
    ignored = ignored_headers([name for name in fields.without_effect if body.get(name) is not None])
    return await answer_started(
        request, context, principal, start, fields, ignored, with_tags=with_tags, dialect=dialect
    )


async def answer_started(
    request: Request,
    context: ApiContext,
    principal: RequestPrincipal,
    start: TurnToStart,
    fields: CompletionBody,
    ignored: Mapping[str, str] | None = None,
    *,
    with_tags: bool = True,
    dialect: StreamDialect = RAGFLOW,
) -> Response:
    """Start a turn and answer with it, streamed or as one object. `ignored`: headers that name ignored parameters."""
    accept = begin_stream if fields.stream else begin
    talk = await accept(context, principal.tenant_id, start, token_id=principal.token_id)
    talk.stops_with_client = fields.cancel_on_disconnect
    if fields.stream:
        compact = fields.events == "compact"
        return stream_reply(talk, compact=compact, return_trace=fields.return_trace, headers=ignored, dialect=dialect)
    turn_result = await gather(talk, request)
    reply = _whole(request, turn_result, talk, return_trace=fields.return_trace, with_tags=with_tags)
    reply.headers.update({**id_headers(talk), **(ignored or {})})
    return reply


def _whole(
    request: Request, turn_result: TurnResult, talk: ActiveTurn, *, return_trace: bool, with_tags: bool
) -> Response:
    """Return the reply with a whole turn as one object."""
    if not turn_result.last:
        return result({"session_id": talk.started.conversation_id.hex})
    if turn_result.name == RUN_FAILED:
        return json_reply(turn_result.last, strict_status(request, 500))
    return result(turn_result.body(return_trace=return_trace, with_tags=with_tags))
