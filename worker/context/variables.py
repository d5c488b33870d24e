"""Node outputs and globals as one attempt sees them: declared names, values of earlier turns, values of this run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from canvas.document import references
from canvas.document.document import Entry
from canvas.graph import container_outputs, parallel_items
from canvas.graph.canvas import Canvas, Node, NodeKind
from canvas.state.run_state import ScopeKey, container_entry
from components.text.extraction.file_texts import UnparsedFile
from scheduler.coordinator.run_start import GIVEN
from scheduler.coordinator.version_cache import CompiledVersion
from scheduler.views.run_view import history_line
from store.agents import conversations
from store.db.transaction import Transaction
from store.runs import values
from store.runs.activations import Claim
from store.runs.values import PendingValues, StoredValue
from worker.caches.outputs import read_view_of
from worker.caches.run_inputs import RunInputs
from worker.caches.value_caches import ValueCaches
from worker.context.read_set import Collected, ReadSet, items_ref
from worker.threads.computing_threads import COMPUTING_THREADS

Declared = Callable[[Entry], tuple[str, ...]]
ReadFile = Callable[[Mapping[str, Any], str], str | UnparsedFile]


class NodeVariables:
    """The values that one attempt may read, all read before it starts."""

    def __init__(
        self,
        tx: Transaction,
        claim: Claim,
        compiled: CompiledVersion,
        reads: ReadSet,
        caches: ValueCaches,
        *,
        declared: Declared,
        may_be_assigned: bool,
    ) -> None:
        receive_run_inputs = caches.run_inputs.load(tx, claim)
        self._claim = claim
        self._compiled = compiled
        self._declared = declared
        self._lists = caches.lists
        self._view = read_view_of(claim)
        is_first_visit = not claim.ordinal and not claim.scope and claim.answers is None
        nodes = reads.nodes - {claim.node_id} if is_first_visit else reads.nodes
        cached = caches.outputs.get_visible(self._view, nodes - reads.items)
        outputs = self._latest(values.query_outputs, tx, nodes - cached.keys(), reads)
        waited = values.query_awaited_outputs(
            tx, self._view, {node: shared_iteration(compiled.canvas, claim.scope, node) for node in reads.waits_for}
        )
        names = reads.names if may_be_assigned else frozenset[str]()
        variables = self._latest(values.query_variables, tx, names, reads)
        self.run_inputs = receive_run_inputs()
        found = outputs()
        caches.outputs.put_read(self._view, found)
        self._outputs, self._variables = {**cached, **found, **waited()}, variables()
        self.globals: dict[str, Any] = dict(self.run_inputs.base["globals"])
        self.globals |= {name: found.value for name, found in self._variables.items() if "@" not in name}
        if reads.uses_history and "sys.history" not in self.globals:
            self.globals["sys.history"] = _read_history(tx, claim)
        self._shows_uploads = reads.uses_files and "sys.files" not in self._variables
        self.globals.setdefault("sys.history", [])
        self.globals.setdefault("sys.files", [])
        self._collected: dict[str, dict[str, list[Any]]] = {}
        self._collected = self._collect(tx, compiled.canvas.node(claim.node_id), reads)

    def read_files(self, read_file: ReadFile) -> None:
        """Set `sys.files` to the texts of the turn's uploads, if the node reads it. Opens transactions of its own."""
        if self._shows_uploads:
            self.globals["sys.files"] = _read_uploads(self.run_inputs, self._compiled, read_file)

    def outputs(self, node_id: str) -> dict[str, Any]:
        """Return a node's outputs; a declared output that was not set yet is null."""
        entry = self._compiled.document.entries[node_id]
        outputs: dict[str, Any] = dict.fromkeys(self._declared(entry))
        outputs |= self.run_inputs.base["values"].get(node_id, {})
        found = self._outputs.get(node_id)
        outputs |= found.value if found is not None else {}
        order_key = found.order_key if found is not None else b""
        prefix = f"{node_id}@"
        for name, assigned in self._variables.items():
            if name.startswith(prefix) and assigned.order_key >= order_key:
                outputs[name.removeprefix(prefix)] = assigned.value
        return outputs | self._collected.get(node_id, {})

    def has_run(self, node_id: str) -> bool:
        """Return whether a node has run in this run, as far as the attempt sees, or its outputs are given."""
        return node_id in self._outputs or node_id in self.run_inputs.base.get(GIVEN, ())

    @property
    def collected_lists(self) -> Mapping[str, list[Any]]:
        """Lists that the container around the node has collected so far."""
        return self._collected.get(self._claim.scope[-1][0], {}) if self._claim.scope else {}

    def _latest(
        self, ask: Callable[..., PendingValues], tx: Transaction, names: frozenset[str], reads: ReadSet
    ) -> PendingValues:
        """Request the latest values of nodes or variables. An item node's list is read once, not at each visit."""
        run_id = self._claim.run_id
        lists = names & reads.items
        cached = self._lists.get_lists(run_id, lists)
        pending = ask(tx, self._view, names, cached=cached)

        def receive() -> dict[str, StoredValue]:
            values_found = pending()
            for name in lists & values_found.keys():
                if values_found[name] is not cached.get(name):
                    self._lists.put_list(run_id, name, values_found[name])
            return values_found

        return receive

    # -- collecting ---------------------------------------------------------------------------------------------
    def _collect(self, tx: Transaction, node: Node, reads: ReadSet) -> dict[str, dict[str, list[Any]]]:
        """Return what the containers around the node have collected from earlier passes, by container."""
        if node.kind is NodeKind.ITERATION_ITEM and self._has_more(node):
            return {}  # only the last visit reads what was collected
        found: dict[str, dict[str, list[Any]]] = {}
        scope = self._claim.scope
        for depth, (container_id, _, count) in enumerate(scope, start=1):
            refs = reads.collects.get(container_id)
            if refs is not None and count:
                found[container_id] = self._collect_container(tx, container_id, refs, scope[:depth])
        return found

    def _has_more(self, item_node: Node) -> bool:
        """Return whether the list has an item for this visit. With parallel items only the last visit has none."""
        claim, canvas = self._claim, self._compiled.canvas
        container = canvas.node(claim.scope[-1][0])
        if parallel_items.requested_concurrency(container.params) > 1:
            return claim.order_key.level == 0
        ref = items_ref(canvas, container)
        if ref.node is None:
            value = self.globals.get(ref.root)
        elif ref.node in canvas.numbers:
            value = references.get_path(self.outputs(ref.node).get(ref.root), ref.path)
        else:
            return False
        return isinstance(value, list) and claim.scope[-1][2] < len(value)

    def _collect_container(
        self, tx: Transaction, container_id: str, refs: Collected, scope: ScopeKey
    ) -> dict[str, list[Any]]:
        """Return the lists of one container, up to the pass of a scope."""
        claim, canvas = self._claim, self._compiled.canvas
        container = canvas.node(container_id)
        is_side_by_side = parallel_items.requested_concurrency(container.params) > 1
        children = container_outputs.collected_children(refs)
        if is_side_by_side:
            children = [child.id for child in canvas.children(container.number)]
        if not children:
            return {}
        count, entry = scope[-1][2], container_entry(scope)
        passes = values.load_iteration_outputs(tx, claim.run_id, entry, children, claim.activated_rev, before=count)
        before = None if is_side_by_side else self._outputs_before(tx, entry, children)
        collected: dict[str, list[Any]] = container_outputs.collect(refs, passes, count, before)
        if is_side_by_side:
            item_node = canvas.nodes[canvas.items[container.number]]
            collected["_result"] = container_outputs.outputs_per_item(passes, item_node.id, count)
        return collected

    def _outputs_before(self, tx: Transaction, entry: str, children: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the outputs that the children had before the container was entered."""
        earlier = values.query_outputs(tx, self._view, children, not_in=entry)()
        outputs: dict[str, dict[str, Any]] = {}
        for child in children:
            entries = self._compiled.document.entries
            values_of_child: dict[str, Any] = dict.fromkeys(self._declared(entries[child])) if child in entries else {}
            values_of_child |= self.run_inputs.base["values"].get(child, {})
            values_of_child |= earlier[child].value if child in earlier else {}
            outputs[child] = values_of_child
        return outputs


def _read_history(tx: Transaction, claim: Claim) -> list[str]:
    entries = conversations.load_history(tx, claim.conversation_id, claim.history_upto, claim.history_upto)
    return [history_line(entry["role"], entry["content"]) for entry in entries]


def _read_uploads(run_inputs: RunInputs, compiled: CompiledVersion, read_file: ReadFile) -> list[str]:
    begin = compiled.document.entries["begin"].params
    layout = begin.get("layout_recognize")
    texts: list[str] = []
    # one by one, so that they are not all in memory at the same time
    for descriptor in run_inputs.base.get("files", ()):
        file = read_file(descriptor, layout if isinstance(layout, str) else "")
        with COMPUTING_THREADS.waiting():  # a child process reads it
            texts.append(file.text_blocking() if isinstance(file, UnparsedFile) else file)
    return texts


def shared_iteration(canvas: Canvas, scope: ScopeKey, node_id: str) -> tuple[str, int] | None:
    """Return (entry, item) of the container of a node if a reader in `scope` is in it too, else None.

    A node outside of any container has ("", 0).
    """
    parent = canvas.node(node_id).parent
    if parent is None:
        return "", 0
    depth = next((at for at, (name, _, _) in enumerate(scope, 1) if name == canvas.nodes[parent].id), None)
    return (container_entry(scope[:depth]), scope[depth - 1][2]) if depth is not None else None
