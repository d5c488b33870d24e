"""Stopping what runs: RAGFlow's tasks, and everything of an agent (http-api 5, 8.2).

`task_id` is the one in events, a session's; a run's id will do as well. Cancelling what is unknown, over or somebody
else's succeeds and does nothing.
"""

from contextlib import suppress

from fastapi import APIRouter
from fastapi.responses import Response

from api.auth import Caller, Principal
from api.bodies import SmallBody, checked, described
from api.edge import Edge, TheEdge
from api.errors import ARGUMENT, Refused
from api.replies import id_of, success
from api.routes.agents import canvas_of
from api.schemas import Cancelling, TaskAction
from canvas.errors import NotFound
from store import conversations, external_ids

router = APIRouter(tags=["tasks"])


@router.post("/tasks/{task_id}/cancel")
def cancel_task(edge: TheEdge, principal: Caller, task_id: str) -> Response:
    """Stop a run, or everything of a session."""
    cancel(edge, principal, task_id)
    return success(True)


@router.patch("/tasks/{task_id}", openapi_extra=described(TaskAction))
def change_task(edge: TheEdge, principal: Caller, task_id: str, body: SmallBody) -> Response:
    """The same for `{"action": "stop"}`."""
    action: TaskAction = checked(TaskAction, body)
    if action.action != "stop":
        raise Refused(ARGUMENT, f'Unknown action {action.action!r}. Use "stop".')
    cancel(edge, principal, task_id)
    return success(True)


@router.post("/agents/{agent_id}/cancel", openapi_extra=described(Cancelling))
def cancel_agent(edge: TheEdge, principal: Caller, agent_id: str, body: SmallBody) -> Response:
    """Stop a run or a session of an agent, or all of its active runs where neither is named."""
    wanted: Cancelling = checked(Cancelling, body)
    with edge.database.transaction() as tx:
        canvas = canvas_of(tx, principal, agent_id)
        named = [text for text in (wanted.run_id, wanted.session_id) if text]
        active = conversations.open_runs(tx, principal.tenant_id, canvas.id) if not named else []
    for task in (*named, *(run_id.hex for run_id in active)):
        cancel(edge, principal, task)
    return success(True)


def cancel(edge: Edge, principal: Principal, task: str) -> None:
    """Stop a run, or everything of a session, also what is queued in it, if it is the caller's.

    `task` is the id of a session or a run, or the external id of a run.
    """
    session_id = id_of(task)
    if session_id is not None:
        with suppress(NotFound):
            edge.lifecycle.cancel_session(principal.tenant_id, session_id)
            return
    with edge.database.statements() as tx:
        run_id = external_ids.find_run(tx, principal.tenant_id, task)
    if run_id is not None:
        with suppress(NotFound):
            edge.lifecycle.cancel_run(principal.tenant_id, run_id)
