"""Serialize runs for Easel's own routes: a row of a list, and a whole run with its activations as a tree."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.requests.auth import RequestPrincipal
from api.requests.dependencies import ApiContext
from api.runs.critical_path import Cache, critical_json
from api.runs.run_header import header_json
from api.visitors.redaction import Redaction
from canvas.budget import budget_stop, usage_json
from canvas.events.stream_sequencer import markers_to_tags
from canvas.graph.canvas import Canvas
from canvas.graph.passwords import NO_PASSWORDS, PasswordMask
from canvas.ids import RunId, TenantId
from canvas.run_warnings import WARNINGS, has_model_error, warnings_in
from canvas.state.run_state import RunStatus, scope_key
from scheduler.views import run_view
from scheduler.views.json_values import elapsed_ms, hex_of, iso
from scheduler.views.run_totals import budgets_json
from store.db.transaction import Transaction
from store.monitoring import run_header
from store.runs import run_queries, run_rows
from store.runs.passwords import load_mask
from store.runs.reused_activations import REUSED
from store.runs.run_queries import ActivationRow, RunSummary


def run_row(run: RunSummary) -> dict[str, Any]:
    """Return a run as a row of a list."""
    return {
        "id": run.id.hex,
        "external_id": run.external_id,
        "agent_id": hex_of(run.canvas_id),
        "version_id": hex_of(run.version_id),
        "session_id": hex_of(run.conversation_id),
        "message_id": None if run.status == RunStatus.REFUSED else run.message_id.hex,
        "status": run.status,
        "error": run.error or None,
        "has_model_error": has_model_error(run.usage),
        "usage": usage_json(run.usage),
        "last_event": run.last_event,
        "created_at": iso(run.created_at),
        "started_at": iso(run.started_at),
        "finished_at": iso(run.finished_at),
        "elapsed_ms": elapsed_ms(run.started_at, run.finished_at),
        "origin": origin_json(run.origin),
    }


def run_json(
    tx: Transaction,
    context: ApiContext,
    principal: RequestPrincipal,
    run: RunSummary,
    *,
    has_activations: bool = True,
    critical_paths: Cache | None = None,
) -> Mapping[str, Any]:
    """Return a run with its request, answer, open forms and totals, and if requested with its activations.

    With `critical_paths`, the cache of those, also with its critical path. For visitors of a share without what it
    hides.
    """
    redaction = Redaction.of(principal, run.usage)
    whole = _whole_run(tx, context, principal, run, has_activations=has_activations, critical_paths=critical_paths)
    return redaction.run(whole)


def _whole_run(
    tx: Transaction,
    context: ApiContext,
    principal: RequestPrincipal,
    run: RunSummary,
    *,
    has_activations: bool,
    critical_paths: Cache | None,
) -> dict[str, Any]:
    if run.status == RunStatus.REFUSED:
        no_path = {"critical": None} if critical_paths is not None else {}
        return {**run_row(run), **_REFUSED_FIELDS, **no_path, "request": request_json(run, NO_PASSWORDS)}
    canvas = context.versions.get_or_empty(tx, run.version_id).canvas
    row = run_rows.read(tx, principal.tenant_id, run.id)
    state: Mapping[str, Any] = row["state"] if row else {}
    header = header_json(tx, context, principal, run, state, canvas)
    mask = load_mask(tx, canvas, principal.tenant_id, run.id)
    shown = {
        **run_row(run),
        "request": request_json(run, mask),
        "answer": markers_to_tags(mask.text(run_view.answer_text(tx, row))) if row else "",
        "waiting": mask.value(run_view.open_forms(canvas, state)) if run.status == RunStatus.WAITING else None,
        "budget": budgets_json(tx, principal.tenant_id, run.id) if row and row["budgeted"] else None,
        "budget_exceeded": _find_exceeded_budget(state) if run.status == RunStatus.WAITING else None,
        "forks": _copies(tx, principal.tenant_id, run.id),
        **header,
        "first_request": _mask_request(header["first_request"], mask),
    }
    total: int = header["activations_total"]
    if critical_paths is not None:
        of_run = {"now": header["now"], "revision": header["revision"], "total": total}
        shown["critical"] = critical_json(tx, critical_paths, run, canvas, **of_run)
    if not has_activations:
        warned = run_header.load_warned(tx, run.id) if run.usage.get(WARNINGS) else []
        return {**shown, "warnings": _warnings(canvas, warned), "activation_count": total}
    steps = run_queries.list_steps(tx, run.id)
    return {
        **shown,
        "warnings": _warnings(canvas, [(step.node_id, step.outcome) for step in steps]),
        "activations": tree(canvas, steps),
        "activation_count": total,
        "activations_truncated": total > len(steps),
        **({"activations_cut": True} if total > len(steps) else {}),
    }


def origin_json(origin: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return from which run a rerun or fork was made and what it has changed, or which slot has started a run."""
    if origin is None:
        return None
    of_schedule = {name: origin[name] for name in ("schedule_id", "slot", "by_hand") if name in origin}
    return {**{name: origin.get(name) for name in ("kind", "run_id", "from", "edits")}, **of_schedule}


def _copies(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> dict[str, Any]:
    """Return the newest reruns and forks of a run, and how many there are (counted up to 1000)."""
    ids, total = run_queries.list_copies(tx, tenant_id, run_id)
    return {"ids": [each.hex for each in ids], "total": total}


_REFUSED_FIELDS: Mapping[str, Any] = {
    "answer": "",
    "waiting": None,
    "budget": None,
    "budget_exceeded": None,
    "warnings": [],
    "forks": {"ids": [], "total": 0},
    "activations": [],
    "activation_count": 0,
    "activations_truncated": False,
}
"""The fields of a run that a refused start has."""


def request_json(run: RunSummary, mask: PasswordMask) -> dict[str, Any]:
    """Return what a run was asked for in its current turn, with its passwords masked."""
    return _mask_request({name: run.request.get(name) for name in ("query", "inputs", "files", "user_id")}, mask)


def _mask_request(request: Mapping[str, Any], mask: PasswordMask) -> dict[str, Any]:
    return {name: mask.answers(each) if name == "inputs" else mask.value(each) for name, each in request.items()}


def tree(canvas: Canvas, steps: Sequence[ActivationRow]) -> list[dict[str, Any]]:
    """Return activations in canonical order, those inside of a container nested in the container's activation."""
    shown = {step.id: _step(canvas, step) for step in steps}
    by_place = {(scope_key(step.scope), step.node_id, step.ordinal): shown[step.id] for step in steps}
    top: list[dict[str, Any]] = []
    for step in steps:
        scope = scope_key(step.scope)
        around = by_place.get((scope[:-1], scope[-1][0], scope[-1][1])) if scope else None
        siblings = around["activations"] if around is not None else top
        siblings.append(shown[step.id])
    return top


def _step(canvas: Canvas, step: ActivationRow) -> dict[str, Any]:
    number = canvas.numbers.get(step.node_id)
    outcome = step.outcome or {}
    scope = scope_key(step.scope)
    return {
        "id": step.id.hex,
        "node_id": step.node_id,
        "name": canvas.nodes[number].name if number is not None else "",
        "component": step.component,
        "item": scope[-1][2] if scope else None,
        "ordinal": step.ordinal,
        "reused": bool(outcome.get(REUSED)),
        "status": step.status,
        "attempt": step.attempt,
        "outcome": outcome.get("is"),
        "error": outcome.get("error") or outcome.get("told"),
        "warnings": warnings_in(outcome),
        "usage": usage_json(step.usage) if step.usage else step.usage,
        "created_at": iso(step.created_at),
        "started_at": iso(step.started_at),
        "finished_at": iso(step.finished_at),
        "elapsed_ms": elapsed_ms(step.started_at, step.finished_at),
        "activations": [],
    }


def _warnings(canvas: Canvas, outcomes: Iterable[tuple[str, Mapping[str, Any] | None]]) -> list[dict[str, Any]]:
    """Return the warnings of outcomes, (node id, outcome), each with its node."""
    found: list[dict[str, Any]] = []
    for node_id, outcome in outcomes:
        number = canvas.numbers.get(node_id)
        name = canvas.nodes[number].name if number is not None else ""
        found += [{"node_id": node_id, "name": name, **each} for each in warnings_in(outcome)]
    return found


def _find_exceeded_budget(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the exceeded budget if the run waits for a higher one."""
    stops = (budget_stop(form[3]) for form in state.get("forms", {}).values())
    return next((dict(each) for each in stops if each is not None), None)
