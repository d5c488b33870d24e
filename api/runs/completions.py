"""Routes of chat completions: start or resume a run, then stream the turn or wait for its end."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.dependencies import ApiContext, ApiContextDep, in_thread
from api.http.auth import Caller, Principal
from api.http.errors import ARGUMENT, Refused, UnsupportedParameter, strict_status
from api.http.replies import json_reply, result
from api.http.reply_styles import Style, speak
from api.http.request_bodies import SmallBody, checked, described, with_query
from api.http.schemas import Completion, Running, truthy
from api.runs import openai_wire
from api.runs.turn import Talk, Told, begin, chosen, gathered, ids_of, ignored_headers, keyed, streamed
from canvas.errors import InvalidRequest
from canvas.events.run_events import RUN_FAILED
from scheduler.lifecycle.start_options import LATEST

router = APIRouter(tags=["chat"])

ROUTE = "completions"  # of idempotency keys, under either path
OPENAI_FLAG = "openai-compatible"


@router.post("/agents/chat/completions", openapi_extra=described(Completion))
async def complete(
    request: Request, context: ApiContextDep, principal: Caller, body: SmallBody, events: str = "", release: str = ""
) -> Response:
    """Send a message to an agent. The answer is one object, or server-sent events with `stream`."""
    return await _complete(request, context, principal, with_query(body, events=events, release=release))


@router.post("/agents/{agent_id}/completions", openapi_extra=described(Completion), deprecated=True)
async def complete_by_path(
    request: Request,
    context: ApiContextDep,
    principal: Caller,
    agent_id: str,
    body: SmallBody,
    events: str = "",
    release: str = "",
) -> Response:
    """Send a message to the agent in the path. The answer is one object, or server-sent events with `stream`."""
    given = with_query(body, events=events, release=release)
    return await _complete(request, context, principal, {**given, "agent_id": agent_id})


@router.post("/agents/{agent_id}/run", openapi_extra=described(Running))
async def run(
    request: Request,
    context: ApiContextDep,
    principal: Caller,
    agent_id: str,
    body: SmallBody,
    version: str = "",
    session_id: str = "",
    user_input: str = "",
) -> Response:
    """Run the published version, the draft if there is none, or the `version` of this id (`draft`: the draft)."""
    if truthy(body.get(OPENAI_FLAG)):
        speak(request, Style.OPENAI)
        raise UnsupportedParameter(f"`{OPENAI_FLAG}` is for /agents/chat/completions.", field=OPENAI_FLAG)
    wanted = checked(Running, body)
    said = next((text for text in (user_input, wanted.user_input, wanted.message) if text), None)
    given: dict[str, Any] = {}
    if wanted.query is None and wanted.question is None and said is not None:
        given["query"] = said
    if session_id or wanted.session_id:
        given["session_id"] = session_id or wanted.session_id
    else:
        given["version"] = version or wanted.version or LATEST
    if "text/event-stream" in request.headers.get("accept", ""):
        given["stream"] = True
    return await answer_turn(request, context, principal, agent_id, wanted.model_copy(update=given), body, ROUTE)


async def _complete(request: Request, context: ApiContext, principal: Principal, body: Mapping[str, Any]) -> Response:
    if truthy(body.get(OPENAI_FLAG)):
        speak(request, Style.OPENAI)
        if not body.get("agent_id"):
            raise InvalidRequest("`agent_id` is required.", field="agent_id")
        return await openai_wire.answer(request, context, principal, str(body["agent_id"]), body)
    if body.get("messages") is not None:
        raise UnsupportedParameter(
            f'`messages` are read with `"{OPENAI_FLAG}": true`. Else use `query`.', field="messages"
        )
    wanted = checked(Completion, body)
    if not wanted.agent_id:
        raise Refused(ARGUMENT, "`agent_id` is required.")
    return await answer_turn(request, context, principal, wanted.agent_id, wanted, body, ROUTE)


async def answer_turn(
    request: Request,
    context: ApiContext,
    principal: Principal,
    agent_id: str,
    wanted: Completion,
    body: Mapping[str, Any],
    route: str,
    *,
    with_tags: bool = True,
) -> Response:
    """Start or resume a run and answer with its turn, streamed or as one object.

    `route` is the route of idempotency keys. `with_tags`: the text contains thoughts between think tags.
    """
    options = keyed(request, wanted.options())
    headers = wanted.custom_header
    start = await in_thread(lambda: chosen(context, principal, agent_id, options, route, custom_header=headers))
    talk = await begin(context, principal.tenant_id, start, token_id=principal.token_id)
    talk.stops_with_client = wanted.cancel_on_disconnect
    ignored = ignored_headers([name for name in wanted.without_effect if body.get(name) is not None])
    if wanted.stream:
        compact = wanted.events == "compact"
        return streamed(talk, compact=compact, return_trace=wanted.return_trace, headers=ignored)
    turn_result = await gathered(talk, request)
    reply = _whole(request, turn_result, talk, return_trace=wanted.return_trace, with_tags=with_tags)
    reply.headers.update({**ids_of(talk), **ignored})
    return reply


def _whole(request: Request, turn_result: Told, talk: Talk, *, return_trace: bool, with_tags: bool) -> Response:
    """Return the reply with a whole turn as one object."""
    if not turn_result.last:
        return result({"session_id": talk.started.conversation_id.hex})
    if turn_result.name == RUN_FAILED:
        return json_reply(turn_result.last, strict_status(request, 500))
    return result(turn_result.body(return_trace=return_trace, with_tags=with_tags))
