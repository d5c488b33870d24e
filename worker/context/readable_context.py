"""The part of a node's context that reads: which node it is, and the values that it refers to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from canvas.document import references
from canvas.document.drawing import parse_drawing
from canvas.document.references import Ref
from canvas.errors import UnresolvedReference
from canvas.graph.canvas import Canvas, Node, NodeKind
from scheduler.coordinator.version_cache import CompiledVersion
from store.runs.activations import Claim
from worker.context.variables import NodeVariables

ITERATION_NAMES = frozenset({"item", "index", "result"})


@dataclass(kw_only=True)
class ReadableContext:
    """One attempt's view of its node and of the values that were read for it."""

    claim: Claim
    compiled: CompiledVersion
    node: Node
    variables: NodeVariables
    choice_seed: str = ""  # "": the run's id
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])  # what the component noted

    node_id: str = field(init=False)
    name: str = field(init=False)
    component: str = field(init=False)
    params: Mapping[str, Any] = field(init=False)
    parent_id: str | None = field(init=False)
    run_id: str = field(init=False)
    activation_id: str = field(init=False)
    canvas_id: str = field(init=False)
    visit: int = field(init=False)
    scope_item: int = field(init=False)

    def __post_init__(self) -> None:
        node, claim = self.node, self.claim
        self.node_id, self.name, self.component, self.params = node.id, node.name, node.component, node.params
        self.parent_id = self._canvas.nodes[node.parent].id if node.parent is not None else None
        self.run_id, self.activation_id = str(claim.run_id), str(claim.id)
        self.choice_seed = self.choice_seed or self.run_id
        self.canvas_id = claim.canvas_id.hex
        self.visit = claim.ordinal
        self.scope_item = claim.scope[-1][2] if claim.scope else 0

    @property
    def _canvas(self) -> Canvas:
        return self.compiled.canvas

    def lookup(self, expression: str) -> Any:
        """Return the value that a reference points at; its type is preserved."""
        ref = references.parse_reference(expression)
        if ref.node is None:
            return self._global(ref, expression)
        if ref.node not in self._canvas.numbers:
            raise self._unknown_reference(expression)
        outputs = self._outputs(ref.node)
        return references.get_path(outputs.get(ref.root, ""), ref.path)

    def _outputs(self, node_id: str) -> Mapping[str, Any]:
        outputs = self.variables.outputs(node_id)
        spoken = outputs.get("_spoken")
        return {**outputs, "content": spoken} if spoken is not None and self.streams_from(node_id) else outputs

    def _global(self, ref: Ref, expression: str) -> Any:
        if ref.root in self.variables.globals:
            return self.variables.globals[ref.root]
        found, value = self._find_in_containers(ref.root)
        if not found:
            raise self._unknown_reference(expression)
        return value

    def _find_in_containers(self, name: str) -> tuple[bool, Any]:
        """Return (found, value) of `item`, `index` or `result` of the innermost Iteration, or of a Loop's variable."""
        for number in self._canvas.containers_of(self.node.number):
            container = self._canvas.nodes[number]
            is_own = self._canvas.items[number] == self.node.number  # an item node does not refer to its own outputs
            if container.kind is NodeKind.ITERATION and name in ITERATION_NAMES and not is_own:
                return True, self.variables.outputs(self._canvas.nodes[self._canvas.items[number]].id).get(name)
            if container.kind is NodeKind.LOOP and name in (outputs := self.variables.outputs(container.id)):
                return True, outputs[name]
        return False, None

    def _unknown_reference(self, expression: str) -> UnresolvedReference:
        name = expression.strip("{} ")
        return UnresolvedReference(f"Can't find variable: '{name}'", reference=name, node=self.node.id)

    def is_reference(self, text: str) -> bool:
        """Return whether the whole text is one reference to something that exists."""
        ref = references.parse(text)
        if ref is None:
            return False
        return ref.node in self._canvas.numbers if ref.node is not None else ref.root in self.variables.globals

    def exists(self, expression: str) -> bool:
        """Return whether `lookup` finds it."""
        ref = references.parse_reference(expression)
        if ref.node is not None:
            return ref.node in self._canvas.numbers
        return ref.root in self.variables.globals or self._find_in_containers(ref.root)[0]

    def has_run(self, node_id: str) -> bool:
        return self.variables.has_run(node_id)

    def display_name(self, node_id: str) -> str:
        number = self._canvas.numbers.get(node_id)
        if number is not None:
            return self._canvas.nodes[number].name
        drawn = parse_drawing(self.compiled.document.raw.get("graph")).nodes.get(node_id)
        return drawn.name if drawn is not None else ""  # the target of a router that runs alone

    def previous_output(self, name: str) -> Any:
        return self.variables.outputs(self.node.id).get(name)

    def previous_inputs(self) -> Mapping[str, Any]:
        return self.variables.run_inputs.base.get("inputs") or {}

    @property
    def answers(self) -> Mapping[str, Any] | None:
        if self.node.kind is NodeKind.BEGIN:
            return self.variables.run_inputs.request.get("inputs")
        if self.node.kind is NodeKind.ANSWER and self.claim.answers is not None:
            return {"query": self.variables.run_inputs.request.get("query")}
        return self.claim.answers

    @property
    def webhook_payload(self) -> Mapping[str, Any] | None:
        return self.variables.run_inputs.request.get("webhook_payload")

    def note_input(self, name: str, value: Any) -> None:
        self.inputs[name] = value

    def node_components(self) -> Mapping[str, str]:
        return {node.id: node.component for node in self._canvas.nodes}

    def parent_params(self) -> Mapping[str, Any]:
        return self._canvas.nodes[self.node.parent].params if self.node.parent is not None else {}

    def collected_lists(self) -> Mapping[str, list[Any]]:
        return self.variables.collected_lists

    def container_outputs(self) -> Mapping[str, Any]:
        return self.variables.outputs(self.parent_id) if self.parent_id is not None else {}

    def descriptors(self, expression: str) -> list[Mapping[str, Any]]:
        """Return file descriptors: the turn's uploads, or those that a form stored beside the text of a file field."""
        ref = references.parse_reference(expression)
        if ref.node is None:
            found = self.variables.run_inputs.base.get("files", ()) if ref.root == "sys.files" else ()
        else:
            stored = self.variables.outputs(ref.node).get("_files") if ref.node in self._canvas.numbers else None
            found = stored.get(ref.root, ()) if isinstance(stored, Mapping) else ()
        return [file for file in found if isinstance(file, Mapping)]

    def streams_from(self, node_id: str) -> bool:
        number = self._canvas.numbers.get(node_id)
        target = self._canvas.stream_targets.get(number) if number is not None else None
        return target is not None and target.message == self.node.number
