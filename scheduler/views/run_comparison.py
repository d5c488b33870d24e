"""Serialize the comparison of two runs for the API and the command line (docs/http.md, "Comparing runs")."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from canvas.budget import usage_json
from canvas.document import parsing
from canvas.document.differences import (
    CHANGED,
    MISSING,
    ONLY_A,
    ONLY_B,
    Room,
    document_differences,
    preview,
    text_diff,
    text_of,
)
from canvas.document.document import Document
from canvas.errors import ExecutorError, InvalidRequest, NotFound
from canvas.graph.canvas import Canvas
from canvas.graph.passwords import PasswordMask
from canvas.ids import ActivationId, CanvasId, RunId, TenantId
from canvas.state.run_state import RunStatus, activation_id, scope_key
from scheduler.coordinator.version_cache import MISSING_VERSION, VersionCache
from scheduler.views import divergence
from scheduler.views.json_values import elapsed_ms, hex_of, iso, milliseconds
from store.agents import versions as stored_versions
from store.db.transaction import Transaction
from store.monitoring import server_info
from store.runs import run_comparison, run_queries
from store.runs.passwords import load_mask
from store.runs.run_comparison import (
    MAX_ROWS,
    SAME,
    ComparedStep,
    StepPair,
    StepValues,
    ValueFile,
)
from store.runs.run_queries import RunSummary

MAX_QUERY = 200  # characters of a run's query in its header
MAX_NAMES = 100  # inputs, outputs or variables of a step that are shown
COLUMNS = (
    "node_id", "scope", "ordinal", "a_id", "b_id", "what", "a_ms", "b_ms", "a_tokens", "b_tokens", "a_cost", "b_cost",
    "a_outcome", "b_outcome", "a_reused", "b_reused",
)  # fmt: skip

MaskDocument = Callable[[CanvasId, Mapping[str, Any]], Mapping[str, Any]]
"""Returns a stored document of an agent with masks in place of its secrets."""


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    """Which pairs to show: of one node, with one result (store/runs/run_comparison.py), after an activation."""

    only: str | None = None
    node_id: str | None = None
    after: ActivationId | None = None
    limit: int = MAX_ROWS


@dataclass(frozen=True, slots=True)
class _Runs:
    """The two runs that are compared, with the canvases that they ran."""

    a: RunSummary
    b: RunSummary
    canvases: tuple[Canvas, Canvas]
    mask: PasswordMask  # of the passwords of both

    @classmethod
    def load(cls, tx: Transaction, cache: VersionCache, tenant_id: TenantId, a: RunId, b: RunId) -> "_Runs":
        found = [run_queries.get_summary(tx, tenant_id, each) for each in (a, b)]
        run_a, run_b = (_require(run, run_id) for run, run_id in zip(found, (a, b), strict=True))
        canvas_a, canvas_b = (_compile(tx, cache, run).canvas for run in (run_a, run_b))
        masks = [load_mask(tx, canvas_a, tenant_id, a), load_mask(tx, canvas_b, tenant_id, b)]
        return cls(run_a, run_b, (canvas_a, canvas_b), masks[0].join(masks[1]))

    def name_of(self, node_id: str) -> str:
        """Return the display name of a node, in A's version if it has the node; else its id."""
        for canvas in self.canvases:
            if node_id in canvas.numbers:
                return canvas.node(node_id).name or node_id
        return node_id


def _require(run: RunSummary | None, run_id: RunId) -> RunSummary:
    if run is None:
        raise NotFound(f"There is no run {run_id.hex}.")
    return run


def _compile(tx: Transaction, cache: VersionCache, run: RunSummary) -> Any:
    return cache.get_or_empty(tx, run.version_id) if run.status != RunStatus.REFUSED else MISSING_VERSION


def comparison_json(
    tx: Transaction,
    cache: VersionCache,
    tenant_id: TenantId,
    run_a: RunId,
    run_b: RunId,
    mask: MaskDocument,
    page: ComparisonPage,
) -> dict[str, Any]:
    """Return two runs of a tenant side by side: headers, totals, the first divergence, differing versions, a page.

    `versions` is null with the same version, and on later pages (`after`). Raises NotFound, and InvalidRequest for an
    `after` that neither run has.
    """
    runs = _Runs.load(tx, cache, tenant_id, run_a, run_b)
    if page.after is not None and not any(
        run_comparison.find_step(tx, tenant_id, run, page.after) for run in (run_a, run_b)
    ):
        raise InvalidRequest(
            f"`after` is {page.after.hex}, which is not a step of these runs. Use `next` of the page before.",
            field="after",
        )
    found = run_comparison.compare(
        tx, tenant_id, run_a, run_b, only=page.only, node_id=page.node_id, after=page.after, limit=page.limit
    )
    same_version = runs.a.version_id == runs.b.version_id
    differences = None if same_version else _version_differences(tx, runs, mask)
    is_same = found.first is None and runs.a.status == runs.b.status
    return {
        "now": milliseconds(server_info.read_clock(tx)),
        "same": is_same and (differences is None or differences["same"]),
        "a": _header(tx, tenant_id, runs.a, runs.mask),
        "b": _header(tx, tenant_id, runs.b, runs.mask),
        "same_version": same_version,
        "versions": differences if page.after is None else None,
        "first_divergence": _first_divergence(tx, tenant_id, runs, found.first),
        "totals": found.totals,
        "columns": COLUMNS,
        "rows": [_row(pair) for pair in found.pairs],
        "names": {pair.either.node_id: runs.name_of(pair.either.node_id) for pair in found.pairs},
        "next": found.pairs[-1].either.id.hex if found.has_more else None,
    }


def step_json(
    tx: Transaction, cache: VersionCache, tenant_id: TenantId, run_a: RunId, run_b: RunId, step_id: ActivationId
) -> dict[str, Any]:
    """Return what a step of one run and the corresponding step of the other have read and written, with text diffs.

    Raises NotFound if neither run has the step.
    """
    runs = _Runs.load(tx, cache, tenant_id, run_a, run_b)
    chosen = run_comparison.find_step(tx, tenant_id, run_a, step_id) or run_comparison.find_step(
        tx, tenant_id, run_b, step_id
    )
    if chosen is None:
        raise NotFound(f"These runs have no step {step_id.hex}.")
    a, b = (
        run_comparison.find_step(
            tx, tenant_id, run, activation_id(run, chosen.node_id, scope_key(chosen.scope), chosen.ordinal)
        )
        for run in (run_a, run_b)
    )
    values_a, values_b = _load_values(tx, tenant_id, run_a, a), _load_values(tx, tenant_id, run_b, b)
    pair = StepPair(divergence.find_difference(a, b, values_a, values_b), a, b)
    values_a, values_b = (
        _mask_values(values_a, chosen.node_id, runs.mask),
        _mask_values(values_b, chosen.node_id, runs.mask),
    )
    room = Room()
    return {
        "now": milliseconds(server_info.read_clock(tx)),
        **_place(pair, runs),
        "sentence": divergence.explain_divergence(pair, values_a, values_b, runs.name_of),
        "a": _step(a),
        "b": _step(b),
        **{
            column: _value_changes(getattr(values_a, column), getattr(values_b, column), room)
            for column in ("inputs", "outputs", "variables", "prompts")
        },
    }


def _load_values(tx: Transaction, tenant_id: TenantId, run_id: RunId, step: ComparedStep | None) -> StepValues:
    return run_comparison.load_values(tx, tenant_id, run_id, step) if step is not None else divergence.NOTHING


def _mask_values(values: StepValues, node_id: str, mask: PasswordMask) -> StepValues:
    """Return the values of a step without passwords; two that differ are the same mask."""
    if not mask:
        return values
    return StepValues(
        mask.node_values(node_id, values.inputs),
        mask.node_values(node_id, values.outputs),
        mask.node_values(None, values.variables),
        values.prompts,  # which are stored without passwords
    )


def _header(tx: Transaction, tenant_id: TenantId, run: RunSummary, mask: PasswordMask) -> dict[str, Any]:
    query = mask.value(run.request.get("query"))
    text = "" if query is None else text_of(query)
    return {
        "id": run.id.hex,
        "agent_id": hex_of(run.canvas_id),
        "version_id": hex_of(run.version_id),
        "status": run.status,
        "error": run.error or None,
        "query": text[:MAX_QUERY],
        "query_cut": len(text) > MAX_QUERY,
        "origin": {name: run.origin.get(name) for name in ("kind", "run_id", "from", "edits")} if run.origin else None,
        "steps": run_comparison.count_steps(tx, tenant_id, run.id),
        "usage": usage_json(run.usage),
        "created_at": iso(run.created_at),
        "started_at": iso(run.started_at),
        "finished_at": iso(run.finished_at),
        "elapsed_ms": elapsed_ms(run.started_at, run.finished_at),
    }


def _first_divergence(
    tx: Transaction, tenant_id: TenantId, runs: _Runs, pair: StepPair | None
) -> dict[str, Any] | None:
    if pair is None:
        return None
    values_a = _load_values(tx, tenant_id, runs.a.id, pair.a)
    values_b = _load_values(tx, tenant_id, runs.b.id, pair.b)
    node_id = pair.either.node_id
    values_a, values_b = _mask_values(values_a, node_id, runs.mask), _mask_values(values_b, node_id, runs.mask)
    return {
        **_place(pair, runs),
        "a_id": pair.a.id.hex if pair.a else None,
        "b_id": pair.b.id.hex if pair.b else None,
        "sentence": divergence.explain_divergence(pair, values_a, values_b, runs.name_of),
    }


def _place(pair: StepPair, runs: _Runs) -> dict[str, Any]:
    step = pair.either
    return {
        "node_id": step.node_id,
        "name": runs.name_of(step.node_id),
        "component": step.component,
        "scope": step.scope,
        "ordinal": step.ordinal,
        "what": int(pair.what),
    }


def _row(pair: StepPair) -> list[Any]:
    a, b = pair.a, pair.b
    sides = (a, b)
    return [
        pair.either.node_id,
        pair.either.scope,
        pair.either.ordinal,
        *(step.id.hex if step else None for step in sides),
        int(pair.what),
        *(step.milliseconds if step else None for step in sides),
        *(_tokens(step) if step else None for step in sides),
        *(_cost(step) if step else None for step in sides),
        *(step.outcome.get("is") if step else None for step in sides),
        *(step.is_reused if step else None for step in sides),
    ]


def _step(step: ComparedStep | None) -> dict[str, Any] | None:
    if step is None:
        return None
    return {
        "id": step.id.hex,
        "status": step.status,
        "attempt": step.attempt,
        "outcome": step.outcome.get("is"),
        "to": step.outcome.get("to"),
        "error": step.error,
        "reused": step.is_reused,
        "ms": step.milliseconds,
        "tokens": _tokens(step),
        "cost": _cost(step),
        "started_at": iso(step.started_at),
        "finished_at": iso(step.finished_at),
    }


def _tokens(step: ComparedStep) -> int:
    return step.usage.get("total_tokens", 0)


def _cost(step: ComparedStep) -> dict[str, float] | None:
    """Return the cost of a step by currency: {} if it has cost nothing, None if no price is known."""
    return usage_json(step.usage).get("cost", {})


# -- values ------------------------------------------------------------------------------------------------------------
def _value_changes(a: Mapping[str, Any], b: Mapping[str, Any], room: Room) -> dict[str, Any]:
    """Return `{values, cut}`: the values of both sides by name, those that differ first."""
    names = sorted(
        dict.fromkeys([*a, *b]), key=lambda name: name in a and name in b and divergence.is_same(a[name], b[name])
    )
    shown = [_value_change(name, a.get(name, MISSING), b.get(name, MISSING), room) for name in names[:MAX_NAMES]]
    return {"values": shown, "cut": len(names) > MAX_NAMES}


def _value_change(name: str, a: Any, b: Any, room: Room) -> dict[str, Any]:
    """Return `{name, kind, a, b}` of one value, with `diff` and `diff_cut` if both sides differ as texts."""
    kind = ONLY_B if a is MISSING else ONLY_A if b is MISSING else SAME if divergence.is_same(a, b) else CHANGED
    shown: dict[str, Any] = {"name": name, "kind": kind, "a": _preview(a, room), "b": _preview(b, room)}
    if kind == CHANGED and not any(isinstance(value, ValueFile) for value in (a, b)):
        shown |= text_diff(text_of(a), text_of(b), room)
    return shown


def _preview(value: Any, room: Room) -> dict[str, Any] | None:
    """Return a value to show; of one in a file, only its size."""
    if value is MISSING:
        return None
    if isinstance(value, ValueFile):
        return {"value": None, "chars": value.size, "cut": True}
    return preview(value, room)


# -- versions ----------------------------------------------------------------------------------------------------------
def _version_differences(tx: Transaction, runs: _Runs, mask: MaskDocument) -> dict[str, Any]:
    """Return the differences of two versions; only `same` false and `unavailable` if one of them cannot be read."""
    try:
        documents = [_read_document(tx, run, mask) for run in (runs.a, runs.b)]
    except ExecutorError as error:
        return {"same": False, "unavailable": error.message}
    return {"unavailable": None, **document_differences(*documents)}


def _read_document(tx: Transaction, run: RunSummary, mask: MaskDocument) -> Document:
    if run.status == RunStatus.REFUSED:
        raise NotFound("A refused start has no version.")
    version = stored_versions.get(tx, run.version_id)
    return parsing.parse(mask(version.canvas_id, version.dsl))
