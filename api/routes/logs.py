"""What an agent's tools were asked and answered in one turn (http-api 5, engine 5.7)."""

from contextlib import suppress
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from api.auth import Anyone, Caller, Principal
from api.edge import Edge, TheEdge
from api.errors import no_access
from api.replies import id_of, success
from canvas.errors import NotFound
from store import canvases, conversations, external_ids, journal
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
    """The same for whoever has the agent's share link."""
    return success(_trace(edge, principal, agent_id, message_id))


def _trace(edge: Edge, principal: Principal, named: str, message: str) -> list[dict[str, Any]] | dict[str, Any]:
    message_id = id_of(message)
    with edge.database.transaction() as tx:
        of = _of(tx, principal.tenant_id, named)
        if of is None:
            raise no_access()
        found = journal.traces_of(tx, principal.tenant_id, of, message_id) if message_id is not None else []
    return found or {}


def _of(tx: Transaction, tenant_id: UUID, named: str) -> UUID | None:
    """The caller's agent, session or run of this id; of a run the external id will do as well."""
    written = id_of(named)
    if written is not None:
        for find in (canvases.get, conversations.get):
            with suppress(NotFound):
                find(tx, tenant_id, written)
                return written
    return external_ids.find_run(tx, tenant_id, named)
