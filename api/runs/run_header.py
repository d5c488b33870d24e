"""The head of a run's page: names, totals by status and node, what it waits for, its failures, what a caller may do."""

from collections.abc import Mapping, Sequence
from typing import Any

from api.requests.auth import RequestPrincipal
from api.requests.dependencies import ApiContext
from canvas.budget import budget_stop, usage_json
from canvas.graph.canvas import Canvas
from canvas.state.run_state import RunStatus
from scheduler.views.json_values import iso, milliseconds
from scheduler.views.run_totals import NODE_COUNTS, count_by_status, first_failure, node_list, wait_json
from store.agents.version_titles import chosen_title
from store.db.transaction import Transaction
from store.monitoring import model_usage, node_counts, run_header
from store.monitoring.model_usage import MAX_MODELS, ModelUsage
from store.runs.run_queries import RunSummary
from store.tenants.scopes import TokenScope


def header_json(
    tx: Transaction,
    context: ApiContext,
    principal: RequestPrincipal,
    run: RunSummary,
    state: Mapping[str, Any],
    canvas: Canvas,
) -> dict[str, Any]:
    """Return what the page of a run shows at its head, beside the run itself. `state`: the run's state column."""
    header = run_header.load_header(tx, principal.tenant_id, run.id)
    assert header is not None  # the transaction has read the run
    counts = node_counts.load_node_counts(tx, principal.tenant_id, run.id)
    nodes = {each.node_id: node_list(canvas, each) for each in counts}
    models = model_usage.load_usage_of_run(tx, run.id)
    has_calls = bool(run.usage.get("calls"))
    may_share = principal.may_share and context.sign_ins.may_share
    return {
        "usage": {
            **usage_json(run.usage),
            "by_model": [model_json(each) for each in models[:MAX_MODELS]] if models or not has_calls else None,
            "by_model_cut": len(models) > MAX_MODELS,
        },
        "model_calls": _stored_calls(models, has_calls=has_calls),
        "now": milliseconds(header.now),
        "revision": header.revision,
        "rules_version": header.rules_version,
        "agent_title": header.agent_title,
        "version_title": chosen_title(header.version_title),
        "version_number": header.version_number or None,
        "version_digest": header.version_digest,
        "draft_digest": header.draft_digest,
        "conversation_name": header.conversation_name,
        "previous_run": header.previous_run.hex if header.previous_run is not None else None,
        "expires_at": iso(header.expires_at),
        "activations_total": sum(each.total for each in counts),
        "counts": count_by_status(counts),
        "nodes": nodes,
        "waits": wait_json(tx, principal.tenant_id, run.id, canvas, context.time_limit),
        "first_failure": first_failure(tx, canvas, run.id, state.get("failing")),
        "handled_failures": sum(values[NODE_COUNTS.index("handled")] for values in nodes.values()),
        "first_request": _first_request(tx, run, header.first_query),
        "may": permissions(principal, run.status, state, has_agent=header.agent_title is not None, may_share=may_share),
        "shares": header.shares,
    }


def model_json(each: ModelUsage) -> dict[str, Any]:
    """Return the usage of one model of one account; `calls` counts the calls that are stored."""
    return {
        "model": each.model,
        "account": each.account,
        **usage_json(each.usage),
        "calls": each.calls,
        "failed": each.failed,
        "waited_ms": each.waited_ms,
    }


def _stored_calls(models: Sequence[ModelUsage], *, has_calls: bool) -> str | None:
    """Return what is stored of a run's model calls: `full`, `usage` or `none`; None if it has made none."""
    if not models:
        return "none" if has_calls else None
    return "full" if any(each.has_bodies for each in models) else "usage"


def _first_request(tx: Transaction, run: RunSummary, first_query: Any) -> dict[str, Any]:
    """Return query and form values of the first turn; `request` of a run is that of its current turn."""
    if run.first_event <= 1:
        return {name: run.request.get(name) for name in ("query", "inputs")}
    return {"query": first_query, "inputs": run_header.load_first_inputs(tx, run.id)}


def permissions(
    principal: RequestPrincipal, status: str, state: Mapping[str, Any], *, has_agent: bool, may_share: bool
) -> dict[str, bool]:
    """Return what the caller may do with a run that was not refused, by kind, status and open forms.

    A run that is queued has nothing to repeat yet. `edit`: change its agent, if it exists. `may_share`: whether the
    caller may share runs of the tenant.
    """
    is_waiting = status == RunStatus.WAITING
    forms = state.get("forms", {}).values() if is_waiting else ()
    stops = [budget_stop(form[3]) for form in forms]
    may_run, may_edit = principal.has(TokenScope.RUN), principal.has(TokenScope.EDIT)
    may_answer = may_run or (principal.share is not None and principal.share.may_answer)
    has_begun = status not in (RunStatus.QUEUED, RunStatus.REFUSED)
    return {
        "cancel": may_run and not RunStatus(status).is_over,
        "answer": may_answer and any(stop is None for stop in stops),
        "raise_budget": may_run and any(stop is not None for stop in stops),
        "rerun": may_run and has_begun and has_agent,
        "fork": may_run and has_begun and has_agent,
        "share": may_share,
        "edit": may_edit and has_agent,
    }
