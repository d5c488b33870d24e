"""The route of figures about a tenant's runs: by time, by agent and by node, and the runs that wait the longest."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query
from fastapi.responses import Response
from sqlalchemy.exc import DBAPIError

from api.http.query_values import parse_number, parse_time
from api.http.replies import id_or_unused, json_reply
from api.http.reply_styles import OwnRoute
from api.requests.auth import Viewer
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.scopes import NEEDS_READ, OF_ONE_AGENT
from api.runs.run_header import model_json
from api.viewer.reply_models import OverviewReply
from api.viewer.state import ViewerStateDep
from canvas.budget import display_amount
from canvas.errors import InvalidRequest
from canvas.events import explain
from canvas.ids import CanvasId, RunId, TenantId
from canvas.state.run_state import RunStatus
from scheduler.views.json_values import iso, milliseconds
from store.db.db_errors import QUERY_CANCELED, sqlstate
from store.monitoring import model_usage, overview, wait_facts
from store.monitoring.model_usage import MAX_MODELS_OF_RANGE, RangeUsage
from store.monitoring.overview import (
    FEWER_RUNS,
    MAX_AGENTS,
    MAX_COUNTED_WAITING,
    MAX_NODES,
    MAX_RUNS,
    AgentFigures,
    NodeFigures,
    Overview,
    RunFigures,
    RunRange,
    WaitingRun,
)
from store.primitives.ids import created_at_of

log = structlog.get_logger()
router = APIRouter(tags=["viewer"], route_class=OwnRoute, dependencies=[NEEDS_READ])

MAX_SPAN = timedelta(days=31)
DEFAULT_SPAN = timedelta(days=1)
MAX_BUCKETS = 120


@router.get("/viewer/overview", response_model=OverviewReply, dependencies=[OF_ONE_AGENT])
def get_overview(
    context: ApiContextDep,
    principal: Viewer,
    state: ViewerStateDep,
    begin: Annotated[str, Query(alias="from")] = "",
    to: str = "",
    agent_id: str = "",
    buckets: str = "48",
) -> Response:
    """Show figures of the runs that were accepted in a range of time, by default the last 24 hours.

    The range is 31 days at most. A reply is up to 10 seconds old.
    """
    chosen = _parse_range(begin, to, agent_id, buckets)
    chosen = replace(chosen, canvas_id=principal.chosen_agent(chosen.canvas_id))
    key = (principal.tenant_id, begin, to, chosen.canvas_id, chosen.buckets)
    return json_reply(state.overviews.get(key, lambda: _overview_json(context, principal.tenant_id, chosen)))


def _parse_range(begin: str, to: str, agent_id: str, buckets: str) -> RunRange:
    end = parse_time("to", to) if to else datetime.now(UTC)
    first = parse_time("from", begin) if begin else end - DEFAULT_SPAN
    if first >= end:
        raise InvalidRequest("`from` is not before `to`. Exchange them.", field="from")
    if end - first > MAX_SPAN:
        raise InvalidRequest(f"`from` and `to` are more than {MAX_SPAN.days} days apart. Choose less.", field="from")
    canvas_id = CanvasId(id_or_unused(agent_id)) if agent_id else None
    return RunRange(first, end, parse_number("buckets", buckets, MAX_BUCKETS), canvas_id)


def _overview_json(context: ApiContext, tenant_id: TenantId, chosen: RunRange) -> dict[str, Any]:
    found = _load(context, tenant_id, chosen)
    starts, nothing = chosen.starts, RunFigures()
    return {
        "now": milliseconds(found.now),
        "from": iso(chosen.first),
        "to": iso(chosen.end),
        "capped": found.oldest is not None,
        "counted_from": iso(created_at_of(found.oldest)) if found.oldest is not None else None,
        "tiles": {
            "runs": found.total.runs,
            **_figures_json(found.total),
            "failure_rate": _failure_rate(found.total),
            "waiting": min(found.waiting_total, MAX_COUNTED_WAITING),
            "waiting_is_capped": found.waiting_total > MAX_COUNTED_WAITING,
        },
        "buckets": [
            {"t": milliseconds(start), **_figures_json(found.buckets.get(number, nothing))}
            for number, start in enumerate(starts)
        ],
        "agents": [_agent_json(each) for each in found.agents[:MAX_AGENTS]],
        "agents_cut": len(found.agents) > MAX_AGENTS,
        "nodes": [_node_json(each) for each in found.nodes[:MAX_NODES]],
        "nodes_cut": len(found.nodes) > MAX_NODES,
        "nodes_of_runs": found.runs_of_nodes,
        **_models_json(_load_models(context, tenant_id, chosen)),
        "waiting": _waiting_json(context, tenant_id, found.waiting),
    }


def _load(context: ApiContext, tenant_id: TenantId, chosen: RunRange) -> Overview:
    """Return the figures, of fewer runs if those of all take too long."""
    try:
        with context.database.transaction() as tx:
            return overview.load_overview(tx, tenant_id, chosen, MAX_RUNS)
    except DBAPIError as error:
        if sqlstate(error) != QUERY_CANCELED:
            raise
    log.warning("overview_is_slow", tenant_id=tenant_id.hex, days=chosen.span.days)
    with context.database.transaction() as tx:
        return overview.load_overview(tx, tenant_id, chosen, FEWER_RUNS)


def _load_models(context: ApiContext, tenant_id: TenantId, chosen: RunRange) -> RangeUsage | None:
    """Return the model calls of the range; None if that takes too long."""
    try:
        with context.database.transaction() as tx:
            overview.limit_time(tx)
            return model_usage.load_usage_of_range(tx, tenant_id, chosen)
    except DBAPIError as error:
        if sqlstate(error) != QUERY_CANCELED:
            raise
    log.warning("model_usage_is_slow", tenant_id=tenant_id.hex, days=chosen.span.days)
    return None


def _models_json(found: RangeUsage | None) -> dict[str, Any]:
    if found is None:
        return {"models": None, "models_cut": False, "models_of_runs": None, "runs_without_model_calls": None}
    return {
        "models": [model_json(each) for each in found.models[:MAX_MODELS_OF_RANGE]],
        "models_cut": len(found.models) > MAX_MODELS_OF_RANGE,
        "models_of_runs": found.runs,
        "runs_without_model_calls": found.runs_without_rows,
    }


def _figures_json(figures: RunFigures) -> dict[str, Any]:
    return {
        "succeeded": figures.succeeded,
        "failed": figures.failed,
        "cancelled": figures.cancelled,
        "active": figures.runs - figures.succeeded - figures.failed - figures.cancelled,
        "p50_ms": _round(figures.p50_ms),
        "p95_ms": _round(figures.p95_ms),
        "tokens": figures.tokens,
        "cost": {currency: display_amount(currency, amount) for currency, amount in sorted(figures.costs.items())},
        "unpriced_calls": figures.unpriced_calls,
    }


def _failure_rate(figures: RunFigures) -> float | None:
    ended = figures.succeeded + figures.failed
    return round(figures.failed / ended, 4) if ended else None


def _agent_json(each: AgentFigures) -> dict[str, Any]:
    return {
        "agent_id": each.canvas_id.hex,
        "title": each.title,
        "runs": each.figures.runs,
        **_figures_json(each.figures),
        "failure_rate": _failure_rate(each.figures),
    }


def _node_json(each: NodeFigures) -> dict[str, Any]:
    return {
        "agent_id": each.canvas_id.hex,
        "version_id": each.version_id.hex,
        "node_id": each.node_id,
        "count": each.steps,
        "failed": each.failed,
        "p50_ms": _round(each.p50_ms),
        "p95_ms": _round(each.p95_ms),
        "tokens": each.tokens,
    }


def _waiting_json(context: ApiContext, tenant_id: TenantId, waiting: Sequence[WaitingRun]) -> list[dict[str, Any]]:
    """Return the runs that still wait, each with the sentence that explains it."""
    shown: list[dict[str, Any]] = []
    for each in waiting:
        explanation = _explain(context, tenant_id, each.run_id)
        if explanation is not None and explanation.status is RunStatus.WAITING:
            shown.append(
                {
                    "run_id": each.run_id.hex,
                    "agent_id": each.canvas_id.hex,
                    "agent": each.title,
                    "waits_for": explanation.wait.kind.value,
                    "since": iso(explanation.wait.since),
                    "sentence": explanation.wait.sentence,
                }
            )
    return shown


def _explain(context: ApiContext, tenant_id: TenantId, run_id: RunId) -> explain.Explanation | None:
    with context.database.transaction() as tx:
        found = wait_facts.load_facts(tx, tenant_id, run_id)
        if found is None:
            return None
        facts, version_id = found
        canvas = context.versions.get_or_empty(tx, version_id).canvas
    return explain.explain(facts, canvas, context.time_limit)


def _round(value: float | None) -> int | None:
    return round(value) if value is not None else None
