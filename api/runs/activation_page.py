"""One activation of a run with its values, and each value whole."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import JsonValue

from api.http.errors import SERVER, Failure, failure_reply
from api.http.replies import json_reply
from api.http.reply_styles import OwnRoute
from api.requests.auth import RunViewer
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.scopes import NEEDS_READ
from api.runs.reply_models import ActivationReply
from api.runs.run_lookup import find_run_id, run_not_found
from api.visitors.redaction import ERROR_OUTPUTS, NODE_INPUTS, VARIABLES, Redaction, load_redaction
from canvas.budget import usage_json
from canvas.document.document import Entry
from canvas.document.references import Ref
from canvas.errors import NotFound, ValueGone
from canvas.events import explain
from canvas.graph.canvas import Canvas, Node
from canvas.graph.passwords import PasswordMask
from canvas.ids import ActivationId, RunId, TenantId, VersionId
from canvas.state.run_state import ActivationStatus, ScopeKey, activation_id, scope_key
from canvas.validation import reference_scan
from scheduler.views.activation_columns import shorten_error, to_object
from scheduler.views.call_views import attempt_json, call_json, tool_call_json
from scheduler.views.json_values import iso_of, milliseconds
from scheduler.views.value_previews import preview, values_json
from store.db.transaction import USE_SNAPSHOT, Transaction
from store.monitoring import wait_facts
from store.primitives.json_codec import encode
from store.runs import activation_details, activation_list, attempt_records, attempts, model_calls, values
from store.runs.activation_details import MAX_EVENTS, ActivationDetails, StoredValues, ValueRef
from store.runs.activation_list import ActivationFilter, ActivationListRow, entry_prefix
from store.runs.external_ids import uuid_of
from store.runs.passwords import load_mask
from store.runs.values import ReadView

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_READ])

ValueKind = Literal["inputs", "outputs", "variables"]
MAX_REFERENCES = 200
MAX_RECORDS = 100  # attempts, model calls and tool calls; routes of their own list all
_ENDED = ("done", "closed")
_EXPLAINED = frozenset({"running", "reported", "ready", "queued", "waiting"})


@dataclass(frozen=True, slots=True)
class _Found:
    """An activation, with what the snapshot of its row says about the run."""

    run_id: RunId
    id: ActivationId
    row: ActivationListRow
    version_id: VersionId
    now_ms: int | None
    revision: int
    ended_at: int | None

    @property
    def scope(self) -> ScopeKey:
        return scope_key(self.row.scope)

    @property
    def entry(self) -> str | None:
        """What the scopes inside of a container that has ended begin with; None for any other activation."""
        is_container = self.row.outcome == activation_list.CONTAINER_OPENED and self.row.status in _ENDED
        return entry_prefix(self.scope, self.row.node_id, self.row.ordinal) if is_container else None


@router.get("/runs/{run_id}/activations/{activation_id}", response_model=ActivationReply)
def get_activation(
    context: ApiContextDep,
    principal: RunViewer,
    run_id: str,
    activation_id: str,
    values: Literal["preview", "none"] = "preview",
) -> Response:
    """Get one activation: its row, values up to 16 KiB each (larger ones as previews), what it read, and its wait."""
    with context.database.transaction() as tx:
        found = _find(tx, principal.tenant_id, run_id, activation_id)
        canvas = context.versions.get_or_empty(tx, found.version_id).canvas
        mask = load_mask(tx, canvas, principal.tenant_id, found.run_id)
        shown = _activation_json(tx, context, principal.tenant_id, found, canvas, mask, has_values=values != "none")
        return json_reply(load_redaction(tx, principal).activation(shown))


@router.get(
    "/runs/{run_id}/activations/{activation_id}/values/{kind}/{name:path}",
    response_model=JsonValue,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def get_value(
    request: Request,
    context: ApiContextDep,
    principal: RunViewer,
    run_id: str,
    activation_id: str,
    kind: ValueKind,
    name: str,
    download: Literal["0", "1"] = "0",
) -> Response:
    """Get one value whole: a text as `text/plain`, any other as JSON. 410 if its file is lost.

    `download=1` makes it an attachment.
    """
    with context.database.transaction() as tx:
        found = _find(tx, principal.tenant_id, run_id, activation_id)
        stored = _find_value(tx, found, kind, name)
        canvas = context.versions.get_or_empty(tx, found.version_id).canvas
        mask = load_mask(tx, canvas, principal.tenant_id, found.run_id)
        if stored is not None and _is_hidden(tx, load_redaction(tx, principal), found, kind):
            stored = None
    if stored is None:
        raise NotFound(f"The activation has no value {name[:64]!r} among its {kind}.")
    try:
        value = _load(context, found, name, stored)
    except ValueGone as error:
        return failure_reply(request, Failure(410, error.code, error.message, SERVER, {"field": name}))
    if mask:
        value = mask.node_values(found.row.node_id if kind != "variables" else None, {name: value})[name]
    return _value_reply(value, name, is_download=download == "1")


# -- one activation ---------------------------------------------------------------------------------------------------
def _find(tx: Transaction, tenant_id: TenantId, run: str, written: str) -> _Found:
    """Return an activation of the tenant's run. Raises NotFound."""
    tx.execute(USE_SNAPSHOT)
    run_id = find_run_id(tx, tenant_id, run)
    parsed = uuid_of(written)
    ids = [ActivationId(parsed)] if parsed is not None else []
    page = activation_list.read_page(tx, tenant_id, run_id, ActivationFilter(ids=ids))
    if page is None:
        raise run_not_found(run)
    if not page.rows:
        raise NotFound(f"The run has no activation {written[:64]}.")
    (row,) = page.rows
    return _Found(
        run_id,
        ids[0],
        row,
        page.version_id,
        milliseconds(page.now),
        page.revision,
        page.last_finished.get(row.id),
    )


def _activation_json(
    tx: Transaction,
    context: ApiContext,
    tenant_id: TenantId,
    found: _Found,
    canvas: Canvas,
    mask: PasswordMask,
    *,
    has_values: bool,
) -> dict[str, Any]:
    row = found.row
    details = activation_details.load_details(
        tx, found.run_id, found.id, row.node_id, entry=found.entry, has_values=has_values
    )
    number = canvas.numbers.get(row.node_id)
    node = canvas.nodes[number] if number is not None else None
    has_lease = row.status == ActivationStatus.RUNNING
    shown: dict[str, Any] = {
        "now": found.now_ms,
        "revision": found.revision,
        **to_object(row, found.ended_at),
        "name": node.name if node is not None else "",
        "item_path": _item_path(tx, found, canvas),
        "lease_until": milliseconds(details.lease_until) if has_lease else None,
        "answers": mask.answers(details.answers),
        "outcome_details": mask.value(_outcome(details.outcome)),
        "explain": _explanation(tx, context, tenant_id, found, canvas),
        "reads": _reads(tx, found, details, canvas, node) if node is not None else [],
        "siblings": {
            "count": details.siblings.count,
            "index": details.siblings.index,
            "failed": details.siblings.failed,
        },
    }
    lists: dict[str, list[Any]] = {
        "journal": [{"key": key, "bytes": size} for key, size in details.journal],
        "events": list(details.events),
        **_records(tx, tenant_id, found),
    }
    most = {"journal": MAX_EVENTS, "events": MAX_EVENTS}
    shown |= {name: entries[: most.get(name, MAX_RECORDS)] for name, entries in lists.items()}
    shown["cut"] = [name for name, entries in lists.items() if len(entries) > most.get(name, MAX_RECORDS)]
    if has_values:
        shown |= {
            "inputs": values_json(_mask_values(details.inputs, row.node_id, mask)),
            "outputs": values_json(_mask_values(details.outputs, row.node_id, mask)),
            "variables": values_json(_mask_values(details.variables, None, mask)),
        }
    return shown


def _mask_values(stored: StoredValues, node_id: str | None, mask: PasswordMask) -> StoredValues:
    return StoredValues(mask.node_values(node_id, stored.values), stored.files) if mask else stored


def _records(tx: Transaction, tenant_id: TenantId, found: _Found) -> dict[str, list[Any]]:
    """Return the attempts, model calls and tool calls of an activation, as their routes list them.

    One more than MAX_RECORDS of each if there are more. The current attempt, which no route lists, is the last one.
    """
    of_activation: dict[str, Any] = {"activation_id": found.id, "limit": MAX_RECORDS + 1}
    earlier = attempts.list_attempts(tx, tenant_id, found.run_id, **of_activation)
    return {
        "attempts": [*map(attempt_json, earlier), *_current_attempt(found.row)],
        "model_calls": [
            call_json(each) for each in model_calls.list_calls(tx, tenant_id, found.run_id, **of_activation)
        ],
        "tool_calls": [
            _short_call(tool_call_json(each))
            for each in attempt_records.list_calls_of_run(tx, tenant_id, found.run_id, **of_activation)
        ],
    }


def _current_attempt(row: ActivationListRow) -> list[dict[str, Any]]:
    """Return the current attempt in the shape of the earlier ones; none of an activation that is to be tried yet."""
    if row.status in (ActivationStatus.QUEUED, ActivationStatus.READY) or row.started_at is None:
        return []
    has_ended = row.status != ActivationStatus.RUNNING
    ended_at = row.finished_at if has_ended else None
    ready_at = row.not_before if row.not_before > row.created_at else row.enqueued_at or row.created_at
    return [
        {
            "activation_id": row.id,
            "attempt": row.attempt,
            "ready_at": iso_of(min(ready_at, row.started_at)),
            "started_at": iso_of(row.started_at),
            "ended_at": iso_of(ended_at),
            "elapsed_ms": ended_at - row.started_at if ended_at is not None else None,
            "worker": row.worker,
            "end_reason": None,
            "code": row.code,
            "error": shorten_error(row.error, activation_list.MAX_ERROR_LENGTH),
            "next_attempt_at": None,
            "usage": usage_json(row.usage) if row.usage else None,
            "crash_count": row.crash_count,
        }
    ]


def _short_call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a tool call with previews of what is above 16 KiB."""
    return {**call, **{name: preview(call[name]) for name in ("arguments", "result")}}


def _item_path(tx: Transaction, found: _Found, canvas: Canvas) -> list[dict[str, Any]]:
    """Return the containers around an activation, outermost first, with the item and the number of items."""
    scope = found.scope
    ids = [
        activation_id(found.run_id, container, scope[:depth], ordinal)
        for depth, (container, ordinal, _) in enumerate(scope)
    ]
    counts = activation_details.load_counts(tx, found.run_id, ids)
    return [
        {
            "container": container,
            "name": canvas.node(container).name if container in canvas.numbers else "",
            "activation_id": id_.hex,
            "item": item,
            "count": counts.get(id_),
        }
        for id_, (container, _, item) in zip(ids, scope, strict=True)
    ]


def _outcome(outcome: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a stored outcome without the chunks that it cites, which are large."""
    if not isinstance(outcome, Mapping):
        return None
    return {name: value for name, value in outcome.items() if name not in ("reference", "is")}


def _explanation(
    tx: Transaction, context: ApiContext, tenant_id: TenantId, found: _Found, canvas: Canvas
) -> dict[str, Any] | None:
    """Return what the activation itself waits for; None if it waits for nothing of its own."""
    if found.row.status not in _EXPLAINED:
        return None
    loaded = wait_facts.load_facts(tx, tenant_id, found.run_id, found.id)
    if loaded is None or not loaded[0].open_activations:
        return None
    return explain.explanation_json(explain.explain(loaded[0], canvas, context.time_limit), canvas)


# -- what it read -----------------------------------------------------------------------------------------------------
def _reads(
    tx: Transaction, found: _Found, details: ActivationDetails, canvas: Canvas, node: Node
) -> list[dict[str, Any]]:
    """Return the references of a node's parameters, each with the activation whose value it sees.

    Without such an activation the value is from before the run, or missing.
    """
    refs = [_resolve_alias(ref, canvas, node) for ref in _references(canvas, node)]
    names = {ref.root if ref.node is None else f"{ref.node}@{ref.root}" for ref in refs}
    view = ReadView(found.run_id, details.order_key, details.limits)
    writers, setters = values.find_writers(tx, view, [ref.node for ref in refs if ref.node is not None], names)
    globals_, nodes = activation_details.load_baseline_names(tx, found.run_id)
    shown: list[dict[str, Any]] = []
    for ref in refs:
        name = ref.root if ref.node is None else f"{ref.node}@{ref.root}"
        writer = setters.get(name) or (writers.get(ref.node) if ref.node is not None else None)
        is_known = ref.root in globals_ or ref.root.startswith("sys.") if ref.node is None else ref.node in nodes
        shown.append(
            {
                "reference": ref.expression,
                "node_id": ref.node,
                "activation_id": writer.hex if writer is not None else None,
                "missing": writer is None and not is_known,
            }
        )
    return shown


def _references(canvas: Canvas, node: Node) -> list[Ref]:
    """Return the references that a node's parameters read, each once, in their order."""
    uses = reference_scan.references_of(Entry(node.id, node.component, node.params))
    found = [
        use.ref
        for use in uses
        if not use.is_target and not (use.is_bare and use.ref.node not in canvas.numbers)  # else it is no reference
    ]
    return found[:MAX_REFERENCES]


def _resolve_alias(ref: Ref, canvas: Canvas, node: Node) -> Ref:
    """Return an alias, such as the item of the Iteration around the node, as the output of the item node."""
    if not ref.is_alias or node.parent is None:
        return ref
    return Ref(canvas.nodes[canvas.items[node.parent]].id, ref.root, ref.path)


# -- one value --------------------------------------------------------------------------------------------------------
def _find_value(tx: Transaction, found: _Found, kind: ValueKind, name: str) -> ValueRef | None:
    if kind == "outputs" and found.entry is not None:
        collected = activation_details.find_collected_value(tx, found.run_id, found.row.node_id, found.entry, name)
        if collected is not None:
            return collected
    return activation_details.find_value(tx, found.run_id, found.id, found.row.node_id, kind, name)


def _is_hidden(tx: Transaction, redaction: Redaction, found: _Found, kind: ValueKind) -> bool:
    """Return whether a share hides the values of an activation."""
    if not redaction.is_visitor:
        return False
    if kind != "outputs":
        return redaction.hides(NODE_INPUTS if kind == "inputs" else VARIABLES)
    errors = {name: _find_value(tx, found, kind, name) is not None for name in ERROR_OUTPUTS}
    return redaction.hides_outputs(found.row.component, errors)


def _load(context: ApiContext, found: _Found, name: str, stored: ValueRef) -> Any:
    """Return a value, read from the file storage if it is there. Raises ValueGone."""
    if stored.file is None:
        return stored.value
    return context.database.large.load(found.row.node_id, {name: None}, {name: stored.file})[name]


def _value_reply(value: Any, name: str, *, is_download: bool) -> Response:
    is_text = isinstance(value, str)
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox"}
    if is_download:
        file_name = f"{re.sub(r'[^0-9A-Za-z_.-]', '_', name[-100:])}.{'txt' if is_text else 'json'}"
        headers["Content-Disposition"] = f'attachment; filename="{file_name}"'
    media_type = "text/plain; charset=utf-8" if is_text else "application/json"
    return Response((value if is_text else encode(value)).encode(), headers=headers, media_type=media_type)
