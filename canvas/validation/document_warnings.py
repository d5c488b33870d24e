"""Warnings that concern single nodes: references to nothing, and failure handling or branches that lead nowhere.

`order_warnings` adds those that follow from the order in which nodes run.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from canvas.document.document import Document, Entry, failure_targets
from canvas.document.references import ALIASES
from canvas.graph import container_outputs, uncertain_outcomes
from canvas.validation.findings import Finding, warning
from canvas.validation.paths import ROUTERS, Path
from canvas.validation.reference_scan import ReferenceUse, rows

OutputsOf: TypeAlias = Callable[[Entry], Collection[str] | None]
"""Returns the outputs that a node may have; None for a node that may have any."""

SET_BY_A_RUN = frozenset({"sys.chat_template_kwargs"})
METHODS = ("", "comment", "goto")
MAX_SHOWN = 8  # names of outputs in one message


def reference_warnings(
    document: Document, entry: Entry, found: Iterable[ReferenceUse], outputs_of: OutputsOf
) -> Iterator[Finding]:
    """Yield warnings for references to nodes, outputs and globals that the canvas does not have."""
    for read in found:
        yield from _of_read(document, entry, read, outputs_of)


def collection_warnings(document: Document, entry: Entry) -> Iterator[Finding]:
    """Yield warnings for outputs of an Iteration that collect from nodes outside of its body."""
    if entry.component != "Iteration":
        return
    for name, (child, _) in container_outputs.output_refs(entry.params).items():
        if child in document.entries and document.entries[child].parent != entry.id:
            reason = f"it collects from {child}, which is not directly in its body, so nothing is collected"
            yield warning(entry, f"outputs.{name}.ref", "collects_nothing", reason)


def failure_warnings(entry: Entry) -> Iterator[Finding]:
    """Yield warnings for failure handling that has no effect."""
    params = entry.params
    method, default = params.get("exception_method") or "", params.get("exception_default_value")
    targets = [target for _, target in failure_targets(params)]
    if method not in METHODS:
        reason = f"{str(method)[:40]!r} is not a way to handle a failure. Use comment, goto or nothing"
        yield warning(entry, "exception_method", "unknown_exception_method", reason)
    if targets and not method:
        reason = "it is followed only where exception_method is goto. Set that, or name no node"
        yield warning(entry, "exception_goto", "goto_without_method", reason)
    if method == "goto" and not default and not targets:
        reason = "a failure has nowhere to go, so it ends the run. Name a node"
        yield warning(entry, "exception_goto", "goto_without_target", reason)
    if method == "comment" and not default and not targets:
        reason = "it has no default value, so a failure ends the run. Give one"
        yield warning(entry, "exception_default_value", "comment_without_default", reason)


def unknown_outcome_warnings(document: Document) -> Iterator[Finding]:
    """Yield warnings for invalid values of `on_unknown`."""
    default = document.raw.get(uncertain_outcomes.FIELD)
    choices = f"Use {', '.join(uncertain_outcomes.POLICIES)} or nothing"
    if not uncertain_outcomes.is_unset(default) and not uncertain_outcomes.is_policy(default):
        message = f"{str(default)[:40]!r} is not a valid on_unknown, so it counts as fail. {choices}."
        yield Finding("warning", None, uncertain_outcomes.FIELD, message, "unknown_on_unknown")
    for entry in document.entries.values():
        written = entry.params.get(uncertain_outcomes.FIELD)
        if not uncertain_outcomes.is_unset(written) and not uncertain_outcomes.is_policy(written):
            reason = f"{str(written)[:40]!r} is not a valid on_unknown, so it counts as not set. {choices}"
            yield warning(entry, uncertain_outcomes.FIELD, "unknown_on_unknown", reason)


def branch_warnings(document: Document, entry: Entry, ways: list[Path]) -> Iterator[Finding]:
    """Yield warnings for edges of a Switch or Categorize that no branch names: routers only follow their branches."""
    if entry.component not in ROUTERS:
        return
    exits = {target for _, target in failure_targets(entry.params)}
    for way in ways:
        is_known = way.target in document.entries and way.target not in exits
        if way.field == "downstream" and not way.is_taken and is_known:
            reason = f"no branch names {way.target}, so the edge to it is never taken. Name it in a branch"
            yield warning(entry, "downstream", "edge_never_taken", reason)


def _around(entries: Mapping[str, Entry], entry: Entry) -> Iterator[str]:
    """Yield the containers around a node, innermost first; `parse` limits their number."""
    parent = entry.parent
    while parent is not None and parent in entries:
        yield parent
        parent = entries[parent].parent


def _of_read(document: Document, entry: Entry, read: ReferenceUse, outputs_of: OutputsOf) -> Iterator[Finding]:
    ref = read.ref
    if ref.is_alias and not read.is_whole:
        if not _is_in_iteration(document.entries, entry):
            reason = f"{{{ref.root}}} stays text here: it is defined only inside of an Iteration. Refer to an output"
            yield warning(entry, read.field, "alias_outside", reason)
    elif ref.node is not None and ref.node in document.entries:
        yield from _of_output(document.entries[ref.node], entry, read, outputs_of)
    elif not _is_known(document, entry, read):
        reason = (
            f"it refers to {ref.expression}, which does not exist, so it fails. Correct the name, or add what it names"
        )
        yield warning(entry, read.field, "unknown_reference", reason)


def _of_output(source: Entry, entry: Entry, read: ReferenceUse, outputs_of: OutputsOf) -> Iterator[Finding]:
    if read.is_target or read.ref.root.startswith("_"):
        return
    known = outputs_of(source)
    if known is None or read.ref.root in known:
        return
    there = ", ".join(sorted(filter(None, known))[:MAX_SHOWN]) or "none"
    reason = (
        f"it refers to {read.ref.expression}, and {source.id} has no such output, so it reads nothing. It has {there}"
    )
    yield warning(entry, read.field, "unknown_output", reason)


def _is_known(document: Document, entry: Entry, read: ReferenceUse) -> bool:
    ref = read.ref
    if ref.node is not None:
        return False
    if ref.root in document.globals or ref.root in SET_BY_A_RUN:
        return True
    if ref.root in ALIASES and _is_in_iteration(document.entries, entry):
        return True
    own = [entry.id] if entry.component == "Loop" else []
    return any(
        row.get("variable") == ref.root
        for container in (*own, *_around(document.entries, entry))
        if document.entries[container].component == "Loop"
        for _, row in rows(_params(document, container).get("loop_variables"))
    )


def _params(document: Document, node: str) -> Mapping[str, Any]:
    return document.entries[node].params


def _is_in_iteration(entries: Mapping[str, Entry], entry: Entry) -> bool:
    return any(entries[container].component == "Iteration" for container in _around(entries, entry))
