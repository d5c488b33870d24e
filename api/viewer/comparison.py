"""The routes that compare two runs: which steps differ and where they first do, and the values of one step."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.http.query_values import parse_number, parse_position
from api.http.replies import json_reply, large_json_reply, parse_id
from api.http.reply_styles import OwnRoute
from api.requests.auth import RequestPrincipal, Viewer
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.scopes import NEEDS_READ
from api.runs.runs import get_run_id
from api.viewer.reply_models import ComparedStepReply, ComparisonReply
from canvas.errors import InvalidRequest, NotFound
from canvas.ids import ActivationId, CanvasId, RunId
from scheduler.views import run_comparison
from scheduler.views.run_comparison import ComparisonPage
from store.runs.run_comparison import FILTERS, MAX_ROWS

router = APIRouter(
    prefix="/runs/{run_id}/compare/{other_run_id}", tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_READ]
)


@router.get("", response_model=ComparisonReply)
def compare_runs(
    request: Request,
    context: ApiContextDep,
    principal: Viewer,
    run_id: str,
    other_run_id: str,
    only: str = "",
    node_id: str = "",
    after: str = "",
    limit: str = str(MAX_ROWS),
) -> Response:
    """Compare two runs step by step, in canonical order: A is the first one of the path, B the second.

    `only` is same, differs, only_a or only_b. `after` is the `next` of the page before.
    """
    if only and only not in FILTERS:
        raise InvalidRequest(f"`only` is {only[:64]!r}. Use one of: {', '.join(FILTERS)}.", field="only")
    after_id = parse_position("after", after)
    page = ComparisonPage(
        only or None,
        node_id or None,
        ActivationId(after_id) if after_id else None,
        parse_number("limit", limit, MAX_ROWS),
    )
    a, b = _run_ids(context, principal, run_id, other_run_id)

    def mask(canvas_id: CanvasId, document: Mapping[str, Any]) -> Mapping[str, Any]:
        return context.canvas_secrets(principal.tenant_id, canvas_id).mask_document(document)

    with context.database.transaction() as tx:
        shown = run_comparison.comparison_json(tx, context.versions, principal.tenant_id, a, b, mask, page)
    return large_json_reply(request, shown)


@router.get("/steps/{activation_id}", response_model=ComparedStepReply)
def compare_step(
    context: ApiContextDep, principal: Viewer, run_id: str, other_run_id: str, activation_id: str
) -> Response:
    """Compare what a step of either run has read and written with that of the same step in the other run."""
    a, b = _run_ids(context, principal, run_id, other_run_id)
    step = parse_id(activation_id)
    if step is None:
        raise NotFound(f"These runs have no step {activation_id[:64]}.")
    with context.database.transaction() as tx:
        return json_reply(run_comparison.step_json(tx, context.versions, principal.tenant_id, a, b, ActivationId(step)))


def _run_ids(context: ApiContext, principal: RequestPrincipal, a: str, b: str) -> tuple[RunId, RunId]:
    """Return the ids of both runs. Raises NotFound for one that the caller does not have."""
    return get_run_id(context, principal, a), get_run_id(context, principal, b)
