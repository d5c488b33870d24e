"""What must hold across nodes before a canvas runs or is published; every finding names its node and field.

Errors are what cannot run: no `begin`, an edge to nowhere, a body entered from outside. Warnings are what probably is
not meant: a node that no way leads to, a text that refers to something unknown. The parameters of a single node are
checked by its component.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from canvas import edges, references
from canvas.containers import ITEM_OF
from canvas.document import Document, Entry

Severity = Literal["error", "warning"]

CONTAINER_OF: Mapping[str, str] = {item: container for container, item in ITEM_OF.items()}
FORMS = frozenset({"UserFillUp", "Answer"})
SET_BY_A_RUN = frozenset({"sys.chat_template_kwargs"})
_REF_FIELDS = frozenset({"cpn_id", "items_ref", "ref", "split_ref", "query", "variable", "visual_files_var"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect. `node` is an id, None for the canvas as a whole; the message is for people."""

    severity: Severity
    node: str | None
    field: str | None
    message: str


@dataclass(frozen=True, slots=True)
class _Way:
    """A way that a run may take from one node to another, and the field that says so."""

    source: str
    field: str
    target: str


def check(document: Document) -> list[Finding]:
    """Every defect of a document: of the whole first, then node by node in component order."""
    entries = document.entries
    ways = {entry.id: list(_ways(entry)) for entry in entries.values()}
    items = _items(entries)
    unreached = _unreached(entries, ways, items)
    cyclic = _cyclic(entries, ways)
    findings = list(_entrance(entries))
    for entry in entries.values():
        findings += _home(entries, entry, items)
        for way in ways[entry.id]:
            findings += _way(entries, entry, way)
        if entry.id in cyclic:
            findings.append(
                _warning(entry, "downstream", "it begins a cycle that is no Loop, so nothing bounds its rounds")
            )
        if entry.id in unreached:
            findings.append(_warning(entry, None, "no way leads to it from begin, so it never runs"))
        findings += _unknown_names(document, entry)
    return findings


def _entrance(entries: Mapping[str, Entry]) -> Iterator[Finding]:
    if not entries:
        yield Finding("error", None, "components", "The canvas has no nodes. Add a Begin node with the id `begin`.")
    elif "begin" not in entries:
        message = "The canvas has no node with the id `begin`, where every run starts. Add one."
        yield Finding("error", None, "components", message)


# -- containers -------------------------------------------------------------------------------------------------------


def _items(entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    """The item nodes inside of each parent, in component order; the first one starts the passes."""
    items: dict[str, list[str]] = {}
    for entry in entries.values():
        if entry.component in CONTAINER_OF and entry.parent is not None:
            items.setdefault(entry.parent, []).append(entry.id)
    return items


def _home(entries: Mapping[str, Entry], entry: Entry, items: Mapping[str, list[str]]) -> Iterator[Finding]:
    """Whether a node stands where it may."""
    parent = entries.get(entry.parent) if entry.parent is not None else None
    if entry.parent is not None and parent is None:
        yield _error(entry, "parent_id", f"its container {entry.parent} does not exist")
    elif parent is not None and parent.component not in ITEM_OF:
        yield _error(entry, "parent_id", f"its container {parent.id} is a {parent.component}, not an Iteration or Loop")
    if wanted := CONTAINER_OF.get(entry.component):
        if parent is None or parent.component != wanted:
            yield _error(entry, "parent_id", f"it must stand inside of a node of the type {wanted}")
        elif items[parent.id][0] != entry.id:
            yield _warning(entry, "parent_id", f"its container {parent.id} starts at {items[parent.id][0]} instead")
    if entry.component == "ExitLoop" and (parent is None or parent.component != "Loop"):
        yield _error(entry, "parent_id", "it must stand directly inside of a Loop, which it ends")
    if entry.component in FORMS and (container := _side_by_side(entries, entry)):
        reason = f"a run cannot wait for a person inside of {container}, whose items run side by side"
        yield _error(entry, "parent_id", f"{reason}. Set its max_concurrency to 1 or move the node")


def _side_by_side(entries: Mapping[str, Entry], entry: Entry) -> str | None:
    """The nearest container around a node that runs its items side by side."""
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
    """The containers around a node, innermost first."""
    parent = entry.parent
    while parent is not None and parent in entries:
        yield parent
        parent = entries[parent].parent


# -- ways -------------------------------------------------------------------------------------------------------------


def _ways(entry: Entry) -> Iterator[_Way]:
    for target in entry.downstream:
        yield _Way(entry.id, "downstream", target)
    for field, target in (*edges.choices(entry.params), *edges.exits(entry.params)):
        yield _Way(entry.id, field, target)


def _way(entries: Mapping[str, Entry], entry: Entry, way: _Way) -> Iterator[Finding]:
    target = entries.get(way.target)
    if target is None and way.field == "downstream":
        yield _error(entry, way.field, f"it leads to {way.target}, which does not exist")
    elif target is None:
        yield _warning(entry, way.field, f"it names {way.target}, which does not exist, so nothing follows there")
    elif target.id == entry.id:
        yield _error(entry, way.field, "it leads to itself")
    elif target.parent is not None and target.parent not in (entry.parent, *_around(entries, entry)):
        reason = f"it leads to {target.id} inside of {target.parent}. A body is entered through its container only"
        yield _error(entry, way.field, reason)
    elif target.parent != entry.parent:
        reason = (
            f"it leads to {target.id} outside of {entry.parent}. A body is left through its container or an ExitLoop"
        )
        yield _warning(entry, way.field, reason)


def _unreached(
    entries: Mapping[str, Entry], ways: Mapping[str, list[_Way]], items: Mapping[str, list[str]]
) -> set[str]:
    """The nodes that no way leads to from `begin`; with no `begin` that is nothing to speak of."""
    if "begin" not in entries:
        return set()
    reached: set[str] = set()
    todo = ["begin"]
    while todo:
        node = todo.pop()
        if node not in reached and node in entries:
            reached.add(node)
            todo += items.get(node, [])
            todo += [way.target for way in ways[node]]
    return set(entries) - reached


def _cyclic(entries: Mapping[str, Entry], ways: Mapping[str, list[_Way]]) -> set[str]:
    """The first node, in component order, of every cycle that neither an item node nor an Answer is part of.

    Ways to an item node end a pass, and an Answer ends a turn: what goes around through them is meant to.
    """
    ends = {entry.id for entry in entries.values() if entry.component in CONTAINER_OF or entry.component == "Answer"}
    followers = {
        node_id: [way.target for way in ways[node_id] if way.target in entries and way.target not in ends]
        for node_id in entries
        if node_id not in ends
    }
    order = {node_id: position for position, node_id in enumerate(entries)}
    knots = (knot for knot in _knots(followers) if len(knot) > 1)
    return {min(knot, key=lambda node_id: order[node_id]) for knot in knots}


def _knots(followers: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """Strongly connected components (Tarjan), without recursion, so that long chains do not exhaust the stack."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    held: dict[str, None] = {}
    for root in followers:
        if root in index:
            continue
        trail = [(root, iter(followers[root]))]
        index[root] = low[root] = len(index)
        held[root] = None
        while trail:
            node, rest = trail[-1]
            follower = next(rest, None)
            if follower is None:
                trail.pop()
                if trail:
                    above = trail[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    yield _released(held, node)
            elif follower not in index:
                index[follower] = low[follower] = len(index)
                held[follower] = None
                trail.append((follower, iter(followers[follower])))
            elif follower in held:
                low[node] = min(low[node], index[follower])


def _released(held: dict[str, None], node: str) -> list[str]:
    knot: list[str] = []
    while not knot or knot[-1] != node:
        knot.append(held.popitem()[0])
    return knot


# -- references -------------------------------------------------------------------------------------------------------


def _unknown_names(document: Document, entry: Entry) -> Iterator[Finding]:
    """References in texts, and in fields that are references as a whole, to what the canvas does not have."""
    seen: set[str] = set()
    for field, text in _texts("", entry.params):
        refs = [found.ref for found in references.find(text)]
        bare = references.parse(text)
        if bare and (_last(field) in _REF_FIELDS or (bare.node and ":" in bare.node)):
            refs.append(bare)
        for ref in refs:
            if not _is_known(document, ref) and ref.expression not in seen:
                seen.add(ref.expression)
                yield _warning(
                    entry, field, f"it refers to {ref.expression}, which does not exist, and fails when it reads it"
                )


def _is_known(document: Document, ref: references.Ref) -> bool:
    if ref.node is not None:
        return ref.node in document.entries
    return ref.root in document.globals or ref.root in SET_BY_A_RUN


def _texts(field: str, value: Any) -> Iterator[tuple[str, str]]:
    """(field, text) of every text inside a JSON value; `parse` has bounded its depth."""
    match value:
        case str():
            yield field, value
        case Mapping():
            for key, item in value.items():
                yield from _texts(f"{field}.{key}" if field else str(key), item)
        case list():
            for position, item in enumerate(value):
                yield from _texts(f"{field}[{position}]", item)
        case _:
            pass


def _last(field: str) -> str:
    return field.rpartition(".")[2].partition("[")[0]


# -- findings ---------------------------------------------------------------------------------------------------------


def _error(entry: Entry, field: str | None, reason: str) -> Finding:
    return Finding("error", entry.id, field, f"{_named(entry)}: {reason}.")


def _warning(entry: Entry, field: str | None, reason: str) -> Finding:
    return Finding("warning", entry.id, field, f"{_named(entry)}: {reason}.")


def _named(entry: Entry) -> str:
    return f'Node "{entry.name}" ({entry.id})' if entry.name else f"Node {entry.id}"


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that keep a canvas from running."""
    return [finding for finding in findings if finding.severity == "error"]
