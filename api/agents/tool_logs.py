"""Routes that list the tool calls of one turn."""

from contextlib import suppress
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.errors import no_access
from api.http.replies import parse_id, success
from api.http.reply_styles import ShareLinkRoute
from api.requests.auth import AnyTokenCaller, ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.scopes import NEEDS_READ
from canvas.errors import NotFound
from canvas.ids import CanvasId, SessionId
from store.agents import canvases, conversations
from store.db.transaction import Transaction
from store.runs import attempt_records, external_ids

router = APIRouter(tags=["logs"], dependencies=[NEEDS_READ])
shared_router = APIRouter(tags=["logs"], dependencies=[NEEDS_READ], route_class=ShareLinkRoute)


@router.get("/agents/{agent_id}/logs/{message_id}")
def tool_trace(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, message_id: str) -> Response:
    """List the tool calls of a turn, by the `message_id` of its events; `{}` if there are none.

    Instead of the agent, the path may name the session (the `task_id` of events) or the run.
    """
    return success(_trace(context, principal, agent_id, message_id))


@shared_router.get("/agentbots/{agent_id}/logs/{message_id}")
def shared_tool_trace(context: ApiContextDep, principal: AnyTokenCaller, agent_id: str, message_id: str) -> Response:
    """List the tool calls of a turn in a session that began by the share link of the caller."""
    return success(_trace(context, principal, agent_id, message_id))


def _trace(
    context: ApiContext, principal: RequestPrincipal, named: str, message: str
) -> list[dict[str, Any]] | dict[str, Any]:
    message_id = parse_id(message)
    token_id = principal.link.token_id if principal.link is not None else None
    with context.database.transaction() as tx:
        of = _resolve_id(tx, principal, named)
        if of is None:
            raise no_access()
        if message_id is None:
            return {}
        found = attempt_records.find_tool_calls(tx, principal.tenant_id, of, message_id, token_id=token_id)
    return found or {}


def _resolve_id(tx: Transaction, principal: RequestPrincipal, named: str) -> UUID | None:
    """Return the id of the caller's agent, session or run; for a run, its external id is accepted too."""
    written = parse_id(named)
    if principal.link is not None:
        is_open = written is not None and (
            principal.may_use(CanvasId(written))
            or conversations.is_of_link(tx, principal.tenant_id, written, principal.link.token_id)
        )
        return written if is_open else None
    if written is not None:
        with suppress(NotFound):
            return canvases.get(tx, principal.tenant_id, CanvasId(written)).id
        with suppress(NotFound):
            return conversations.get(tx, principal.tenant_id, SessionId(written)).id
    return external_ids.find_run(tx, principal.tenant_id, named)
