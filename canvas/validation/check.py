"""Validation across nodes, before a canvas runs or is published.

Errors keep a canvas from running: no `begin`, an edge to nowhere, a body entered from outside. Warnings mark what the
author probably did not intend, or what fails when a run reaches it: a node that no path leads to, a reference to
something unknown. The parameters of a single node are checked by its component.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canvas.document.containers import ITEM_OF
from canvas.document.document import Document, Entry
from canvas.errors import InvalidCanvas
from canvas.graph.canvas import Canvas, compile_canvas
from canvas.validation import document_warnings, order_warnings
from canvas.validation.document_warnings import OutputsOf
from canvas.validation.findings import Finding, Severity, error, errors_of, warning
from canvas.validation.order_warnings import Order
from canvas.validation.paths import CONTAINER_OF, Path, find_cycles, find_unreached, items_of, paths_from
from canvas.validation.reference_scan import ReferenceUse, references_of

__all__ = ["Finding", "Severity", "check", "errors_of"]

FORMS = frozenset({"UserFillUp", "Answer"})


def check(document: Document, outputs_of: OutputsOf = lambda _: None) -> tuple[list[Finding], Iterator[Finding]]:
    """Return the errors and the warnings of a document, both in component order.

    Warnings are computed while the iterator is read. `outputs_of` returns the outputs that a node may have.
    """
    errors = [*_begin_errors(document.entries), *_structure_errors(document.entries)]
    canvas = None
    try:
        canvas = compile_canvas(document)
    except InvalidCanvas as defect:
        if not errors:
            errors.append(Finding("error", defect.node, defect.field, defect.message, "not_compiled"))
    return errors, _warnings(document, canvas, outputs_of)


def _warnings(document: Document, canvas: Canvas | None, outputs_of: OutputsOf) -> Iterator[Finding]:
    yield from document_warnings.unknown_outcome_warnings(document)
    entries = document.entries
    ways = {entry.id: paths_from(entry) for entry in entries.values()}
    found = {entry.id: list(references_of(entry)) for entry in entries.values()}
    items = items_of(entries)
    never = find_unreached(entries, ways, items)
    endless = {cycle.nodes[0]: cycle.is_endless for cycle in find_cycles(entries, ways)}
    for entry in entries.values():
        yield from _container_warnings(entries, entry, items)
        for way in ways[entry.id]:
            yield from _path_warnings(entries, entry, way)
        if entry.id in endless:
            yield _cycle_warning(entry, is_endless=endless[entry.id])
        if entry.id in never:
            reason = "no path leads to it from begin, so it never runs. Connect or remove it"
            yield warning(entry, None, "unreached", reason)
        yield from document_warnings.branch_warnings(document, entry, ways[entry.id])
        yield from document_warnings.failure_warnings(entry)
        yield from document_warnings.collection_warnings(document, entry)
        yield from document_warnings.reference_warnings(document, entry, found[entry.id], outputs_of)
    if canvas is not None:
        order = Order.of(canvas, ways, never)
        yield from order_warnings.unset_read_warnings(document, order, found, _assigned_outputs(entries, found))
        yield from order_warnings.uncalled_model_warnings(document, order)


def _assigned_outputs(
    entries: Mapping[str, Entry], found: Mapping[str, Sequence[ReferenceUse]]
) -> set[tuple[str, str]]:
    """Return (node, output) of everything that an assigner writes."""
    return {
        (read.ref.node, read.ref.root)
        for entry in entries.values()
        for read in found[entry.id]
        if read.is_target and read.ref.node is not None
    }


def _begin_errors(entries: Mapping[str, Entry]) -> Iterator[Finding]:
    if not entries:
        message = "The canvas has no nodes. Add a Begin node with the id `begin`."
        yield Finding("error", None, "components", message, "no_begin")
    elif "begin" not in entries:
        message = "The canvas has no node with the id `begin`, where every run starts. Add one."
        yield Finding("error", None, "components", message, "no_begin")


def _structure_errors(entries: Mapping[str, Entry]) -> Iterator[Finding]:
    for entry in entries.values():
        yield from _container_errors(entries, entry)
        for way in paths_from(entry):
            yield from _path_errors(entries, entry, way)


# -- containers -------------------------------------------------------------------------------------------------------


def _container_errors(entries: Mapping[str, Entry], entry: Entry) -> Iterator[Finding]:
    """Yield errors for a node in a container that it may not be in."""
    parent = entries.get(entry.parent) if entry.parent is not None else None
    if entry.parent is not None and parent is None:
        reason = f"its container {entry.parent} does not exist. Name one that does, or none"
        yield error(entry, "parent_id", "unknown_container", reason)
    elif parent is not None and parent.component not in ITEM_OF:
        reason = f"its container {parent.id} is a {parent.component}, not an Iteration or Loop"
        yield error(entry, "parent_id", "not_a_container", reason)
    required = CONTAINER_OF.get(entry.component)
    if required and (parent is None or parent.component != required):
        reason = f"it must be inside of a node of the type {required}"
        yield error(entry, "parent_id", "item_outside", reason)
    if entry.component == "ExitLoop" and (parent is None or parent.component != "Loop"):
        reason = "it must be directly inside of a Loop, which it ends"
        yield error(entry, "parent_id", "exit_outside", reason)
    if entry.component in FORMS and (container := _parallel_container(entries, entry)):
        reason = f"a run cannot wait for a person inside of {container}, whose items run in parallel"
        reason = f"{reason}. Set its max_concurrency to 1 or move the node"
        yield error(entry, "parent_id", "form_side_by_side", reason)


def _container_warnings(
    entries: Mapping[str, Entry], entry: Entry, items: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    beside = items.get(entry.parent or "", ())
    if entry.id in beside[1:]:
        reason = f"its container {entry.parent} starts at {beside[0]} instead"
        yield warning(entry, "parent_id", "second_item", reason)
    if entry.component in ITEM_OF and not any(entries[item].downstream for item in items.get(entry.id, ())[:1]):
        reason = "its body is empty, so its passes do nothing. Put nodes into it and connect the item node to them"
        yield warning(entry, None, "empty_body", reason)


def _parallel_container(entries: Mapping[str, Entry], entry: Entry) -> str | None:
    """Return the innermost container around a node whose items run in parallel."""
    for container in _around(entries, entry):
        if entries[container].component == "Iteration" and _number(entries[container].params) > 1:
            return container
    return None


def _number(params: Mapping[str, Any]) -> int:
    value = params.get("max_concurrency")
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value.strip()[:9])
    return int(value) if isinstance(value, int | float) else 0


def _around(entries: Mapping[str, Entry], entry: Entry) -> Iterator[str]:
    """Yield the containers around a node, innermost first."""
    parent = entry.parent
    while parent is not None and parent in entries:
        yield parent
        parent = entries[parent].parent


# -- paths ------------------------------------------------------------------------------------------------------------


def _path_errors(entries: Mapping[str, Entry], entry: Entry, way: Path) -> Iterator[Finding]:
    target = entries.get(way.target)
    if target is None and way.field == "downstream":
        reason = f"it leads to {way.target}, which does not exist. Remove the edge or add the node"
        yield error(entry, way.field, "edge_to_nowhere", reason)
    elif target is not None and target.id == entry.id:
        yield error(entry, way.field, "self_edge", "it leads to itself. Use a Loop to repeat something")
    elif target is not None and _is_from_outside(entries, entry, target):
        reason = f"it leads to {target.id} inside of {target.parent}. A body is entered through its container only"
        yield error(entry, way.field, "body_entered", reason)


def _path_warnings(entries: Mapping[str, Entry], entry: Entry, way: Path) -> Iterator[Finding]:
    target = entries.get(way.target)
    if target is None and way.field != "downstream":
        reason = f"it names {way.target}, which does not exist, so nothing follows there"
        yield warning(entry, way.field, "branch_to_nowhere", reason)
    elif target is not None and target.parent != entry.parent and not _is_from_outside(entries, entry, target):
        reason = (
            f"it leads to {target.id} outside of {entry.parent}. A body is left through its container or an ExitLoop"
        )
        yield warning(entry, way.field, "body_left", reason)


def _is_from_outside(entries: Mapping[str, Entry], entry: Entry, target: Entry) -> bool:
    return target.parent is not None and target.parent not in (entry.parent, *_around(entries, entry))


def _cycle_warning(entry: Entry, *, is_endless: bool) -> Finding:
    if is_endless:
        reason = "it begins a cycle that no branch leads out of, so its nodes run 1,000 times and then fail"
        return warning(entry, "downstream", "endless_cycle", f"{reason}. Let a Switch lead out, or use a Loop")
    reason = "it begins a cycle outside of a Loop, so nothing limits the number of its rounds"
    return warning(entry, "downstream", "cycle", reason)
