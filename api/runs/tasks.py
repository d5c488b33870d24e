"""Routes that cancel runs: RAGFlow's tasks, and all open runs of an agent.

`task_id` is that of events, which is the id of a session; a run's id is accepted too. For an unknown id, a run that is
over, or one of another tenant, the request succeeds and has no effect.
"""

from fastapi import APIRouter
from fastapi.responses import Response

from api.agents.agents import canvas_of
from api.dependencies import ApiContextDep
from api.http.auth import Caller
from api.http.errors import ARGUMENT, Refused
from api.http.replies import success
from api.http.request_bodies import SmallBody, checked, described
from api.http.schemas import Cancelling, TaskAction
from api.runs.cancel import cancel, cancel_open_runs

router = APIRouter(tags=["tasks"])


@router.post("/tasks/{task_id}/cancel")
def cancel_task(context: ApiContextDep, principal: Caller, task_id: str) -> Response:
    """Cancel a run, or all open runs of a session."""
    cancel(context, principal, task_id)
    return success(True)


@router.patch("/tasks/{task_id}", openapi_extra=described(TaskAction))
def change_task(context: ApiContextDep, principal: Caller, task_id: str, body: SmallBody) -> Response:
    """Cancel a run, or all open runs of a session, with the body `{"action": "stop"}`."""
    action = checked(TaskAction, body)
    if action.action != "stop":
        raise Refused(ARGUMENT, f'Unknown action {action.action!r}. Use "stop".')
    cancel(context, principal, task_id)
    return success(True)


@router.post("/agents/{agent_id}/cancel", openapi_extra=described(Cancelling))
def cancel_agent(context: ApiContextDep, principal: Caller, agent_id: str, body: SmallBody) -> Response:
    """Cancel a run or a session of this agent, or all its open runs if neither is named."""
    wanted = checked(Cancelling, body)
    with context.database.transaction() as tx:
        canvas = canvas_of(tx, principal, agent_id)
    named = [text for text in (wanted.run_id, wanted.session_id) if text]
    for text in named:
        cancel(context, principal, text, canvas.id)
    if not named:
        cancel_open_runs(context, principal, canvas.id)
    return success(True)
