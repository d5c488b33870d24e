"""The route that lists the guides of an Agent's steps, which an author may replace."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.replies import success
from api.requests.auth import ApiTokenCaller
from api.requests.scopes import NEEDS_READ
from components.nodes.agent.prompts import step_guides

router = APIRouter(tags=["agents"], dependencies=[NEEDS_READ])


@router.get("/agents/prompts")
def list_prompts(principal: ApiTokenCaller) -> Response:
    """List the guides for the steps of an Agent: task_analysis, plan_generation, reflection, citation_guidelines.

    A section such as `<REFLECTION>…</REFLECTION>` in the system prompt of a node replaces the guide of that step.
    """
    return success(step_guides())
