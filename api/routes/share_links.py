"""Agents for whoever has their share link: what they ask before a chat, and the chat (http-api 5).

A share link sees the published version of its agent; an API token sees the draft, as on the other routes.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.auth import Anyone, Principal
from api.bodies import SmallBody, checked, described
from api.edge import Edge, TheEdge, in_thread
from api.errors import absent
from api.findings import parsed
from api.replies import id_of, result
from api.routes.completions import told_reply
from api.schemas import Completion, Flag
from api.talk import begin, chosen, gathered, keyed, streamed
from canvas.errors import NotFound
from components import fields
from components.begin import MODES
from store import canvases, versions
from store.canvases import StoredCanvas

router = APIRouter(tags=["share links"])

ROUTE = "agentbots/completions"  # of idempotency keys


class SharedCompletion(Completion):
    """A turn; it is streamed unless the body says otherwise."""

    stream: Flag = True


@router.get("/agentbots/{agent_id}/inputs")
def show_inputs(edge: TheEdge, principal: Anyone, agent_id: str) -> Response:
    """What an agent is called, what it says first, and the form of its Begin."""
    stored = _stored(edge, principal, agent_id)
    params = _begin(edge, principal, stored)
    return result(
        {
            "title": stored.title,
            "avatar": stored.avatar,
            "inputs": fields.schema(params.get("inputs")),
            "prologue": params.get("prologue", ""),
            "mode": params.get("mode") or MODES[0],
        }
    )


@router.post("/agentbots/{agent_id}/completions", openapi_extra=described(SharedCompletion))
async def complete(request: Request, edge: TheEdge, principal: Anyone, agent_id: str, body: SmallBody) -> Response:
    """Say something to an agent; server-sent events, or one object with `stream: false`."""
    wanted = checked(SharedCompletion, body)
    options = keyed(request, wanted.options())
    headers = wanted.custom_header
    await in_thread(lambda: _stored(edge, principal, agent_id))
    start = await in_thread(lambda: chosen(edge, principal, agent_id, options, ROUTE, custom_header=headers))
    talk = await begin(edge, principal.tenant_id, start, token_id=principal.token_id)
    talk.stops_with_client = wanted.cancel_on_disconnect
    if wanted.stream:
        return streamed(talk, compact=wanted.events == "compact", return_trace=wanted.return_trace)
    told = await gathered(talk, request)
    session_id = talk.started.conversation_id.hex
    return told_reply(request, told, session_id, return_trace=wanted.return_trace, with_tags=False)


def _stored(edge: Edge, principal: Principal, agent_id: str) -> StoredCanvas:
    """The agent. Raises Refused; missing and foreign ones answer alike."""
    unknown = absent(f"Can't find agent by ID: {agent_id[:64]}")
    canvas_id = id_of(agent_id)
    if canvas_id is None or not principal.opens(canvas_id):
        raise unknown
    try:
        with edge.database.statements() as tx:
            return canvases.get(tx, principal.tenant_id, canvas_id)
    except NotFound:
        raise unknown from None


def _begin(edge: Edge, principal: Principal, stored: StoredCanvas) -> Mapping[str, Any]:
    """The parameters of the Begin that the caller would start. Raises NotFound where nothing is published."""
    if principal.link is None:
        document = parsed(stored.draft, edge.max_canvas_bytes)
    else:
        with edge.database.transaction() as tx:
            published = versions.latest_released(tx, principal.tenant_id, stored.id)
            document = edge.versions.get(tx, published.id).document
    return next((entry.params for entry in document.entries.values() if entry.component.lower() == "begin"), {})
