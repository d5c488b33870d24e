"""Routes of share links: the form of an agent before a chat, and the chat.

A share link uses the published version of its agent. An API token uses the draft, as on the other routes.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.agents.session_wire import prologue_of
from api.events.event_dialects import SHARE_LINK
from api.findings import parse_document
from api.http.errors import UnsupportedParameter, not_found
from api.http.replies import parse_canvas_id, result
from api.http.reply_styles import ShareLinkRoute, Style, set_style
from api.http.schemas import CompletionBody, Flag, parse_flag
from api.requests.auth import AnyTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.request_bodies import SmallBody, body_openapi, parse_body, with_query
from api.requests.scopes import NEEDS_READ, NEEDS_RUN
from api.runs.completions import OPENAI_FLAG, answer_turn
from canvas.document.document import Document
from canvas.errors import NotFound
from components.nodes.flow import form_fields
from components.nodes.flow.begin import MODES
from store.agents import canvases, versions
from store.agents.canvases import StoredCanvas

router = APIRouter(tags=["share links"], dependencies=[NEEDS_READ], route_class=ShareLinkRoute)

ROUTE = "agentbots/completions"  # of idempotency keys


class SharedCompletionBody(CompletionBody):
    """A turn; it is streamed unless `stream` is false."""

    stream: Flag = True


@router.get("/agentbots/{agent_id}/inputs")
def show_inputs(context: ApiContextDep, principal: AnyTokenCaller, agent_id: str) -> Response:
    """Get an agent's title, its opening text, and the form of its Begin."""
    stored = _get_agent(context, principal, agent_id)
    document = _get_document(context, principal, stored)
    params = document.begin_params
    return result(
        {
            "title": stored.title,
            "avatar": stored.avatar,
            "inputs": form_fields.fields_of(params.get("inputs")),
            "prologue": prologue_of(document),
            "mode": params.get("mode") or MODES[0],
        }
    )


@router.post(
    "/agentbots/{agent_id}/completions",
    operation_id="complete_shared",
    openapi_extra=body_openapi(SharedCompletionBody),
    dependencies=[NEEDS_RUN],
)
async def complete(
    request: Request,
    context: ApiContextDep,
    principal: AnyTokenCaller,
    agent_id: str,
    body: SmallBody,
    events: str = "",
    release: str = "",
) -> Response:
    """Send a message to an agent. The answer is server-sent events, or one object with `stream: false`."""
    if parse_flag(body.get(OPENAI_FLAG)):
        set_style(request, Style.OPENAI)
        raise UnsupportedParameter(
            f"`{OPENAI_FLAG}` is not for share links. Use /openai/chat/completions.", field=OPENAI_FLAG
        )
    body = with_query(body, events=events, release=release)
    fields = parse_body(SharedCompletionBody, body)
    await run_in_thread(lambda: _get_agent(context, principal, agent_id))
    return await answer_turn(
        request, context, principal, agent_id, fields, body, ROUTE, with_tags=False, dialect=SHARE_LINK
    )


def _get_agent(context: ApiContext, principal: RequestPrincipal, agent_id: str) -> StoredCanvas:
    """Return the agent. Raises RequestRefused, the same for a missing agent and for one of another tenant."""
    unknown = not_found(f"Can't find agent by ID: {agent_id[:64]}")
    canvas_id = parse_canvas_id(agent_id)
    if canvas_id is None or not principal.may_use(canvas_id):
        raise unknown
    try:
        with context.database.statements() as tx:
            return canvases.get(tx, principal.tenant_id, canvas_id)
    except NotFound:
        raise unknown from None


def _get_document(context: ApiContext, principal: RequestPrincipal, stored: StoredCanvas) -> Document:
    """Return the document that the caller would run. Raises NotFound if no version is published."""
    if principal.link is None:
        return parse_document(stored.draft, context.max_canvas_bytes)
    with context.database.transaction() as tx:
        published = versions.lock_latest_released(tx, principal.tenant_id, stored.id)
        return context.versions.get(tx, published.id).document
