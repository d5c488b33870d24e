"""Print the activations of a run as a tree: containers, their items, and the nodes in them, with times."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from canvas.graph.canvas import Canvas
from canvas.run_warnings import warnings_in
from canvas.state.run_state import ActivationStatus, ScopeKey, scope_key
from cli.shell import output
from store.runs.reused_activations import REUSED
from store.runs.run_queries import ActivationRow

MARKS: Mapping[str, str] = {
    ActivationStatus.DONE: "✓",
    ActivationStatus.CLOSED: "-",  # cancelled before it ran
    ActivationStatus.WAITING: "?",
    ActivationStatus.QUEUED: "·",
    ActivationStatus.READY: "·",
}
RUNNING = "▸"
FAILED = "✗"

Inside = Mapping[ScopeKey, Sequence[ActivationRow]]


def lines(steps: Sequence[ActivationRow], canvas: Canvas, begun: datetime) -> Iterator[str]:
    """Yield one line per activation and per item of a container. Times count from the start of the run."""
    inside: dict[ScopeKey, list[ActivationRow]] = {}
    for step in steps:
        inside.setdefault(scope_key(step.scope), []).append(step)
    yield from _branch((), inside, canvas, begun, 0)


def rows(steps: Sequence[ActivationRow]) -> list[dict[str, Any]]:
    """Return the activations for machines, in canonical order; `scope` is the position in the tree."""
    return [
        {
            "id": step.id.hex,
            "node": step.node_id,
            "component": step.component,
            "scope": step.scope,
            "ordinal": step.ordinal,
            "status": step.status,
            "attempt": step.attempt,
            "reused": _is_reused(step),
            "error": _error(step) or None,
            "warnings": warnings_in(step.outcome),
            "created_at": step.created_at,
            "started_at": step.started_at,
            "finished_at": step.finished_at,
        }
        for step in steps
    ]


def _branch(scope: ScopeKey, inside: Inside, canvas: Canvas, begun: datetime, depth: int) -> Iterator[str]:
    for step in inside.get(scope, ()):
        yield "  " * depth + _line(step, canvas, begun)
        for warning in warnings_in(step.outcome):
            yield f"{'  ' * (depth + 1)}! {warning['code']}: {warning['message']}"
        for item in _items(scope, step, inside):
            yield f"{'  ' * (depth + 1)}item {item}"
            yield from _branch((*scope, (step.node_id, step.ordinal, item)), inside, canvas, begun, depth + 2)


def _items(scope: ScopeKey, step: ActivationRow, inside: Inside) -> list[int]:
    """Return the items that a container's activation has opened; [] for other nodes."""
    entry = (step.node_id, step.ordinal)
    return sorted(
        key[-1][2] for key in inside if len(key) == len(scope) + 1 and key[:-1] == scope and key[-1][:2] == entry
    )


def _line(step: ActivationRow, canvas: Canvas, begun: datetime) -> str:
    name = canvas.node(step.node_id).name if step.node_id in canvas.numbers else ""
    error = _error(step)
    parts = [
        FAILED if error else MARKS.get(step.status, RUNNING),
        step.node_id,
        name if name != step.node_id else "",
        "" if step.status == ActivationStatus.DONE else step.status,
        f"attempt {step.attempt}" if step.attempt > 1 else "",
        "reused" if _is_reused(step) else _times(step, begun),
        f"error: {error}" if error else "",
    ]
    return "  ".join(part for part in parts if part)


def _times(step: ActivationRow, begun: datetime) -> str:
    if step.started_at is None:
        return ""
    at = f"+{(step.started_at - begun).total_seconds():.2f} s"
    if step.finished_at is None:
        return at
    return f"{at}, {output.format_seconds((step.finished_at - step.started_at).total_seconds())}"


def _is_reused(step: ActivationRow) -> bool:
    """Return whether the activation was taken over from the run's source."""
    return bool((step.outcome or {}).get(REUSED))


def _error(step: ActivationRow) -> str:
    outcome = step.outcome or {}
    return str(outcome.get("error") or outcome.get("told") or "")
