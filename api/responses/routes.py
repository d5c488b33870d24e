"""Routes of responses: create one, get it, follow it again, and cancel it. Below the base URLs of OpenAI clients."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.http.errors import RequestedRun, no_access, set_requested_run
from api.http.replies import json_reply, parse_canvas_id
from api.http.reply_styles import OpenAIRoute
from api.http.schemas import parse_flag
from api.requests.auth import AnyTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.request_bodies import ChatBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_READ, NEEDS_RUN, OF_ONE_AGENT
from api.responses import wire
from api.responses.schemas import (
    ResponseBody,
    find_ignored_parameters,
    parse_messages,
    parse_question,
    refuse_unsupported_parameters,
)
from api.responses.stream import response_lines
from api.responses.wire import CONVERSATION, ResponseHead, parse_response_id, response_id, response_json
from api.runs import openai_wire
from api.runs.turn import (
    ActiveTurn,
    TurnResult,
    TurnStreamResponse,
    begin,
    begin_stream,
    follow,
    gather,
    id_headers,
    ignored_headers,
)
from api.runs.turn_loading import as_started, load_turn
from canvas.errors import InvalidRequest, NotFound
from canvas.ids import CanvasId, RunId
from canvas.state.run_state import RunStatus
from scheduler.lifecycle.accept import Start
from store.agents import conversations
from store.runs import run_queries
from store.runs.run_queries import RunSummary

router = APIRouter(tags=["OpenAI"], dependencies=[NEEDS_RUN], route_class=OpenAIRoute)

ROUTE = "responses"  # of idempotency keys, under every path


@router.post("/openai/responses", openapi_extra=body_openapi(ResponseBody), dependencies=[OF_ONE_AGENT])
async def create_response(
    request: Request, context: ApiContextDep, principal: AnyTokenCaller, body: ChatBody
) -> Response:
    """Send a message to the agent whose id is `model`, in the format of OpenAI's Responses API."""
    return await _create(request, context, principal, None, body)


@router.get("/openai/responses/{response_id}", dependencies=[NEEDS_READ, OF_ONE_AGENT])
async def get_response(
    request: Request, context: ApiContextDep, principal: AnyTokenCaller, response_id: str, stream: str = ""
) -> Response:
    """Get a response, whose id is `resp_` and the id of its run; with `stream=true` its events from the first one."""
    return await _get(request, context, principal, None, response_id, stream)


@router.post("/openai/responses/{response_id}/cancel", dependencies=[OF_ONE_AGENT])
async def cancel_response(context: ApiContextDep, principal: AnyTokenCaller, response_id: str) -> Response:
    """Cancel the run of a response. A response that has ended does not change."""
    return await _cancel(context, principal, None, response_id)


@router.post("/openai/agents/{agent_id}/responses", openapi_extra=body_openapi(ResponseBody))
async def create_response_of_agent(
    request: Request, context: ApiContextDep, principal: AnyTokenCaller, agent_id: str, body: ChatBody
) -> Response:
    """Send a message to the agent of the path; `model` may have any value."""
    return await _create(request, context, principal, agent_id, body)


@router.get("/openai/agents/{agent_id}/responses/{response_id}", dependencies=[NEEDS_READ])
async def get_response_of_agent(
    request: Request,
    context: ApiContextDep,
    principal: AnyTokenCaller,
    agent_id: str,
    response_id: str,
    stream: str = "",
) -> Response:
    """Get a response of the agent of the path."""
    return await _get(request, context, principal, agent_id, response_id, stream)


@router.post("/openai/agents/{agent_id}/responses/{response_id}/cancel")
async def cancel_response_of_agent(
    context: ApiContextDep, principal: AnyTokenCaller, agent_id: str, response_id: str
) -> Response:
    """Cancel the run of a response of the agent of the path."""
    return await _cancel(context, principal, agent_id, response_id)


# -- creating ---------------------------------------------------------------------------------------------------------
async def _create(
    request: Request, context: ApiContext, principal: RequestPrincipal, agent_id: str | None, body: Mapping[str, Any]
) -> Response:
    refuse_unsupported_parameters(body)
    fields = parse_body(ResponseBody, body)
    agent = openai_wire.require_agent(agent_id, fields)
    previous = await run_in_thread(lambda: _find_previous(context, principal, agent, fields))
    more = _options(fields, previous)
    messages = parse_messages(fields)
    question = parse_question(fields, messages, continues="session_id" in more)
    start = await openai_wire.choose(request, context, principal, agent, fields, question, ROUTE, more)
    if isinstance(start, Start) and previous is not None:
        await run_in_thread(lambda: _check_latest(context, principal, previous))
    is_followed = fields.stream or not fields.background
    accept = begin_stream if fields.stream else begin
    talk = await accept(context, principal.tenant_id, start, token_id=principal.token_id)
    openai_wire.note_accepted(request, talk, fields)
    head = ResponseHead.of_turn(
        talk, agent, fields.user_id or fields.user or principal.user_id, {**more, "metadata": fields.metadata}
    )
    ignored = ignored_headers(find_ignored_parameters(body, messages))
    if fields.stream:
        return TurnStreamResponse(talk, _lines(context, principal, talk, head), ignored)
    if is_followed:
        turn_result = await gather(talk, request)
    else:
        turn_result = TurnResult()
        await talk.close()
    if turn_result.last:
        status = wire.status_of_turn(turn_result)
        response = response_json(head, turn_result, status, wire.output_items(turn_result, status))
    else:  # in the background, or its events have been deleted
        response = await _load(context, principal, None, talk.started.run_id, head)
    return json_reply(response, headers={**id_headers(talk), **ignored})


def _lines(context: ApiContext, principal: RequestPrincipal, talk: ActiveTurn, head: ResponseHead) -> Any:
    return response_lines(talk, head, lambda: _load(context, principal, None, head.run_id, head))


def _options(fields: ResponseBody, previous: RunSummary | None) -> dict[str, Any]:
    """Return the options of the start that only responses have. Raises InvalidRequest."""
    if fields.background and fields.cancel_on_disconnect:
        message = "`background` and `cancel_on_disconnect` exclude each other: a client that polls is not connected."
        raise InvalidRequest(message, field="cancel_on_disconnect")
    conversation = fields.conversation
    named = conversation.get("id") if isinstance(conversation, dict) else conversation
    if conversation is not None and not isinstance(named, str):
        raise InvalidRequest('`conversation` must be an id, or {"id": …}.', field="conversation")
    given = [
        name
        for name, value in (
            ("previous_response_id", previous),
            ("conversation", named),
            ("session_id", fields.session_id),
        )
        if value
    ]
    if len(given) > 1:
        message = f"`{given[0]}` and `{given[1]}` name one session in two ways. Use one of them."
        raise InvalidRequest(message, field=given[1])
    session = previous.conversation_id.hex if previous is not None else fields.session_id
    if named:
        session = named.removeprefix(CONVERSATION)
    options = {
        "session_id": session,
        "previous_response_id": fields.previous_response_id,
        "background": fields.background,
    }
    return {name: value for name, value in options.items() if value}


def _find_previous(
    context: ApiContext, principal: RequestPrincipal, agent: str, fields: ResponseBody
) -> RunSummary | None:
    """Return the run of `previous_response_id`. Raises RequestRefused and InvalidRequest."""
    if fields.previous_response_id is None:
        return None
    canvas_id = _parse_agent(principal, agent)
    run_id = parse_response_id(fields.previous_response_id)
    run = _find_run(context, principal, canvas_id, run_id) if run_id is not None else None
    if run is None:
        raise NotFound(f"There is no response {fields.previous_response_id[:64]}.", field="previous_response_id")
    return run


def _check_latest(context: ApiContext, principal: RequestPrincipal, previous: RunSummary) -> None:
    """Raise InvalidRequest if the session went on after this run: a session is one line of turns, without branches."""
    with context.database.statements() as tx:
        latest = conversations.get(tx, principal.tenant_id, previous.conversation_id).last_run
    if not RunStatus(previous.status).is_over or latest is None or latest == previous.id:
        return
    raise InvalidRequest(
        f"The session went on after {response_id(previous.id)}: its latest response is {response_id(latest)}. "
        "Continue that one, or begin a session with the earlier messages in `input`.",
        field="previous_response_id",
    )


# -- later ------------------------------------------------------------------------------------------------------------
async def _get(
    request: Request,
    context: ApiContext,
    principal: RequestPrincipal,
    agent_id: str | None,
    written: str,
    stream: str,
) -> Response:
    canvas_id = _parse_agent(principal, agent_id) if agent_id is not None else principal.agent
    run = await run_in_thread(lambda: _require_run(context, principal, canvas_id, written))
    head = ResponseHead.of_run(run)
    if not parse_flag(stream):
        return json_reply(await _load(context, principal, canvas_id, run.id, None))
    close = context.rate_limits.open_stream(principal.token_id)
    try:
        talk = await follow(context, principal.tenant_id, run.id, lambda: as_started(run), token_id=principal.token_id)
    except BaseException:
        close()
        raise
    talk.stack.callback(close)
    set_requested_run(request, RequestedRun(run.id.hex, run.conversation_id.hex, is_accepted=True))
    return TurnStreamResponse(talk, _lines(context, principal, talk, head))


async def _cancel(context: ApiContext, principal: RequestPrincipal, agent_id: str | None, written: str) -> Response:
    canvas_id = _parse_agent(principal, agent_id) if agent_id is not None else principal.agent
    run = await run_in_thread(lambda: _require_run(context, principal, canvas_id, written))
    await run_in_thread(lambda: context.lifecycle.cancel_run(principal.tenant_id, run.id))
    return json_reply(await _load(context, principal, canvas_id, run.id, None))


async def _load(
    context: ApiContext,
    principal: RequestPrincipal,
    canvas_id: CanvasId | None,
    run_id: RunId,
    head: ResponseHead | None,
) -> Mapping[str, Any]:
    """Return the response of the present turn of a run, read from its rows."""
    run = await run_in_thread(lambda: _find_run(context, principal, canvas_id, run_id))
    if run is None:
        raise _unknown(response_id(run_id))
    loaded = await load_turn(context, principal.tenant_id, run)
    status = wire.status_of_run(loaded.run)
    output = wire.output_items(loaded.turn_result, status)
    head = head or ResponseHead.of_run(loaded.run)
    return response_json(head, loaded.turn_result, status, output, loaded.run.error)


# -- what a caller may see --------------------------------------------------------------------------------------------
def _parse_agent(principal: RequestPrincipal, written: str) -> CanvasId:
    """Return the id of an agent that the caller may use. Raises RequestRefused."""
    canvas_id = parse_canvas_id(written)
    if canvas_id is None or not principal.may_use(canvas_id):
        raise no_access()
    return canvas_id


def _require_run(
    context: ApiContext, principal: RequestPrincipal, canvas_id: CanvasId | None, written: str
) -> RunSummary:
    run_id = parse_response_id(written)
    run = _find_run(context, principal, canvas_id, run_id) if run_id is not None else None
    if run is None:
        raise _unknown(written)
    return run


def _find_run(
    context: ApiContext, principal: RequestPrincipal, canvas_id: CanvasId | None, run_id: RunId
) -> RunSummary | None:
    """Return a run of the caller, and of this agent if one is named; a share link has the runs of its sessions."""
    link = principal.link
    with context.database.statements() as tx:
        run = run_queries.get_summary(tx, principal.tenant_id, run_id)
        if run is None or run.status == RunStatus.REFUSED or canvas_id not in (None, run.canvas_id):
            return None
        if link is not None and not conversations.is_of_link(tx, principal.tenant_id, run.id, link.token_id):
            return None
    return run


def _unknown(written: str) -> NotFound:
    return NotFound(f"There is no response {written[:64]}. Its id is `resp_` and the id of its run.")
