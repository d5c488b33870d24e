"""Routes that cancel runs: RAGFlow's tasks, and all open runs of an agent.

`task_id` is that of events, which is the id of a session; a run's id is accepted too. For an unknown id, a run that is
over, or one of another tenant, the request succeeds and has no effect.
"""

from fastapi import APIRouter
from fastapi.responses import Response

from api.agents.agents import get_caller_canvas
from api.agents.cancel import cancel, cancel_open_runs
from api.http.errors import ARGUMENT, RequestRefused
from api.http.replies import success
from api.http.schemas import CancelBody, TaskActionBody
from api.requests.auth import ApiTokenCaller
from api.requests.dependencies import ApiContextDep
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_RUN, OF_ONE_AGENT

router = APIRouter(tags=["tasks"], dependencies=[NEEDS_RUN])


@router.post("/tasks/{task_id}/cancel", dependencies=[OF_ONE_AGENT])
def cancel_task(context: ApiContextDep, principal: ApiTokenCaller, task_id: str) -> Response:
    """Cancel a run, or all open runs of a session."""
    cancel(context, principal, task_id, principal.agent)
    return success(True)


@router.patch("/tasks/{task_id}", openapi_extra=body_openapi(TaskActionBody), dependencies=[OF_ONE_AGENT])
def change_task(context: ApiContextDep, principal: ApiTokenCaller, task_id: str, body: SmallBody) -> Response:
    """Cancel a run, or all open runs of a session, with the body `{"action": "stop"}`."""
    action = parse_body(TaskActionBody, body)
    if action.action != "stop":
        raise RequestRefused(ARGUMENT, f'Unknown action {action.action!r}. Use "stop".')
    cancel(context, principal, task_id, principal.agent)
    return success(True)


@router.post("/agents/{agent_id}/cancel", openapi_extra=body_openapi(CancelBody))
def cancel_agent(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, body: SmallBody) -> Response:
    """Cancel a run or a session of this agent, or all its open runs if neither is named."""
    fields = parse_body(CancelBody, body)
    with context.database.transaction() as tx:
        canvas = get_caller_canvas(tx, principal, agent_id)
    named = [text for text in (fields.run_id, fields.session_id) if text]
    for text in named:
        cancel(context, principal, text, canvas.id)
    if not named:
        cancel_open_runs(context, principal, canvas.id)
    return success(True)
