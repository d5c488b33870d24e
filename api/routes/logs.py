"""What an agent's tools were asked and answered in one turn (http-api 5, engine 5.7)."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from api.auth import Anyone, Caller, Principal
from api.edge import Edge, TheEdge
from api.errors import no_access
from api.replies import id_of, success
from canvas.errors import NotFound
from store import canvases, conversations, journal, overview
from store.transaction import Transaction

router = APIRouter(tags=["logs"])


@router.get("/agents/{agent_id}/logs/{message_id}")
def tool_trace(edge: TheEdge, principal: Caller, agent_id: str, message_id: str) -> Response:
    """The tool calls of a turn, by the `message_id` of its events; `{}` if there are none.

    The agent's place may as well be taken by the session (the `task_id` of events) or the run.
    """
    return success(_trace(edge, principal, agent_id, message_id))


@router.get("/agentbots/{agent_id}/logs/{message_id}")
def shared_tool_trace(edge: TheEdge, principal: Anyone, agent_id: str, message_id: str) -> Response:
    """The same for whoever has the agent's share link: of turns in sessions that were begun by it."""
    return success(_trace(edge, principal, agent_id, message_id))


def _trace(edge: Edge, principal: Principal, named: str, message: str) -> list[dict[str, Any]] | dict[str, Any]:
    of, message_id = id_of(named), id_of(message)
    token_id = principal.link.token_id if principal.link is not None else None
    with edge.database.transaction() as tx:
        if of is None or not _is_callers(tx, principal, of):
            raise no_access()
        if message_id is None:
            return {}
        found = journal.traces_of(tx, principal.tenant_id, of, message_id, token_id=token_id)
    return found or {}


def _is_callers(tx: Transaction, principal: Principal, of: UUID) -> bool:
    """Whether an agent, a session or a run of the caller has this id."""
    if principal.link is not None:
        return principal.opens(of) or conversations.is_of_link(tx, principal.tenant_id, of, principal.link.token_id)
    return _is_tenants(tx, principal.tenant_id, of)


def _is_tenants(tx: Transaction, tenant_id: UUID, of: UUID) -> bool:
    for find in (canvases.get, conversations.get, overview.glance):
        try:
            if find(tx, tenant_id, of) is not None:
                return True
        except NotFound:
            continue
    return False
