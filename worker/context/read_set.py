"""What a node may read, computed once per version and node from its parameters."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from canvas.document import references
from canvas.document.references import Ref
from canvas.graph import container_outputs, parallel_items
from canvas.graph.canvas import Canvas, Node, NodeKind
from components import tools

IMPLICIT_GLOBALS = frozenset({"sys.query", "sys.files", "sys.chat_template_kwargs"})
"""Globals that models and tools read although no parameter names them."""


Collected = Mapping[str, tuple[str, str]]
"""Output of a container -> the child that it is collected from, and the output of the child."""


@dataclass(frozen=True, slots=True)
class ReadSet:
    """nodes: whose outputs the node may read; names: which variables, "env.x" or "Node@output".

    waits_for: nodes that the node waits for because it refers to them; they are read wherever they are.
    collects: by container around the node, what the container collects and the node may read.
    items: the source of the list that an item node's container goes through, a name or a node; it may be large.
    """

    nodes: frozenset[str]
    names: frozenset[str]
    mentions: frozenset[str]  # nodes the node's own texts refer to
    waits_for: frozenset[str]
    collects: Mapping[str, Collected]
    items: frozenset[str]
    uses_history: bool
    uses_files: bool


def compute_read_set(canvas: Canvas, node: Node) -> ReadSet:
    """Return everything that the node's parameters refer to, and what its kind of node needs besides."""
    sources: list[Mapping[str, Any]] = [node.params]
    parent = canvas.nodes[node.parent] if node.parent is not None else None
    own = references.names_in(node.params)
    is_visit = node.kind.is_item or node.kind is NodeKind.EXIT_LOOP
    if is_visit and parent is not None:
        sources.append(parent.params)
    target = canvas.stream_targets.get(node.number)
    if target is not None:
        sources.append(canvas.nodes[target.message].params)
    nodes: set[str] = {node.id}
    names: set[str] = set()
    for source in sources:
        found = references.names_in(source)
        nodes |= {node_id for node_id, _ in found.nodes}
        names |= {f"{node_id}@{root}" for node_id, root in found.nodes} | set(found.globals)
    names |= _outputs(node)
    if is_visit and parent is not None:
        nodes.add(parent.id)
        names |= _outputs(parent)
    if _resets_outputs(canvas, node):
        nodes.discard(node.id)
        names -= _outputs(node)
    for container in canvas.containers_of(node.number):
        nodes.add(canvas.nodes[canvas.items[container]].id)
        if canvas.nodes[container].kind is NodeKind.LOOP:
            nodes.add(canvas.nodes[container].id)
            names |= _outputs(canvas.nodes[container])
    asks_model = node.kind is NodeKind.MODEL or node.component.lower() == "categorize"
    if asks_model or tools.find(node.component) is not None:
        names |= IMPLICIT_GLOBALS
    return ReadSet(
        nodes=frozenset(node_id for node_id in nodes if node_id in canvas.numbers),
        names=frozenset(names),
        mentions=frozenset(node_id for node_id, _ in own.nodes),
        waits_for=frozenset(
            other.id for other in canvas.nodes if canvas.reachability.soft_dependencies[node.number] & other.bit
        ),
        collects=_collected_refs(canvas, node, nodes),
        items=_items(canvas, parent) if node.kind is NodeKind.ITERATION_ITEM and parent is not None else frozenset(),
        uses_history="sys.history" in names,
        uses_files="sys.files" in names,
    )


def _resets_outputs(canvas: Canvas, node: Node) -> bool:
    """Return whether a node must not read its outputs of the previous pass: where items overlap, they may be missing.

    The node does not need them, because it sets all its outputs in every pass.
    """
    parent = canvas.nodes[node.parent] if node.parent is not None else None
    return parent is not None and parallel_items.pipelined_levels(canvas, parent) > 0


def _collected_refs(canvas: Canvas, node: Node, nodes: Collection[str]) -> dict[str, Collected]:
    """Return what the sequential Iterations around a node collect, where the node reads it while it grows."""
    found: dict[str, Collected] = {}
    for number in canvas.containers_of(node.number):
        container = canvas.nodes[number]
        is_visit = canvas.items[number] == node.number
        is_watched = container.id in nodes and parallel_items.requested_concurrency(container.params) <= 1
        if container.kind is NodeKind.ITERATION and (is_visit or is_watched):
            found[container.id] = container_outputs.collected_refs(canvas, container)
    return found


def _items(canvas: Canvas, container: Node) -> frozenset[str]:
    """Return the node that the list comes from, and the variable that may hold it."""
    ref = items_ref(canvas, container)
    return frozenset({ref.node, f"{ref.node}@{ref.root}"} if ref.node is not None else {ref.root})


def items_ref(canvas: Canvas, container: Node) -> Ref:
    """Return the source of an Iteration's list. `{item}` is the item of the Iteration around it."""
    ref = references.parse_reference(str(container.params.get("items_ref") or ""))
    for number in canvas.containers_of(container.number) if ref.is_alias else ():
        if canvas.nodes[number].kind is NodeKind.ITERATION:
            return Ref(canvas.nodes[canvas.items[number]].id, ref.root)
    return ref


def _outputs(node: Node) -> set[str]:
    outputs = node.params.get("outputs")
    declared = set(outputs) if isinstance(outputs, Mapping) else set[str]()
    for row in node.params.get("loop_variables") or ():
        if isinstance(row, Mapping) and isinstance(row.get("variable"), str):
            declared.add(row["variable"])
    return {f"{node.id}@{name}" for name in declared}
