"""What a node may look up: worked out once per version and node from its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from canvas import collecting, references
from canvas.graph import Canvas, Kind, Node

ALWAYS = frozenset({"sys.query", "sys.files", "sys.chat_template_kwargs"})
"""Globals that a model node reads without naming them (components 3.4)."""


@dataclass(frozen=True, slots=True)
class Reads:
    """nodes: whose outputs; names: which variables, "env.x" or "Node@output"; entry: containers collected for."""

    nodes: frozenset[str]
    names: frozenset[str]
    mentions: frozenset[str]  # nodes the node's own texts refer to
    collects: Mapping[str, tuple[str, str]]
    uses_history: bool
    uses_files: bool


def reads_of(canvas: Canvas, node: Node) -> Reads:
    """Everything the node's parameters refer to, and what its kind needs besides."""
    sources: list[Mapping[str, Any]] = [node.params]
    parent = canvas.nodes[node.parent] if node.parent is not None else None
    own = references.names_in(node.params)
    is_visit = node.kind.is_item or node.kind is Kind.EXIT_LOOP
    if is_visit and parent is not None:
        sources.append(parent.params)
    turn = canvas.turns.get(node.number)
    if turn is not None:
        sources.append(canvas.nodes[turn.message].params)
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
    for container in canvas.containers_of(node.number):
        nodes.add(canvas.nodes[canvas.items[container]].id)
        if canvas.nodes[container].kind is Kind.LOOP:
            nodes.add(canvas.nodes[container].id)
            names |= _outputs(canvas.nodes[container])
    asks_model = node.kind is Kind.MODEL or node.component.lower() == "categorize"
    if asks_model:
        names |= ALWAYS
    return Reads(
        nodes=frozenset(node_id for node_id in nodes if node_id in canvas.numbers),
        names=frozenset(names),
        mentions=frozenset(node_id for node_id, _ in own.nodes),
        collects=collecting.refs_of(parent.params) if node.kind is Kind.ITERATION_ITEM and parent else {},
        uses_history="sys.history" in names,
        uses_files="sys.files" in names,
    )


def _outputs(node: Node) -> set[str]:
    outputs = node.params.get("outputs")
    declared = set(outputs) if isinstance(outputs, Mapping) else set[str]()
    for row in node.params.get("loop_variables") or ():
        if isinstance(row, Mapping) and isinstance(row.get("variable"), str):
            declared.add(row["variable"])
    return {f"{node.id}@{name}" for name in declared}
