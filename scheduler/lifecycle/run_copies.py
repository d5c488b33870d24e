"""Copies of runs: a rerun does everything again, and a fork goes on from a chosen activation of its source.

Both are starts of a new run in a new conversation, which begins with what was said before the source run. The run
begins with the globals and values that the source began with. A fork also takes over the activations that lie before
the chosen ones (`canvas/graph/reuse.py` finds them): by reference, when their turn comes
(`store/runs/reused_activations.py`). Nothing is written here; the caller starts the run.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from canvas import budget
from canvas.budget import parse_limits
from canvas.document import defaults
from canvas.document.component_names import canonical
from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.graph import reuse, uncertain_outcomes
from canvas.graph.canvas import Canvas
from canvas.graph.reuse import Edits
from canvas.ids import ActivationId, CanvasId, RunId, SessionId, TenantId, VersionId
from canvas.outcome import ContainerOpened, Failed, WaitingForInput
from canvas.state.run_state import ActivationStatus, RunStatus, activation_id
from scheduler.coordinator.run_start import DATE_FORMAT, GIVEN, RunRequest
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle.accept import FIRST_REQUEST, FORK, RERUN, RunCopy, Start
from store.agents import canvas_secrets, conversations, versions
from store.agents.canvas_secrets import CanvasSecrets
from store.db.database import Database
from store.db.transaction import Transaction
from store.primitives import outcome_codec
from store.primitives.ids import new_id
from store.primitives.weeks import Week
from store.runs import run_rows, source_runs, values
from store.runs.reused_activations import ReusedActivation
from store.runs.source_runs import SourceStep

SAME, DRAFT, PUBLISHED = "same", "draft", "published"
ASK, AS_THEN = "ask", "as_then"
MAX_HISTORY = 1000  # messages before the source run that a new conversation begins with
BASELINE = ("globals", "values", "files", "inputs", GIVEN)
SecretsOf = Callable[[TenantId, CanvasId], CanvasSecrets]


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """What a rerun or fork changes; None: as in the source. `version`: same, draft, published, or a version's id.

    `in_conversation`: the copy is the next turn of the source's conversation, and begins with what its last run left.
    """

    version: str = SAME
    query: Any = None
    inputs: Mapping[str, Any] | None = None
    files: Sequence[Mapping[str, Any]] | None = None
    answers: str = ASK
    budget: Mapping[str, Any] | None = None
    name: str = ""
    in_conversation: bool = False
    on_busy: str = "refuse"
    idempotency: tuple[str, str, bytes] | None = None


@dataclass(frozen=True, slots=True)
class ForkOptions:
    """From where a fork goes on, and what it changes. Without `places` it goes on from what has failed.

    A place is the id of an activation, a node (all its activations), or a node with its item: `LLM:0[3]`, `LLM:0[3.1]`
    in nested containers. `outputs`: place -> output -> value, of activations that are taken over. `variables`: global
    -> value. `params`: node -> parameter -> value, of nodes that run again.
    """

    copy: CopyOptions = CopyOptions()
    places: Sequence[str] = ()
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """What a fork would do. `to_confirm`: nodes whose side effects in the source may happen again."""

    start: Start
    preview: Mapping[str, Any]
    to_confirm: Sequence[str]


class NeedsConfirmation(Conflict):
    """Raised if side effects may happen again that the caller has not confirmed by name."""

    code = "needs_confirmation"


def plan_rerun(
    tx: Transaction, cache: VersionCache, tenant_id: TenantId, run_id: RunId, options: CopyOptions, new_run: RunId
) -> Start:
    """Return the start of a run that does all of a run again.

    Raises NotFound, InvalidRequest for options that do not fit, Conflict if the source has not begun.
    """
    source = _Source.read(tx, cache, tenant_id, run_id)
    version_id = _version_of(tx, source, options.version)
    reused: list[ReusedActivation] = []
    if options.answers == AS_THEN:
        canvas = cache.canvas(tx, version_id)
        steps = source_runs.load_steps(tx, tenant_id, run_id)
        reused = [_reuse(new_run, step) for step in steps if _is_answered(canvas, step)]
    return _start(tx, cache, source, version_id, options, new_run, reused, {"kind": RERUN}, sets_date=True)


def plan_fork(
    tx: Transaction,
    cache: VersionCache,
    tenant_id: TenantId,
    run_id: RunId,
    options: ForkOptions,
    new_run: RunId,
    secrets_of: SecretsOf,
) -> ForkPlan:
    """Return the start of a fork, with its preview. Writes a hidden version if parameters are edited.

    Secrets in edited parameters are sealed, and a mask keeps the secret that it stands for, as in a saved draft. Raises
    NotFound, InvalidRequest for edits that do not fit, Conflict if the source has not begun or the other version begins
    in another way.
    """
    copy = options.copy
    source = _Source.read(tx, cache, tenant_id, run_id)
    version_id = _version_of(tx, source, copy.version)
    canvas = cache.canvas(tx, version_id)
    steps = source_runs.load_steps(tx, tenant_id, run_id)
    by_id = {step.activation.id: step for step in steps}
    asked = {each for place in options.places for each in _resolve(steps, place, "from")}
    outputs = {
        each: edited for place, edited in options.outputs.items() for each in _resolve(steps, place, "edits.outputs")
    }
    changed = _changed_nodes(source.canvas, canvas) | _existing_nodes(canvas, options.params)
    chosen = asked | {
        step.activation.id for step in steps if not _is_reusable(source.canvas, step, with_failures=not asked)
    }
    if not asked and not changed and not _has_edits(options):
        _check_has_failed(source)
    if copy.query is not None or copy.inputs is not None or copy.files is not None:
        chosen |= {step.activation.id for step in steps if step.activation.node_id == canvas.nodes[canvas.begin].id}
    _check_variables(tx, cache, source, version_id, options.variables)
    edits = Edits(outputs, options.variables, changed)
    dirty = reuse.find_dirty(canvas, [step.activation for step in steps], chosen, edits)
    for edited in outputs:
        if edited in dirty:
            name = by_id[edited].activation.node_id
            raise InvalidRequest(
                f"The outputs of {name} cannot be edited: this activation runs again, or depends on one that does.",
                field="edits.outputs",
            )
    if options.params:
        version_id = _edited_version(tx, source, version_id, options.params, secrets_of)
    taken = [step for step in steps if step.activation.id not in dirty]
    if copy.answers == AS_THEN:
        taken += [step for step in steps if step.activation.id in dirty and _is_answered(canvas, step)
                  and step.activation.id not in asked]  # fmt: skip
    reused = [_reuse(new_run, step, outputs.get(step.activation.id)) for step in taken]
    again = [step for step in steps if step.activation.id in dirty and step.attempt]
    origin: dict[str, Any] = {"kind": FORK, "from": list(options.places)}
    start = _start(tx, cache, source, version_id, copy, new_run, reused, origin, options, sets_date=False)
    return ForkPlan(start, _preview(canvas, taken, again, steps), _to_confirm(again))


class _PreviewOnly(Exception):
    """Rolls the transaction of a preview back."""

    def __init__(self, planned: ForkPlan) -> None:
        super().__init__()
        self.planned = planned


def preview(
    database: Database,
    cache: VersionCache,
    find_tenant: Callable[[Transaction], TenantId],
    find_run: Callable[[Transaction, TenantId], RunId],
    options: ForkOptions,
    secrets_of: SecretsOf,
) -> Mapping[str, Any]:
    """Return what a fork would do. Writes nothing. Raises as `plan_fork`."""
    try:
        with database.transaction() as tx:
            tenant_id = find_tenant(tx)
            run_id = find_run(tx, tenant_id)
            planned = plan_fork(tx, cache, tenant_id, run_id, options, RunId(new_id()), secrets_of)
            raise _PreviewOnly(planned)
    except _PreviewOnly as done:
        return done.planned.preview


# -- the source -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Source:
    row: Mapping[str, Any]
    canvas: Canvas
    request: RunRequest

    @property
    def id(self) -> RunId:
        return self.row["id"]

    @property
    def tenant_id(self) -> TenantId:
        return self.row["tenant_id"]

    @property
    def baseline(self) -> Mapping[str, Any]:
        return {name: self.row["baseline"][name] for name in BASELINE if name in self.row["baseline"]}

    @staticmethod
    def read(tx: Transaction, cache: VersionCache, tenant_id: TenantId, run_id: RunId) -> "_Source":
        row = run_rows.read(tx, tenant_id, run_id)
        if row is None or row["status"] == RunStatus.REFUSED:
            raise NotFound(f"There is no run {run_id.hex}.", run_id=run_id.hex)
        if row["started_at"] is None:
            raise Conflict(f"The run {run_id.hex} has not begun, so there is nothing to repeat.", status=row["status"])
        canvas = cache.canvas(tx, row["version_id"])
        return _Source(row, canvas, first_request(tx, row, canvas))


def first_request(tx: Transaction, row: Mapping[str, Any], canvas: Canvas) -> RunRequest:
    """Return the request that started a run; an answer to a form replaces it in the run's row."""
    base = row["baseline"]
    stored = base.get(FIRST_REQUEST)
    if stored is not None:
        return RunRequest.from_json(stored)
    request = RunRequest.from_json(row["request"])
    if row["first_event"] <= 1:
        return request
    # the row of an earlier release, after an answer
    inputs = values.load_inputs(tx, row["id"], canvas.nodes[canvas.begin].id)
    query = base["globals"].get("sys.query") or ""
    return replace(request, query=query, inputs=inputs or None, files=tuple(base.get("files", ())))


def _version_of(tx: Transaction, source: _Source, chosen: str) -> VersionId:
    tenant_id, canvas_id = source.tenant_id, CanvasId(source.row["canvas_id"])
    match chosen:
        case "same":
            return source.row["version_id"]
        case "draft":
            return versions.lock_draft_version(tx, tenant_id, canvas_id).id
        case "published":
            return versions.lock_latest_released(tx, tenant_id, canvas_id).id
        case _:
            try:
                version_id = VersionId(UUID(chosen))
            except ValueError:
                raise InvalidRequest(
                    f'"version" is {chosen[:64]!r}. Use {SAME}, {DRAFT}, {PUBLISHED} or the id of a version.',
                    field="version",
                ) from None
            return versions.lock_by_id(tx, tenant_id, canvas_id, version_id).id


def _resolve(steps: Sequence[SourceStep], place: str, field_name: str) -> list[ActivationId]:
    """Return the activations of a place. Raises InvalidRequest if there is none."""
    wanted = place.strip()
    found = [step.activation.id for step in steps if step.activation.id.hex == wanted.replace("-", "").lower()]
    found = found or [
        step.activation.id
        for step in steps
        if wanted in (step.activation.node_id, uncertain_outcomes.label(step.activation.node_id, step.activation.scope))
    ]
    if not found:
        nodes = ", ".join(sorted({step.activation.node_id for step in steps})[:20])
        raise InvalidRequest(
            f"The run has no step {place[:64]!r}. Name an activation's id, a node, or a node with its item "
            f"(LLM:0[3]). Nodes with steps: {nodes}.",
            field=field_name,
        )
    return found


def _has_edits(options: ForkOptions) -> bool:
    copy = options.copy
    given = (copy.query, copy.inputs, copy.files)
    return bool(options.outputs or options.variables or options.params) or any(each is not None for each in given)


def _check_has_failed(source: _Source) -> None:
    status = RunStatus(source.row["status"])
    if status is RunStatus.SUCCEEDED:
        raise Conflict("The run has succeeded, so it has no failed point. Choose activations to go on from.")
    if not status.is_over:
        raise Conflict(f"The run is {status}, so it has no failed point yet. Cancel it, or choose activations.")


# -- what is taken over -----------------------------------------------------------------------------------------------


def _is_reusable(canvas: Canvas, step: SourceStep, *, with_failures: bool) -> bool:
    """Whether an activation has ended in a way that a fork can take over.

    `with_failures`: failures that ended the run, or would be tried again, run again; handled ones are taken over.
    """
    if step.outcome is None or step.activation.applied_rev is None:
        return False
    outcome = outcome_codec.decode_outcome(step.outcome).outcome
    if isinstance(outcome, ContainerOpened):
        return True
    if step.status != ActivationStatus.DONE or isinstance(outcome, WaitingForInput):
        return False
    if not isinstance(outcome, Failed):
        return True
    return not outcome.stores_no_values and (_is_handled(canvas, step) or not with_failures)


def _is_handled(canvas: Canvas, step: SourceStep) -> bool:
    """Whether the node's policy, or that of a container around it, has continued the run after a failure."""
    ids = [step.activation.node_id, *(container for container, _, _ in step.activation.scope)]
    policies = (canvas.node(each).failure for each in ids if each in canvas.numbers)
    return any(policy.has_goto or policy.streams_default for policy in policies)


def _is_answered(canvas: Canvas, step: SourceStep) -> bool:
    number = canvas.numbers.get(step.activation.node_id)
    if number is None or not canvas.nodes[number].kind.waits_for_user or not step.has_answers:
        return False
    return _is_reusable(canvas, step, with_failures=True)


def _reuse(new_run: RunId, step: SourceStep, outputs: Mapping[str, Any] | None = None) -> ReusedActivation:
    source = step.activation
    copy = activation_id(new_run, source.node_id, source.scope, source.ordinal)
    return ReusedActivation(copy, source.id, outputs)


# -- edits ------------------------------------------------------------------------------------------------------------


def _changed_nodes(before: Canvas, after: Canvas) -> set[str]:
    """Return the nodes that differ between two versions. Raises Conflict if they begin with different components."""
    if before is after:
        return set()
    if before.nodes[before.begin].component != after.nodes[after.begin].component:
        raise Conflict(
            "The versions begin with different components, so their runs cannot be aligned.", code="cannot_align"
        )
    return {node.id for node in before.nodes if _shape(before, node.id) != _shape(after, node.id)}


def _shape(canvas: Canvas, node_id: str) -> tuple[Any, ...] | None:
    number = canvas.numbers.get(node_id)
    if number is None:
        return None
    node = canvas.nodes[number]
    targets = [canvas.nodes[target].id for target in node.targets]
    parent = canvas.nodes[node.parent].id if node.parent is not None else None
    return (canonical(node.component), json.dumps(node.params, default=str), targets, parent)


def _existing_nodes(canvas: Canvas, params: Mapping[str, Mapping[str, Any]]) -> set[str]:
    unknown = [node_id for node_id in params if node_id not in canvas.numbers]
    if unknown:
        known = ", ".join(sorted(canvas.numbers)[:20])
        raise InvalidRequest(f"The canvas has no node {unknown[0][:64]!r}. It has: {known}.", field="edits.params")
    return set(params)


def _check_variables(
    tx: Transaction, cache: VersionCache, source: _Source, version_id: VersionId, edited: Mapping[str, Any]
) -> None:
    """Raise InvalidRequest if neither the source nor the version that the fork runs has a variable that is edited."""
    known = set(source.baseline["globals"])
    if edited.keys() <= known:
        return
    known |= _fresh_globals(tx, cache, version_id).keys()
    for name in edited:
        if name not in known:
            names = ", ".join(sorted(known)[:20])
            raise InvalidRequest(
                f"Neither the run nor the version has a variable {name[:64]!r}. They have: {names}.",
                field="edits.variables",
            )


def _edited_version(
    tx: Transaction,
    source: _Source,
    version_id: VersionId,
    params: Mapping[str, Mapping[str, Any]],
    secrets_of: SecretsOf,
) -> VersionId:
    """Store a hidden version with edited parameters; return its id. Raises InvalidRequest for unknown parameters."""
    stored = versions.get(tx, version_id)
    document: dict[str, Any] = json.loads(json.dumps(stored.dsl))
    for node_id, edited in params.items():
        entry = document.get("components", {}).get(node_id)
        fields = entry.get("obj", {}).get("params") if isinstance(entry, dict) else None
        if not isinstance(fields, dict):
            raise InvalidRequest(f"The parameters of {node_id} cannot be edited.", field=f"edits.params.{node_id}")
        unknown = [name for name in edited if name not in fields]
        if unknown:
            names = ", ".join(sorted(fields)[:30])
            raise InvalidRequest(
                f"{node_id} has no parameter {unknown[0][:64]!r}. It has: {names}.", field=f"edits.params.{node_id}"
            )
        fields.update(edited)
    sealed = canvas_secrets.seal_saved(tx, secrets_of(source.tenant_id, stored.canvas_id), document, stored.dsl)
    inserted = versions.insert_hidden(
        tx, source.tenant_id, stored.canvas_id, sealed, title=stored.title, description=stored.description
    )
    return inserted.id


# -- the start --------------------------------------------------------------------------------------------------------


def _start(
    tx: Transaction,
    cache: VersionCache,
    source: _Source,
    version_id: VersionId,
    options: CopyOptions,
    new_run: RunId,
    reused: Sequence[ReusedActivation],
    origin: dict[str, Any],
    fork: ForkOptions | None = None,
    *,
    sets_date: bool,
) -> Start:
    request = _request(tx, source, options)
    base = {**source.baseline, "globals": dict(source.baseline["globals"])}
    if version_id != source.row["version_id"]:
        base["globals"] = {**_fresh_globals(tx, cache, version_id), **base["globals"]}
    if sets_date:
        base["globals"]["sys.date"] = datetime.now().strftime(DATE_FORMAT)  # local time, as upstream
    if options.query is not None:
        base["globals"]["sys.query"] = options.query
    if options.files is not None:
        base["files"] = list(options.files)
    base["globals"] |= dict(fork.variables) if fork is not None else {}
    weeks = {Week.of_run(source.id).name, *(source.row["origin"] or {}).get("weeks", ())}
    whole = {
        **origin,
        "run_id": source.id.hex,
        "edits": _edit_names(options, fork),
        "weeks": sorted(weeks) if reused else [],
    }
    is_new = not options.in_conversation
    return Start(
        tenant_id=source.tenant_id,
        canvas_id=source.row["canvas_id"],
        version_id=version_id,
        request=request,
        run_id=new_run,
        conversation_id=None if is_new else source.row["conversation_id"],
        conversation_name=(options.name or str(request.query or ""))[:250],
        on_busy=options.on_busy,
        conversation_source=conversations.DEBUG_SOURCE if GIVEN in base else "workflow",
        history=history_before(tx, source.row) if is_new else (),
        idempotency=options.idempotency,
        budget=parse_limits(options.budget) if options.budget is not None else {},
        copy=RunCopy(source.id, source.row["message_id"], whole, base if is_new else {}, reused),
    )


def history_before(tx: Transaction, row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the last messages before a run, oldest first: (role, content)."""
    conversation_id: SessionId = row["conversation_id"]
    first = source_runs.find_first_message(tx, conversation_id, row["id"])
    if first is None:
        return ()
    messages = conversations.load_history(tx, conversation_id, first - 1, MAX_HISTORY)
    return tuple((message["role"], message["content"]) for message in messages)


def _fresh_globals(tx: Transaction, cache: VersionCache, version_id: VersionId) -> dict[str, Any]:
    """Return the globals that another version begins with, for variables that the source did not have."""
    fresh = defaults.initial_globals(cache.get(tx, version_id).document)
    return {name: value for name, value in fresh.items() if name not in ("sys.history", "sys.files")}


def _request(tx: Transaction, source: _Source, options: CopyOptions) -> RunRequest:
    """Return the request of the copy. Raises Conflict if a file of the source was deleted."""
    first = source.request
    kept = {name: value for name, value in first.options.items() if name not in ("on_busy", "cancel_on_disconnect")}
    if options.files is None:
        _check_files(tx, source.tenant_id, first.files)
    return replace(
        first,
        query=first.query if options.query is None else options.query,
        inputs=first.inputs if options.inputs is None else options.inputs,
        files=first.files if options.files is None else tuple(options.files),
        options=kept,
    )


def _check_files(tx: Transaction, tenant_id: TenantId, files: Sequence[Mapping[str, Any]]) -> None:
    ids: list[UUID] = []
    for file in files:
        try:
            ids.append(UUID(str(file.get("id"))))
        except ValueError:
            continue  # a file of another service
    gone = source_runs.missing_files(tx, tenant_id, ids)
    if gone:
        raise Conflict(f"The file {gone[0].hex} of the run was deleted. Give other files.", code="gone")


def _edit_names(options: CopyOptions, fork: ForkOptions | None) -> list[str]:
    names = [name for name in ("query", "inputs", "files") if getattr(options, name) is not None]
    if options.version != SAME:
        names.append("version")
    if fork is not None:
        names += [f"variables.{name}" for name in fork.variables]
        names += [f"outputs.{each}.{name}" for each, edited in fork.outputs.items() for name in edited]
        names += [f"params.{node}.{name}" for node, edited in fork.params.items() for name in edited]
    return names


# -- the preview ------------------------------------------------------------------------------------------------------


def _preview(
    canvas: Canvas, taken: Sequence[SourceStep], again: Sequence[SourceStep], steps: Sequence[SourceStep]
) -> dict[str, Any]:
    """Return what a fork would take over and run again, and what that has cost in the source."""
    nodes: dict[str, list[SourceStep]] = {}
    for step in sorted(again, key=lambda step: step.activation.order_key):
        nodes.setdefault(step.activation.node_id, []).append(step)
    ran = {step.activation.node_id for step in steps if step.attempt}
    never = [node.id for node in canvas.nodes if node.id not in ran]
    dirty_mask = sum(1 << canvas.numbers[node_id] for node_id in nodes if node_id in canvas.numbers)
    may_run = [node_id for node_id in never if canvas.reachability.above[canvas.numbers[node_id]] & dirty_mask]
    return {
        "reused": len(taken),
        "runs_again": [
            {
                "node_id": node_id,
                "name": canvas.node(node_id).name if node_id in canvas.numbers else node_id,
                "count": len(found),
                "effect": next((step.effect for step in found if step.effect), None),
                **_cost_of(found),
            }
            for node_id, found in nodes.items()
        ],
        "may_run": may_run,
        "never_ran": never,
        "estimate": _cost_of(again),
        "confirm": list(_to_confirm(again)),
    }


def _cost_of(steps: Sequence[SourceStep]) -> dict[str, Any]:
    total: dict[str, int] = {}
    for step in steps:
        for name, count in step.usage.items():
            total[name] = total.get(name, 0) + count
    shown = budget.usage_json(total)
    return {
        "tokens": total.get("total_tokens", 0),
        "cost": shown.get("cost", {}),
        "unpriced_calls": total.get(budget.UNPRICED, 0),
        "ms": sum(step.milliseconds for step in steps),
    }


def _to_confirm(again: Sequence[SourceStep]) -> list[str]:
    return sorted({step.activation.node_id for step in again if step.effect in ("keyed", "unsafe")})


def require_confirmation(plan: ForkPlan, confirmed: Collection[str]) -> None:
    """Raise NeedsConfirmation if side effects may happen again that are not confirmed by name."""
    missing = [node_id for node_id in plan.to_confirm if node_id not in confirmed]
    if missing:
        raise NeedsConfirmation(
            f"These nodes may have acted outside of Easel and would act again: {', '.join(missing)}. "
            'Name them in "confirm_unsafe" if they may.',
            confirm=missing,
        )
