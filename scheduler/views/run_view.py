"""Views of a whole run, computed from its rows: outputs of every node, globals, history, the answer.

They are for people, clients and tests; running nodes does not use them.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from canvas.document.document import Entry
from canvas.graph import container_outputs, parallel_items
from canvas.graph.canvas import Canvas, NodeKind, form_key
from canvas.state.run_state import RunStatus, container_entry, scope_key
from scheduler.coordinator.version_cache import VersionCache
from store.agents import conversations
from store.db.transaction import Transaction
from store.runs import message_streams, scopes, values
from store.runs.passwords import load_mask

DeclaredOutputs = Callable[[Entry], tuple[str, ...]]

SYS_HISTORY = "sys.history"


def outputs_of(
    tx: Transaction, versions: VersionCache, row: Mapping[str, Any], declared: DeclaredOutputs
) -> dict[str, dict[str, Any]]:
    """Return the outputs of every node of a run's canvas, with passwords masked.

    A declared output that was not set is null.
    """
    compiled = versions.get_or_empty(tx, row["version_id"])
    stored = values.load_final(tx, row["id"])
    from_draft = row["baseline"].get("values", {})
    shown: dict[str, dict[str, Any]] = {}
    for entry in compiled.document.entries.values():
        slots: dict[str, Any] = dict.fromkeys(declared(entry))
        slots |= from_draft.get(entry.id, {})
        outputs, order_key = stored.outputs.get(entry.id, ({}, b""))
        slots |= outputs
        prefix = f"{entry.id}@"
        for name, (value, written) in stored.variables.items():
            if name.startswith(prefix) and written >= order_key:
                slots[name.removeprefix(prefix)] = value
        shown[entry.id] = slots
    if row["status"] != RunStatus.SUCCEEDED:
        _add_open_containers(tx, compiled.canvas, row, shown)
    mask = load_mask(tx, compiled.canvas, row["tenant_id"], row["id"])
    return {node_id: mask.node_values(node_id, slots) for node_id, slots in shown.items()} if mask else shown


def _add_open_containers(
    tx: Transaction, canvas: Canvas, row: Mapping[str, Any], shown: dict[str, dict[str, Any]]
) -> None:
    """Add what the passes of Iterations that did not end have collected so far; parallel items leave nothing."""
    for node in canvas.nodes:
        refs = container_outputs.collected_refs(canvas, node) if node.kind is NodeKind.ITERATION else {}
        if not refs or parallel_items.requested_concurrency(node.params) > 1:
            continue
        visit = canvas.nodes[canvas.items[node.number]]
        scope = scopes.last_scope_of(tx, row["id"], visit.id)
        if scope is None:
            continue
        key = scope_key(scope)
        children = container_outputs.collected_children(refs)
        passes = values.load_iteration_outputs(tx, row["id"], container_entry(key), children, row["revision"])
        before = {child: dict.fromkeys(shown.get(child, {})) for child in children}
        shown[node.id] |= container_outputs.collect(refs, passes, key[-1][2], before)


def globals_of(tx: Transaction, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the present globals of a run, passwords included; `sys.history` is computed from the conversation."""
    found = dict(row["baseline"].get("globals", {}))
    variables = values.load_final(tx, row["id"], with_large=False).variables
    found |= {name: value for name, (value, _) in variables.items() if "@" not in name}
    if SYS_HISTORY not in found:
        found[SYS_HISTORY] = [history_line(role, content) for role, content in history_of(tx, row)]
    found.setdefault("sys.files", row["baseline"].get("files", []))
    return found


def history_line(role: str, content: Any) -> str:
    """Return one line of `sys.history`: an object query as JSON, an assistant's outputs as Python's text form."""
    is_object = role == "user" and isinstance(content, dict | list)
    return f"{role}: {json.dumps(content, ensure_ascii=False) if is_object else content}"


def history_of(tx: Transaction, row: Mapping[str, Any]) -> list[list[Any]]:
    """Return the conversation as [role, content] pairs; an assistant's content is the outputs object."""
    entries = conversations.load_history(tx, row["conversation_id"], 2**31 - 1, 2**31 - 1)
    return [[entry["role"], entry["content"]] for entry in entries]


def answer_text(tx: Transaction, row: Mapping[str, Any]) -> str:
    """Return all text that the run has streamed since the last message of the user, in the order of streaming.

    A stream that was opened before that message and closed after it is included as a whole.
    """
    first = row["first_event"]
    return "".join(
        stream.text
        for stream in message_streams.list_opened(tx, row["id"])
        if stream.closed_at is None or stream.closed_at >= first
    )


def open_forms(canvas: Canvas, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the open forms by node, with their fields and prompt."""
    return {
        form_key(canvas, form[0], scope_key(form[2])): {"inputs": form[3], "tips": form[4]}
        for form in state.get("forms", {}).values()
    }
