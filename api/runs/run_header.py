"""The head of a run's page: names, totals by status and node, what it waits for, its failures, what a caller may do."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from api.requests.auth import RequestPrincipal
from api.requests.dependencies import ApiContext
from canvas.budget import budget_stop, usage_json
from canvas.events import explain
from canvas.graph.canvas import Canvas
from canvas.ids import RunId
from canvas.state.run_state import RunStatus
from scheduler.views.json_values import iso, milliseconds
from store.db.transaction import Transaction
from store.monitoring import node_counts, run_header, wait_facts
from store.monitoring.node_counts import NodeCounts
from store.runs.run_queries import RunSummary

NODE_COUNTS = (
    "queued", "ready", "delayed", "running", "unresponsive", "reported", "needs_input", "over_budget",
    "awaiting_stream", "open", "done", "failed", "handled", "closed", "attempts", "first_started", "last_finished",
    "work_ms", "tokens", "cost",
)  # fmt: skip
"""What the list of each node in `nodes` has, in order."""
_STATUS_OF = {
    "delayed": "ready",
    "unresponsive": "running",
    "needs_input": "waiting",
    "over_budget": "waiting",
    "failed": "done",
}


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
    counts = node_counts.load_node_counts(tx, run.id)
    nodes = {each.node_id: _node_list(canvas, each) for each in counts}
    first_failure = _first_failure(tx, canvas, run.id, state)
    return {
        "now": milliseconds(header.now),
        "revision": header.revision,
        "rules_version": header.rules_version,
        "agent_title": header.agent_title,
        "version_title": header.version_title,
        "version_number": header.version_number or None,
        "version_digest": header.version_digest,
        "draft_digest": header.draft_digest,
        "conversation_name": header.conversation_name,
        "previous_run": header.previous_run.hex if header.previous_run is not None else None,
        "expires_at": iso(header.expires_at),
        "activations_total": sum(each.total for each in counts),
        "counts": count_by_status(counts),
        "nodes": nodes,
        "waits": _waits(tx, context, principal, run.id, canvas),
        "first_failure": first_failure,
        "handled_failures": sum(values[NODE_COUNTS.index("handled")] for values in nodes.values()),
        "first_request": _first_request(tx, run, header.first_query),
        "may": permissions(run.status, state, has_agent=header.agent_title is not None),
    }


def count_by_status(counts: Sequence[NodeCounts]) -> dict[str, int]:
    """Return the number of activations by status; statuses without one are left out."""
    found = Counter[str]()
    for each in counts:
        for state, number in each.states.items():
            found[_STATUS_OF.get(state, state)] += number
    return dict(found)


def _node_list(canvas: Canvas, counts: NodeCounts) -> list[Any]:
    """Return a node's counts in the order of NODE_COUNTS. A failure is handled if the author's policy continues."""
    number = canvas.numbers.get(counts.node_id)
    policy = canvas.nodes[number].failure if number is not None else None
    is_handled = policy is not None and (policy.has_goto or policy.streams_default)
    usage = usage_json(counts.usage)
    failed = counts.states.get("failed", 0)
    states = {**counts.states, **({"failed": 0, "handled": failed} if is_handled else {})}
    return [
        *(states.get(name, 0) for name in NODE_COUNTS[: NODE_COUNTS.index("attempts")]),
        counts.attempts,
        counts.first_started,
        counts.last_finished,
        counts.work_ms,
        usage.get("total_tokens", 0),
        usage.get("cost"),
    ]


def _waits(
    tx: Transaction, context: ApiContext, principal: RequestPrincipal, run_id: RunId, canvas: Canvas
) -> dict[str, Any]:
    """Return the explanation of the run, as the route `explain` does."""
    found = wait_facts.load_facts(tx, principal.tenant_id, run_id)
    assert found is not None  # the transaction has read the run
    return explain.explanation_json(explain.explain(found[0], canvas, context.time_limit), canvas)


def _first_failure(tx: Transaction, canvas: Canvas, run_id: RunId, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the failure that ends the run; ids are null if it belongs to no single activation."""
    failing = state.get("failing")
    if not failing:
        return None
    _, order_key, node_id, error, code = failing
    found = run_header.find_activation(tx, run_id, node_id, order_key) if order_key else None
    return {
        "activation_id": found[0].hex if found else None,
        "node_id": node_id or None,
        "scope": found[1] if found else None,
        "error": canvas.error_of(node_id, error, code),
        "code": code,
    }


def _first_request(tx: Transaction, run: RunSummary, first_query: Any) -> dict[str, Any]:
    """Return query and form values of the first turn; `request` of a run is that of its current turn."""
    if run.first_event <= 1:
        return {name: run.request.get(name) for name in ("query", "inputs")}
    return {"query": first_query, "inputs": run_header.load_first_inputs(tx, run.id)}


def permissions(status: str, state: Mapping[str, Any], *, has_agent: bool) -> dict[str, bool]:
    """Return what the caller may do with a run, by its status and open forms; `edit`: change its agent, if it exists.

    Callers of these routes have API tokens, which may do everything to the runs of their tenant.
    """
    is_waiting = status == RunStatus.WAITING
    stops = [budget_stop(form[3]) for form in state.get("forms", {}).values()] if is_waiting else []
    return {
        "cancel": not RunStatus(status).is_over,
        "answer": any(stop is None for stop in stops),
        "raise_budget": any(stop is not None for stop in stops),
        "edit": has_agent,
    }
