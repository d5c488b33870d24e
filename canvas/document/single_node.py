"""One node alone: the document of a run that executes a single node of a canvas, with given inputs.

The run begins at a Begin without a form, which leads to the node. A container keeps its body. Edges to all other nodes
are cut. Nodes whose outputs are read stay as placeholders without an edge: they never run, and their outputs are those
that are given. Branches and failures name their targets as before, so a router says where it would go, and nothing
follows there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canvas.document import containers, defaults, references
from canvas.document.document import BEGIN, Document, Entry, branch_targets
from canvas.document.password_fields import GIVEN_PASSWORDS, password_names
from canvas.errors import InvalidRequest

INPUT_NODE = "NodeInput"
"""The placeholder whose outputs are the inputs that replace parameters; `_` is added while the canvas has this id."""

_PLACEHOLDER = "VariableAssigner"  # with nothing to assign
_BODY_ONLY = frozenset({"IterationItem", "LoopItem", "ExitLoop"})


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """What a node that runs alone is given.

    globals: values of `sys.x` and `env.x`, and of the names that only a container defines (`item`).
    outputs: node -> output -> value, of other nodes.
    params: parameters that replace those of the node, whole.
    answers: answers to the fields of its form; None if it has no form.
    files: descriptors of `sys.files`; None if they are not given.
    names: what was given, as written.
    warnings: what has no effect, or is missing and therefore empty.
    """

    globals: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answers: Mapping[str, Any] | None = None
    files: Sequence[Mapping[str, Any]] | None = None
    names: Sequence[str] = ()
    warnings: Sequence[str] = ()


def require_runnable_alone(entry: Entry) -> None:
    """Raise InvalidRequest for a node that has a meaning only with others."""
    if entry.component in _BODY_ONLY:
        container = f" Run its container {entry.parent} instead." if entry.parent else ""
        raise InvalidRequest(f"{entry.id} ({entry.component}) only runs as a part of a container.{container}")
    if entry.component == "Answer":
        raise InvalidRequest(
            f"{entry.id} (Answer) waits for the next message of a conversation. Run the agent instead."
        )


def input_node_id(document: Document) -> str:
    """Return the id of the placeholder for inputs; the document has no such node."""
    node_id = INPUT_NODE
    while node_id in document.entries:
        node_id += "_"
    return node_id


def nodes_alone(document: Document, node_id: str) -> list[str]:
    """Return the node and, for a container, the nodes of its body at any depth."""
    bodies = containers.bodies(document.entries)
    found = [node_id]
    for each in found:
        found += bodies.get(each, ())
    return found


def outside_references(document: Document, node_id: str) -> Iterator[tuple[str, str]]:
    """Yield (node, output) of everything that the node or its body reads from other nodes of the canvas."""
    kept = nodes_alone(document, node_id)
    inside = set(kept)
    seen: set[tuple[str, str]] = set()
    for each in kept:
        for read in sorted(references.names_in(dict(document.entries[each].params)).nodes):
            if read[0] in document.entries and read[0] not in inside and read not in seen:
                seen.add(read)
                yield read


def isolate(document: Document, node_id: str, inputs: NodeInputs) -> dict[str, Any]:
    """Return the document that executes the node alone, as upstream-shaped JSON; the values are those of a new run."""
    kept = nodes_alone(document, node_id)
    read = [*inputs.outputs, *(node for node, _ in outside_references(document, node_id))]
    components: dict[str, Any] = {}
    if node_id != BEGIN:
        layout = document.begin_params.get("layout_recognize")
        forms = {each: document.entries[each] for each in read if each in document.entries}
        passwords = {each: names for each, entry in forms.items() if (names := password_names(entry.params))}
        params = {"layout_recognize": layout, GIVEN_PASSWORDS: passwords}
        components[BEGIN] = _component("Begin", {name: each for name, each in params.items() if each}, [node_id])
    for each in kept:
        entry = document.entries[each]
        is_node = each == node_id
        params = {**_without_goto(entry.params), **inputs.params} if is_node else dict(entry.params)
        downstream = [] if is_node else [target for target in entry.downstream if target in kept]
        components[each] = _component(entry.component, params, downstream, None if is_node else entry.parent)
    for each in read:
        components.setdefault(each, _component(_PLACEHOLDER, {"variables": []}, []))
    named = [*components, *(target for _, target in branch_targets(document.entries[node_id].params))]
    return {
        "components": components,
        "graph": {"nodes": [_drawing_of(document, each) for each in dict.fromkeys(named)], "edges": []},
        "globals": defaults.initial_globals(document),
        "variables": dict(document.variables),
        "path": [],
        "history": [],
        "retrieval": [],
        "memory": [],
    }


def _without_goto(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a node without the nodes that a failure leads to, so that its failure is the run's."""
    if params.get("exception_method") != "goto":
        return dict(params)
    return {name: value for name, value in params.items() if not name.startswith("exception_")}


def _component(
    component: str, params: Mapping[str, Any], downstream: Sequence[str], parent: str | None = None
) -> dict[str, Any]:
    place = {"parent_id": parent} if parent is not None else {}
    obj = {"component_name": component, "params": dict(params)}
    return {"obj": obj, "downstream": list(downstream), "upstream": [], **place}


def _drawing_of(document: Document, node_id: str) -> dict[str, Any]:
    entry = document.entries.get(node_id)
    return {"id": node_id, "data": {"name": entry.name if entry is not None else ""}}
