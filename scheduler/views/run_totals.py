"""Totals of a run as JSON: activations by node and status, followed edges, its failure, its budgets, its wait."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from canvas.budget import account_json, usage_json
from canvas.events import explain
from canvas.graph.canvas import Canvas, Node, NodeKind
from canvas.ids import RunId, TenantId
from scheduler.views.activation_columns import OUTCOME_NAMES
from store.db.transaction import Transaction
from store.monitoring import run_header, wait_facts
from store.monitoring.node_counts import NodeCounts, NodeOutcomes
from store.tenants import budgets

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


def count_by_status(counts: Sequence[NodeCounts]) -> dict[str, int]:
    """Return the number of activations by status; statuses without one are left out."""
    found = Counter[str]()
    for each in counts:
        for state, number in each.states.items():
            found[_STATUS_OF.get(state, state)] += number
    return dict(found)


def node_list(canvas: Canvas, counts: NodeCounts) -> list[Any]:
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


def edge_counts(canvas: Canvas, outcomes: Iterable[NodeOutcomes]) -> dict[str, int]:
    """Return how often each edge was followed, by `source>target`, as the outcomes of finished activations say."""
    found = Counter[str]()
    for each in outcomes:
        number = canvas.numbers.get(each.node_id)
        if number is None:
            continue
        node = canvas.nodes[number]
        for target in _targets(canvas, node, each):
            found[f"{node.id}>{canvas.nodes[target].id}"] += each.number
    return dict(sorted(found.items()))


def _targets(canvas: Canvas, node: Node, outcome: NodeOutcomes) -> Sequence[int]:
    """Return the nodes that an outcome leads to (canvas/routing/decide.py)."""
    match OUTCOME_NAMES.get(outcome.kind, outcome.kind):
        case "Routed":
            return canvas.targets_of(outcome.to)
        case "Failed" if node.failure.has_goto:
            return node.failure.goto
        case "Failed":
            return node.downstream if node.failure.streams_default and not node.is_router else ()
        case "ContainerExited" if node.kind.is_item or _is_in_loop(canvas, node):
            return ()  # it ends its container, whose own activation follows the container's edges
        case _:
            return node.downstream


def _is_in_loop(canvas: Canvas, node: Node) -> bool:
    return node.parent is not None and canvas.nodes[node.parent].kind is NodeKind.LOOP


def first_failure(
    tx: Transaction, canvas: Canvas, run_id: RunId, failing: Sequence[Any] | None
) -> dict[str, Any] | None:
    """Return the failure that ends the run; ids are null if it belongs to no single activation.

    `failing`: the member of the run's state column (canvas/state/checkpoint.py).
    """
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


def wait_json(
    tx: Transaction, tenant_id: TenantId, run_id: RunId, canvas: Canvas, limit_of: Callable[[str], float]
) -> dict[str, Any]:
    """Return what the run waits for, as the route `explain` does. The transaction must have read the run."""
    found = wait_facts.load_facts(tx, tenant_id, run_id)
    assert found is not None  # the transaction has read the run
    return explain.explanation_json(explain.explain(found[0], canvas, limit_of), canvas)


def budgets_json(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> list[dict[str, Any]]:
    """Return the run's own budgets. Another route lists those of its session and tenant."""
    found = budgets.list_budgets(tx, tenant_id, datetime.now(UTC).date(), [run_id])
    return [account_json(each.account) for each in found]
