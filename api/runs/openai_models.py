"""Routes for OpenAI clients below one base URL: a tenant's agents as models, and chats with them.

The base URL is `/api/v1/openai`, where `model` names the agent, or `/api/v1/openai/agents/{id}` for a single agent.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.agents.agents import get_caller_canvas
from api.http.errors import no_access
from api.http.replies import json_reply, parse_canvas_id
from api.http.reply_styles import OpenAIRoute
from api.requests.auth import AnyTokenCaller, ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.request_bodies import ChatBody, body_openapi
from api.requests.scopes import NEEDS_READ, NEEDS_RUN, OF_ONE_AGENT
from api.runs import openai_wire
from api.runs.openai_schemas import ChatCompletionBody
from store.agents import canvas_list
from store.agents.canvases import StoredCanvas

router = APIRouter(tags=["OpenAI"], route_class=OpenAIRoute, dependencies=[NEEDS_RUN])

MAX_MODELS = 1000


@router.get("/openai/models", dependencies=[NEEDS_READ, OF_ONE_AGENT])
def list_models(context: ApiContextDep, principal: AnyTokenCaller) -> Response:
    """List the caller's agents as OpenAI models, by id. `has_more` if there are more than 1000.

    A share link and a token of one agent list their agent only.
    """
    only = principal.link.canvas_id if principal.link is not None else principal.agent
    ids = [only] if only is not None else []
    agents_filter = canvas_list.CanvasFilter(categories=["agent_canvas"], ids=ids)
    with context.database.statements() as tx:
        found, total = canvas_list.page(tx, principal.tenant_id, agents_filter, limit=MAX_MODELS)
    return _list([_model(each) for each in found], has_more=total > len(found))


@router.get("/openai/models/{model}", dependencies=[NEEDS_READ, OF_ONE_AGENT])
def get_model(context: ApiContextDep, principal: AnyTokenCaller, model: str) -> Response:
    """Get one of the caller's agents as a model."""
    return json_reply(_model(_get_agent(context, principal, model)))


@router.post(
    "/openai/chat/completions",
    operation_id="complete_chat",
    openapi_extra=body_openapi(ChatCompletionBody),
    dependencies=[OF_ONE_AGENT],
)
async def complete(request: Request, context: ApiContextDep, principal: AnyTokenCaller, body: ChatBody) -> Response:
    """Send a message to the agent whose id is `model`, in OpenAI's format."""
    return await openai_wire.answer(request, context, principal, None, body)


@router.get("/openai/agents/{agent_id}/models", dependencies=[NEEDS_READ])
def list_models_of_agent(context: ApiContextDep, principal: AnyTokenCaller, agent_id: str) -> Response:
    """List the agent of the path as the only model."""
    return _list([_model(_get_agent(context, principal, agent_id))], has_more=False)


@router.get("/openai/agents/{agent_id}/models/{model}", dependencies=[NEEDS_READ])
def get_model_of_agent(context: ApiContextDep, principal: AnyTokenCaller, agent_id: str, model: str) -> Response:
    """Get the agent of the path as a model."""
    agent = _get_agent(context, principal, agent_id)
    if parse_canvas_id(model) != agent.id:
        raise no_access()
    return json_reply(_model(agent))


@router.post("/openai/agents/{agent_id}/chat/completions", openapi_extra=body_openapi(ChatCompletionBody))
async def complete_with_agent(
    request: Request, context: ApiContextDep, principal: AnyTokenCaller, agent_id: str, body: ChatBody
) -> Response:
    """Send a message to the agent of the path in OpenAI's format; `model` may have any value."""
    return await openai_wire.answer(request, context, principal, agent_id, body)


@router.post(
    "/agents_openai/{agent_id}/chat/completions", openapi_extra=body_openapi(ChatCompletionBody), deprecated=True
)
async def complete_by_old_path(
    request: Request, context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, body: ChatBody
) -> Response:
    """Send a message to the agent of the path in OpenAI's format; the former path of this route."""
    return await openai_wire.answer(request, context, principal, agent_id, body)


def _get_agent(context: ApiContext, principal: RequestPrincipal, written: str) -> StoredCanvas:
    agent_id = parse_canvas_id(written)
    if agent_id is not None and not principal.may_use(agent_id):
        raise no_access()
    with context.database.statements() as tx:
        return get_caller_canvas(tx, principal, written)


def _list(models: list[dict[str, Any]], *, has_more: bool) -> Response:
    return json_reply({"object": "list", "data": models, "has_more": has_more})


def _model(agent: StoredCanvas) -> dict[str, Any]:
    created = int(agent.created_at.timestamp())
    return {"id": agent.id.hex, "object": "model", "created": created, "owned_by": "easel", "name": agent.title}
