"""Stopping what runs: RAGFlow's tasks, and everything of an agent (http-api 5, 8.2).

`task_id` is the one in events, a session's; a run's id will do as well. Cancelling what is unknown, over or somebody
else's succeeds and does nothing.
"""

from fastapi import APIRouter
from fastapi.responses import Response

from api.agents.agents import canvas_of
from api.dependencies import TheEdge
from api.http.auth import Caller
from api.http.errors import ARGUMENT, Refused
from api.http.replies import success
from api.http.request_bodies import SmallBody, checked, described
from api.http.schemas import Cancelling, TaskAction
from api.runs.cancel import cancel, cancel_open_runs

router = APIRouter(tags=["tasks"])


@router.post("/tasks/{task_id}/cancel")
def cancel_task(edge: TheEdge, principal: Caller, task_id: str) -> Response:
    """Stop a run, or everything of a session."""
    cancel(edge, principal, task_id)
    return success(True)


@router.patch("/tasks/{task_id}", openapi_extra=described(TaskAction))
def change_task(edge: TheEdge, principal: Caller, task_id: str, body: SmallBody) -> Response:
    """The same for `{"action": "stop"}`."""
    action = checked(TaskAction, body)
    if action.action != "stop":
        raise Refused(ARGUMENT, f'Unknown action {action.action!r}. Use "stop".')
    cancel(edge, principal, task_id)
    return success(True)


@router.post("/agents/{agent_id}/cancel", openapi_extra=described(Cancelling))
def cancel_agent(edge: TheEdge, principal: Caller, agent_id: str, body: SmallBody) -> Response:
    """Stop a run or a session of this agent, or all of its active runs where neither is named."""
    wanted = checked(Cancelling, body)
    with edge.database.transaction() as tx:
        canvas = canvas_of(tx, principal, agent_id)
    named = [text for text in (wanted.run_id, wanted.session_id) if text]
    for text in named:
        cancel(edge, principal, text, canvas.id)
    if not named:
        cancel_open_runs(edge, principal, canvas.id)
    return success(True)
