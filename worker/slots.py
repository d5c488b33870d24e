"""Node outputs and globals as one attempt sees them: declared names, what earlier turns left, what this run wrote."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from canvas import collecting
from canvas.document import Entry
from canvas.graph import Kind, Node
from canvas.state import entry_text
from scheduler.snapshots import history_line
from scheduler.versions import Compiled
from store import conversations, values
from store.activations import Claim
from store.database import Transaction
from store.values import Known, View
from worker.reads import Reads

Declared = Callable[[Entry], tuple[str, ...]]
ReadFile = Callable[[Mapping[str, Any], str], str]


class Slots:
    """The values at hand for one attempt, read in one go before it starts."""

    def __init__(
        self,
        tx: Transaction,
        claim: Claim,
        compiled: Compiled,
        reads: Reads,
        *,
        declared: Declared,
    ) -> None:
        self._claim = claim
        self._compiled = compiled
        self._declared = declared
        view = View(claim.run_id, claim.place, claim.limits)
        self._known: Known = values.latest(tx, view, reads.nodes, reads.names)
        self.globals: dict[str, Any] = dict(claim.base["globals"])
        self.globals |= {name: value for name, (value, _) in self._known.variables.items() if "@" not in name}
        if reads.uses_history and "sys.history" not in self.globals:
            self.globals["sys.history"] = _history(tx, claim)
        self._shows_uploads = reads.uses_files and "sys.files" not in self._known.variables
        self.globals.setdefault("sys.history", [])
        self.globals.setdefault("sys.files", [])
        node = compiled.canvas.node(claim.node_id)
        self.passes: Sequence[collecting.PassOutputs] = ()
        self.collected: dict[str, list[Any]] = {}
        if node.kind is Kind.ITERATION_ITEM:
            self._collect(tx, node, reads)

    def read_files(self, read_file: ReadFile) -> None:
        """Put the turn's uploads in their place, if the node looks at them. Opens transactions of its own."""
        if self._shows_uploads:
            self.globals["sys.files"] = _files(self._claim, self._compiled, read_file)

    def outputs(self, node_id: str) -> dict[str, Any]:
        """A node's output slots: null where declared and not yet set (components 1.2)."""
        entry = self._compiled.document.entries[node_id]
        slots: dict[str, Any] = dict.fromkeys(self._declared(entry))
        slots |= self._claim.base["values"].get(node_id, {})
        row, place = self._known.outputs.get(node_id, ({}, b""))
        slots |= row
        prefix = f"{node_id}@"
        for name, (value, written) in self._known.variables.items():
            if name.startswith(prefix) and written >= place:
                slots[name.removeprefix(prefix)] = value
        if node_id == self._collected_for:
            slots |= self.collected
        return slots

    def has_run(self, node_id: str) -> bool:
        """Whether a node has run in this run, as far as the attempt can see."""
        return node_id in self._known.outputs

    @property
    def _collected_for(self) -> str | None:
        return self._claim.scope[-1][0] if self.collected else None

    def _collect(self, tx: Transaction, node: Node, reads: Reads) -> None:
        """What the container has collected from the passes before this visit."""
        claim, refs = self._claim, reads.collects
        count = claim.scope[-1][2]
        entry = entry_text(claim.scope)
        container = self._compiled.canvas.node(claim.scope[-1][0])
        side_by_side = _concurrency(container.params) > 1
        if side_by_side and claim.place.wave == 0:
            return  # an item's own visit: only the last visit, in the container's region, collects
        children = collecting.children_collected(refs)
        if side_by_side:
            children = [child.id for child in self._compiled.canvas.children(container.number)]
        if not children or not count:
            return
        self.passes = values.of_passes(tx, claim.run_id, entry, children, claim.activated_rev)
        before = None if side_by_side else self._before(tx, entry, children)
        self.collected = collecting.collect(refs, self.passes, count, before)
        if side_by_side:
            self.collected["_result"] = collecting.per_item(self.passes, node.id, count)

    def _before(self, tx: Transaction, entry: str, children: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What the children held before the container was entered."""
        view = View(self._claim.run_id, self._claim.place, self._claim.limits)
        earlier = values.latest(tx, view, children, (), not_in=entry).outputs
        held: dict[str, dict[str, Any]] = {}
        for child in children:
            entries = self._compiled.document.entries
            slots: dict[str, Any] = dict.fromkeys(self._declared(entries[child])) if child in entries else {}
            slots |= self._claim.base["values"].get(child, {})
            slots |= earlier[child][0] if child in earlier else {}
            held[child] = slots
        return held


def _concurrency(params: Mapping[str, Any]) -> int:
    wanted = params.get("max_concurrency")
    return wanted if isinstance(wanted, int) else 0


def _history(tx: Transaction, claim: Claim) -> list[str]:
    entries = conversations.history(tx, claim.conversation_id, claim.history_upto, claim.history_upto)
    return [history_line(entry["role"], entry["content"]) for entry in entries]


def _files(claim: Claim, compiled: Compiled, read_file: ReadFile) -> list[str]:
    begin = compiled.document.entries["begin"].params
    layout = begin.get("layout_recognize")
    return [read_file(file, layout if isinstance(layout, str) else "") for file in claim.base.get("files", ())]
