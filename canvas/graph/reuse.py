"""Which activations of a run a fork may take over, and which run again because something before them has changed.

`find_dirty` starts from the activations that a caller chose, and from what the caller edits. It adds everything that
these have caused in the source run:

- what an edge, or a path of edges, leads to, in the same scope and in the scopes around it;
- what reads one of their outputs or variables;
- in a Loop, all later passes; in an Iteration, the visit that collects, but not the other items, which share nothing;
- everything inside of a container that runs again.

One activation can only have caused another if the advance that applied the first came before or was the one that
activated the second, so a revision tells cause from coincidence. What is left is the same in a run with the edits.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from canvas.document import references
from canvas.document.references import Names
from canvas.graph.canvas import Canvas, Node, NodeKind
from canvas.ids import ActivationId
from canvas.state.run_state import ScopeKey


@dataclass(frozen=True, slots=True)
class SourceActivation:
    """An activation of the source run.

    `regions`: the isolation regions around its own that it reads, each with the last revision that it sees there.
    `applied_rev`: None if no advance has applied a report of it. `is_exit`: it has ended its container.
    """

    id: ActivationId
    node_id: str
    scope: ScopeKey
    ordinal: int
    order_key: bytes
    region: bytes
    regions: Mapping[bytes, int]
    activated_rev: int
    applied_rev: int | None
    is_exit: bool = False
    variables: Collection[str] = ()  # names of the variables that it has written


@dataclass(frozen=True, slots=True)
class Edits:
    """What a fork changes: outputs of activations, global variables, and nodes with other parameters."""

    outputs: Collection[ActivationId] = ()
    variables: Collection[str] = ()
    nodes: Collection[str] = ()


def find_dirty(
    canvas: Canvas, activations: Iterable[SourceActivation], chosen: Collection[ActivationId], edits: Edits
) -> frozenset[ActivationId]:
    """Return the ids of the activations that run again: the chosen ones, and what they or the edits have caused."""
    ordered = sorted(activations, key=lambda each: (each.activated_rev, each.order_key))
    return _Search(canvas, ordered, edits).run(chosen)


@dataclass(slots=True)
class _Search:
    canvas: Canvas
    activations: Sequence[SourceActivation]
    edits: Edits
    dirty: set[ActivationId] = field(default_factory=set[ActivationId])
    by_place: dict[tuple[ScopeKey, str, int], ActivationId] = field(
        default_factory=dict[tuple[ScopeKey, str, int], ActivationId]
    )
    in_scope: dict[ScopeKey, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """Per scope: the nodes that run again, or inside of which something does, and since which revision it counts."""
    first_dirty_pass: dict[tuple[ScopeKey, str, int], int] = field(default_factory=dict[tuple[ScopeKey, str, int], int])
    """Per entry of a container (scope around it, container, ordinal): the first pass in which anything runs again."""
    writers: dict[tuple[str, bytes], list[SourceActivation]] = field(
        default_factory=lambda: defaultdict(list[SourceActivation])
    )
    """By node or variable, and region: those that have written it, in canonical order."""
    names: dict[int, Names] = field(default_factory=dict[int, Names])

    def run(self, chosen: Collection[ActivationId]) -> frozenset[ActivationId]:
        for each in self.activations:
            self.by_place[each.scope, each.node_id, each.ordinal] = each.id
            for name in (each.node_id, *each.variables):
                self.writers[name, each.region].append(each)
            if each.is_exit and each.scope:
                self.writers[each.scope[-1][0], each.region].append(each)
        for found in self.writers.values():
            found.sort(key=lambda each: each.order_key)
        for each in self.activations:  # causes come before what they cause
            if each.id in chosen or each.node_id in self.edits.nodes or self._is_caused(each):
                self._mark(each)
        return frozenset(self.dirty)

    def _mark(self, activation: SourceActivation) -> None:
        self.dirty.add(activation.id)
        if activation.applied_rev is None:
            return  # it has caused nothing
        self._note(activation.scope, activation.node_id, activation.applied_rev)
        for depth in range(len(activation.scope)):
            outer, (container, ordinal, item) = activation.scope[:depth], activation.scope[depth]
            self._note(outer, container, activation.applied_rev)
            entry = (outer, container, ordinal)
            self.first_dirty_pass[entry] = min(item, self.first_dirty_pass.get(entry, item))

    def _note(self, scope: ScopeKey, node_id: str, revision: int) -> None:
        number = self.canvas.numbers.get(node_id)
        if number is not None:
            known = self.in_scope[scope]
            known[number] = min(revision, known.get(number, revision))

    def _is_caused(self, activation: SourceActivation) -> bool:
        node = (
            self.canvas.nodes[number] if (number := self.canvas.numbers.get(activation.node_id)) is not None else None
        )
        if node is None:
            return True  # the canvas does not have it any more
        return (
            self._is_inside_dirty(activation)
            or self._follows(activation, node)
            or self._is_in_later_pass(activation)
            or self._reads_changed(activation, node)
        )

    def _is_inside_dirty(self, activation: SourceActivation) -> bool:
        around = (
            self.by_place.get((activation.scope[:depth], *activation.scope[depth][:2]))
            for depth in range(len(activation.scope))
        )
        return any(container in self.dirty for container in around)

    def _follows(self, activation: SourceActivation, node: Node) -> bool:
        """Whether a path leads to it from a node of its scope that runs again, or a container around such a one."""
        above = self.canvas.reachability.above[node.number]
        return any(
            activation.activated_rev >= revision
            and (above >> number & 1 or self.canvas.containers_with_escaping_edges >> number & 1)
            for number, revision in self.in_scope.get(activation.scope, {}).items()
        )

    def _is_in_later_pass(self, activation: SourceActivation) -> bool:
        """Whether it is in a later pass of a Loop, or collects what the passes of its container have left."""
        for depth, (container, ordinal, item) in enumerate(activation.scope):
            first = self.first_dirty_pass.get((activation.scope[:depth], container, ordinal))
            if first is None or item <= first:
                continue
            is_collecting = activation.is_exit and depth == len(activation.scope) - 1
            if is_collecting or self.canvas.node(container).kind is NodeKind.LOOP:
                return True
        return False

    def _reads_changed(self, activation: SourceActivation, node: Node) -> bool:
        names = self._names_of(node)
        if self._reads_collected(activation, names):
            return True
        if any(self._has_changed(activation, read) for read in {read for read, _ in names.nodes} - {node.id}):
            return True
        variables = names.globals | {f"{owner}@{root}" for owner, root in names.nodes}
        return any(self._has_changed(activation, name, is_variable=True) for name in variables)

    def _reads_collected(self, activation: SourceActivation, names: Names) -> bool:
        """Whether it reads what a container around it has collected so far, and an earlier pass runs again."""
        read = {name for name, _ in names.nodes}
        for depth, (container, ordinal, item) in enumerate(activation.scope):
            first = self.first_dirty_pass.get((activation.scope[:depth], container, ordinal))
            if first is not None and first < item and (container in read or "result" in names.aliases):
                return True
        return False

    def _has_changed(self, reader: SourceActivation, name: str, *, is_variable: bool = False) -> bool:
        """Whether what the reader reads under a name was written by an activation that runs again, or is edited."""
        writer = self._latest_writer(reader, name)
        if writer is None:
            return is_variable and name in self.edits.variables
        return writer.id in self.dirty or (not is_variable and writer.id in self.edits.outputs)

    def _latest_writer(self, reader: SourceActivation, name: str) -> SourceActivation | None:
        """Return the last writer of a name, in canonical order, that the reader has seen."""
        found: list[SourceActivation] = []
        for region, revision in {**reader.regions, reader.region: reader.activated_rev}.items():
            for writer in reversed(self.writers.get((name, region), ())):
                is_before = region != reader.region or writer.order_key < reader.order_key
                if is_before and writer.applied_rev is not None and writer.applied_rev <= revision:
                    found.append(writer)
                    break
        return max(found, key=lambda writer: writer.order_key, default=None)

    def _names_of(self, node: Node) -> Names:
        """Return what a node refers to; an item node reads by the parameters of its container.

        What a container collects from its body is left out: only the visit that ends it reads that.
        """
        names = self.names.get(node.number)
        if names is None:
            nodes = [node]
            if node.kind.is_item and node.parent is not None:
                nodes.append(self.canvas.nodes[node.parent])
            params = [
                {name: value for name, value in each.params.items() if name != "outputs"}
                if each.kind.is_container
                else each.params
                for each in nodes
            ]
            names = self.names[node.number] = references.names_in(params)
        return names
