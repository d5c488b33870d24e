"""Talk to an agent: starts or resumes a run, then streams the turn or waits for its end (http-api 4)."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api import openai_wire
from api.auth import Anyone, Caller, Principal
from api.bodies import SmallBody, checked, described
from api.edge import Edge, TheEdge, in_thread
from api.errors import ARGUMENT, Refused, strict_status
from api.replies import json_reply, result
from api.schemas import ChatCompletion, Completion, Running
from api.talk import Told, begin, chosen, gathered, keyed, streamed
from canvas.events import RUN_FAILED
from scheduler.requests import LATEST

router = APIRouter(tags=["chat"])

ROUTE = "completions"  # of idempotency keys, under either path


@router.post("/agents/chat/completions", openapi_extra=described(Completion))
async def complete(request: Request, edge: TheEdge, principal: Caller, body: SmallBody) -> Response:
    """Say something to an agent; the answer as one object, or as server-sent events with `stream`."""
    return await _complete(request, edge, principal, body)


@router.post("/agents/{agent_id}/completions", openapi_extra=described(Completion), deprecated=True)
async def complete_by_path(
    request: Request, edge: TheEdge, principal: Caller, agent_id: str, body: SmallBody
) -> Response:
    """The same, with the agent's id in the path."""
    return await _complete(request, edge, principal, {**body, "agent_id": agent_id})


@router.post("/openai/agents/{agent_id}/chat/completions", openapi_extra=described(ChatCompletion))
async def complete_as_openai(
    request: Request, edge: TheEdge, principal: Anyone, agent_id: str, body: SmallBody
) -> Response:
    """Say something to an agent in OpenAI's words."""
    return await openai_wire.answer(request, edge, principal, agent_id, checked(ChatCompletion, body))


@router.post("/agents_openai/{agent_id}/chat/completions", openapi_extra=described(ChatCompletion), deprecated=True)
async def complete_as_openai_by_old_path(
    request: Request, edge: TheEdge, principal: Caller, agent_id: str, body: SmallBody
) -> Response:
    """The same under its old path."""
    return await openai_wire.answer(request, edge, principal, agent_id, checked(ChatCompletion, body))


@router.post("/agents/{agent_id}/run", openapi_extra=described(Running))
async def run(
    request: Request,
    edge: TheEdge,
    principal: Caller,
    agent_id: str,
    body: SmallBody,
    version: str = "",
    session_id: str = "",
    user_input: str = "",
) -> Response:
    """Run what is published, the draft where nothing is, or the `version` of that id (`draft` for the draft)."""
    wanted: Running = checked(Running, body)
    said = next((text for text in (user_input, wanted.user_input, wanted.message) if text), None)
    given: dict[str, Any] = {"agent_id": agent_id}
    if wanted.query is None and wanted.question is None and said is not None:
        given["query"] = said
    if session_id or wanted.session_id:
        given["session_id"] = session_id or wanted.session_id
    else:
        given["version"] = version or wanted.version or LATEST
    if "text/event-stream" in request.headers.get("accept", ""):
        given["stream"] = True
    return await _complete(request, edge, principal, {**body, **given})


async def _complete(request: Request, edge: Edge, principal: Principal, body: dict[str, Any]) -> Response:
    wanted: Completion = checked(Completion, body)
    if not wanted.agent_id:
        raise Refused(ARGUMENT, "`agent_id` is required.")
    if wanted.openai_compatible:
        return await openai_wire.answer(request, edge, principal, wanted.agent_id, checked(ChatCompletion, body))
    options = keyed(request, wanted.options())
    start = await in_thread(
        lambda: chosen(edge, principal, wanted.agent_id, options, ROUTE, custom_header=wanted.custom_header)
    )
    talk = await begin(edge, principal.tenant_id, start, token_id=principal.token_id)
    talk.stops_with_client = wanted.cancel_on_disconnect
    if wanted.stream:
        compact = (wanted.events or request.query_params.get("events")) == "compact"
        return streamed(talk, compact=compact, return_trace=wanted.return_trace)
    told = await gathered(talk, request)
    return told_reply(request, told, talk.started.conversation_id.hex, return_trace=wanted.return_trace)


def told_reply(
    request: Request, told: Told, session_id: str, *, return_trace: bool, with_tags: bool = True
) -> Response:
    """A turn that has ended, as one object; `with_tags`: those around what was thought are in its text."""
    if not told.last:
        return result({"session_id": session_id})
    if told.name == RUN_FAILED:
        return json_reply(told.last, strict_status(request, 500))
    return result(told.body(return_trace=return_trace, with_tags=with_tags))
