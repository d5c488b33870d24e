"""Warnings that follow from the order in which nodes run: values that are read before they can have been set.

A node that runs only after its reader cannot have set a value for it: values of the previous run are cleared when a
run starts. Bodies are the exception, since a pass sees values of earlier passes. So only nodes in different containers,
or in none, are compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from canvas.document import references
from canvas.document.document import Document, Entry
from canvas.graph.canvas import Canvas, NodeKind, bits
from canvas.graph.reachability import compute_reachability
from canvas.validation.findings import Finding, warning
from canvas.validation.paths import Path
from canvas.validation.reference_scan import ReferenceUse


@dataclass(frozen=True, slots=True)
class Order:
    """Which nodes can have run before which."""

    canvas: Canvas
    above: Sequence[int]  # per node, the mask of nodes from which a path leads to it
    unreached: AbstractSet[str]

    @classmethod
    def of(cls, canvas: Canvas, ways: Mapping[str, Sequence[Path]], unreached: AbstractSet[str]) -> "Order":
        """Compute the order from the paths of a canvas."""
        numbers = canvas.numbers
        reach = compute_reachability(
            parents=[node.parent for node in canvas.nodes],
            targets=[
                [numbers[way.target] for way in ways[node.id] if way.is_taken and way.target in numbers]
                for node in canvas.nodes
            ],
            roots=[canvas.begin, *canvas.items.values()],
            items=frozenset(canvas.items.values()),
            mentions=[() for _ in canvas.nodes],
        )
        return cls(canvas, reach.above, unreached)

    def runs_later(self, node: str, reader: str) -> bool:
        """Whether a node runs only after its reader."""
        later, earlier = self._outermost(node), self._outermost(reader)
        if later == earlier:
            return node == reader and self._runs_once(later, node)
        return bool(self.above[later] >> earlier & 1) and not self.above[earlier] >> later & 1

    def _outermost(self, node: str) -> int:
        number = self.canvas.numbers[node]
        return (number, *self.canvas.containers_of(number))[-1]

    def _runs_once(self, outermost: int, node: str) -> bool:
        found = self.canvas.nodes[outermost]
        return found.id == node and not found.kind.is_container and not self.canvas.may_repeat(outermost)


def unset_read_warnings(
    document: Document, order: Order, found: Mapping[str, Sequence[ReferenceUse]], written: AbstractSet[tuple[str, str]]
) -> Iterator[Finding]:
    """Yield warnings for references to nodes that cannot have run yet. `written`: outputs that an assigner sets."""
    for entry in document.entries.values():
        if entry.id in order.unreached:
            continue
        unused = set(_unused_alternatives(entry, order, written))
        for read in found[entry.id]:
            if read.is_target or (read.ref.node, read.ref.root) in written or read.field in unused:
                continue
            if (reason := _why_nothing(entry.id, read.ref, order)) is not None:
                yield warning(entry, read.field, "reads_nothing", f"{reason}, so it reads nothing")
        for field in sorted(unused):
            reason = "it refers to a node that cannot have run by then, so another text of this Message is always used"
            yield warning(entry, field, "never_said", reason)


def uncalled_model_warnings(document: Document, order: Order) -> Iterator[Finding]:
    """Yield warnings for model nodes that are never called, because the Message after them does not refer to them."""
    for number in bits(order.canvas.uncalled_models):
        entry = document.entries[order.canvas.nodes[number].id]
        if entry.id not in order.unreached:
            reason = (
                f"a Message follows and nothing refers to {entry.id}@content, so its model is never called. "
                f"Refer to {{{entry.id}@content}} in the Message"
            )
            yield warning(entry, None, "never_called", reason)


def _unused_alternatives(entry: Entry, order: Order, written: AbstractSet[tuple[str, str]]) -> Iterator[str]:
    """Yield the fields of a Message's alternative texts that are never used, if another one can be."""
    texts = entry.params.get("content")
    if order.canvas.node(entry.id).kind is not NodeKind.MESSAGE or not isinstance(texts, list) or len(texts) < 2:
        return
    fields = [
        f"content[{place}]"
        for place, text in enumerate(texts)
        if isinstance(text, str) and _reads_nothing(entry.id, text, order, written)
    ]
    if len(fields) < len(texts):
        yield from fields


def _reads_nothing(reader: str, text: str, order: Order, written: AbstractSet[tuple[str, str]]) -> bool:
    return any(
        (found.ref.node, found.ref.root) not in written and _why_nothing(reader, found.ref, order) is not None
        for found in references.find(text)
    )


def _why_nothing(reader: str, ref: references.Ref, order: Order) -> str | None:
    """Return why a reference never finds a value; None if it may find one."""
    if ref.node is None or ref.node not in order.canvas.numbers:
        return None
    if ref.node in order.unreached:
        return f"it refers to {ref.expression}, and {ref.node} never runs"
    if ref.node == reader and order.runs_later(reader, reader):
        return f"it refers to {ref.expression}, its own output"
    if order.runs_later(ref.node, reader):
        return f"it refers to {ref.expression}, and {ref.node} runs only after it"
    return None
