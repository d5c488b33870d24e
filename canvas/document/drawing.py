"""The drawing of a canvas (`graph`), which an editor shows. Some documents have a drawing and no `components`.

`components_of` derives the entries of a document that has only a drawing, `derive` those of an unfinished one.
`with_drawing` draws a document that has only entries, and normalizes plain edge handles. Apart from display names and
parents, a drawing never affects a run.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from canvas.errors import InvalidCanvas

Fields: TypeAlias = dict[str, Any]

DRAWN_ONLY = frozenset({"Note", "Tool", "Placeholder"})  # labels of drawn nodes that are not components
MODEL_SETTINGS: Mapping[str, str] = {
    "temperature": "temperatureEnabled",
    "top_p": "topPEnabled",
    "presence_penalty": "presencePenaltyEnabled",
    "frequency_penalty": "frequencyPenaltyEnabled",
    "max_tokens": "maxTokensEnabled",
}
MAX_AGENT_DEPTH = 8

_NODE_TYPES: Mapping[str, str] = {
    "Agent": "agentNode",
    "Begin": "beginNode",
    "Categorize": "categorizeNode",
    "DataOperations": "dataOperationsNode",
    "ExitLoop": "exitLoopNode",
    "Iteration": "iterationNode",
    "IterationItem": "iterationStartNode",
    "ListOperations": "listOperationsNode",
    "Loop": "loopNode",
    "LoopItem": "loopStartNode",
    "Message": "messageNode",
    "Retrieval": "retrievalNode",
    "Switch": "switchNode",
    "VariableAggregator": "variableAggregatorNode",
    "VariableAssigner": "variableAssignerNode",
}


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A drawn node. `label` is its component, `form` its params as the editor stores them."""

    id: str
    label: str
    name: str
    form: Mapping[str, Any]
    parent: str | None


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """A drawn edge between two handles of nodes."""

    source: str
    target: str
    source_handle: str
    target_handle: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """The well-formed part of a `graph`. `defects` lists what was left out: (field, reason)."""

    nodes: Mapping[str, DrawnNode] = field(default_factory=dict)
    leaving: Mapping[str, tuple[DrawnEdge, ...]] = field(default_factory=dict)
    entering: Mapping[str, tuple[DrawnEdge, ...]] = field(default_factory=dict)
    defects: tuple[tuple[str, str], ...] = ()

    def targets(self, source: str, handle: str) -> list[str]:
        """Return the targets drawn from one handle of a node."""
        return self.by_handle(source).get(handle, [])

    def by_handle(self, source: str) -> Mapping[str, list[str]]:
        """Return the targets drawn from each handle of a node."""
        targets: dict[str, list[str]] = {}
        for edge in self.leaving.get(source, ()):
            targets.setdefault(edge.source_handle, []).append(edge.target)
        return targets


def parse_drawing(graph: Any) -> Drawing:
    """Parse a `graph`. Fields other than those of Node and Edge concern the editor only and are ignored."""
    if not isinstance(graph, Mapping):
        return Drawing()
    nodes: dict[str, DrawnNode] = {}
    leaving: dict[str, list[DrawnEdge]] = defaultdict(list)
    entering: dict[str, list[DrawnEdge]] = defaultdict(list)
    defects: list[tuple[str, str]] = []
    for place, item in _items(graph, "nodes", defects):
        if node := _node(item):
            nodes[node.id] = node
        else:
            defects.append((place, "a drawn node must be an object with a text `id`"))
    for place, item in _items(graph, "edges", defects):
        if edge := _edge(item):
            leaving[edge.source].append(edge)
            entering[edge.target].append(edge)
        else:
            defects.append((place, "a drawn edge must be an object with a text `source` and `target`"))
    return Drawing(nodes, _tuples(leaving), _tuples(entering), tuple(defects))


def node_type_of(component: str) -> str:
    """Return the type of node that RAGFlow's editor draws for a component."""
    return _NODE_TYPES.get(component, "ragNode")


def components_of(graph: Any) -> dict[str, Any]:
    """Return the `components` of a drawing. Raises InvalidCanvas if a part of it cannot be read."""
    drawing = parse_drawing(graph)
    for place, defect in drawing.defects:
        raise InvalidCanvas(f"{place}: {defect}.", field=place)
    return {node.id: _component(drawing, node) for node in drawing.nodes.values() if _is_component(drawing, node)}


@dataclass(frozen=True, slots=True)
class Derivation:
    """The `components` of a drawing that may be unfinished: ids of its nodes, entries, and why others have none."""

    drawn: tuple[str, ...]
    entries: Mapping[str, Any]
    errors: Mapping[str, InvalidCanvas]


def derive(graph: Any) -> Derivation:
    """Return the entries of a drawing as far as it can be read."""
    drawing = parse_drawing(graph)
    entries: Fields = {}
    errors: dict[str, InvalidCanvas] = {}
    for node in drawing.nodes.values():
        if _is_component(drawing, node):
            try:
                entries[node.id] = _component(drawing, node)
            except InvalidCanvas as error:
                errors[node.id] = error
    return Derivation(tuple(drawing.nodes), entries, errors)


def with_drawing(dsl: Mapping[str, Any]) -> Fields:
    """Return the document for an editor: with a drawing if it has none, and with plain handles by convention."""
    graph = dsl.get("graph")
    if not isinstance(graph, Mapping) or not isinstance(graph.get("nodes"), list):
        components = dsl.get("components")
        drawn = _draw_components(components if isinstance(components, Mapping) else {})
        return {**dsl, "graph": {**(graph if isinstance(graph, Mapping) else {}), **drawn}}
    edges = graph.get("edges")
    plain = [_normalize_handles(edge) for edge in edges] if isinstance(edges, list) else []
    return {**dsl, "graph": {**graph, "edges": plain}}


def category_rows(items: Iterable[Any], targets: Mapping[str, list[str]]) -> Fields:
    """Return an editor's category rows as `category_description`; `targets`: node ids drawn from each row's uuid."""
    categories: Fields = {}
    for item in items:
        if not isinstance(item, Mapping):
            continue
        category = {key: value for key, value in item.items() if key not in ("name", "uuid")}
        category["examples"] = values_of(item.get("examples"), "value")
        category["to"] = targets.get(str(item.get("uuid")), []) or item.get("to") or []
        categories[str(item.get("name") or "")] = category
    return categories


def values_of(rows: Any, key: str) -> Any:
    """Return an editor's rows `{key: value}` as the list of their values; rows without the key are unchanged."""
    if not isinstance(rows, list):
        return rows or []
    return [row[key] if isinstance(row, Mapping) and key in row else row for row in rows]


def _node(item: Any) -> DrawnNode | None:
    if not isinstance(item, Mapping) or not isinstance(node_id := item.get("id"), str):
        return None
    data = item.get("data")
    data = data if isinstance(data, Mapping) else {}
    form = data.get("form")
    return DrawnNode(
        node_id,
        label=_text(data.get("label")),
        name=_text(data.get("name")),
        form=form if isinstance(form, Mapping) else {},
        parent=_text(item.get("parentId")) or None,
    )


def _edge(item: Any) -> DrawnEdge | None:
    if not isinstance(item, Mapping):
        return None
    source, target = item.get("source"), item.get("target")
    if not isinstance(source, str) or not isinstance(target, str):
        return None
    return DrawnEdge(source, target, _text(item.get("sourceHandle")), _text(item.get("targetHandle")))


def _items(graph: Mapping[str, Any], key: str, defects: list[tuple[str, str]]) -> list[tuple[str, Any]]:
    items = graph.get(key)
    if items is None:
        return []
    if not isinstance(items, list):
        defects.append((f"graph.{key}", "must be a list"))
        return []
    return [(f"graph.{key}[{position}]", item) for position, item in enumerate(items)]


def _tuples(lists: Mapping[str, list[DrawnEdge]]) -> dict[str, tuple[DrawnEdge, ...]]:
    return {key: tuple(edges) for key, edges in lists.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_component(drawing: Drawing, node: DrawnNode) -> bool:
    is_sub_agent = any(edge.target_handle == "agentTop" for edge in drawing.entering.get(node.id, ()))
    return node.label not in DRAWN_ONLY and not is_sub_agent


def _component(drawing: Drawing, node: DrawnNode) -> Fields:
    entry: Fields = {
        "obj": {"component_name": node.label, "params": _params(drawing, node, depth=1)},
        "downstream": [
            edge.target for edge in drawing.leaving.get(node.id, ()) if _can_be_followed(drawing, node, edge)
        ],
        "upstream": [edge.source for edge in drawing.entering.get(node.id, ())],
    }
    return {**entry, "parent_id": node.parent} if node.parent else entry


def _can_be_followed(drawing: Drawing, node: DrawnNode, edge: DrawnEdge) -> bool:
    """Whether a run can follow an edge: it leads to no tool, sub-agent or note, and is not an exception edge."""
    target = drawing.nodes.get(edge.target)
    if edge.target_handle == "agentTop" or (target and target.label in DRAWN_ONLY):
        return False
    return node.label != "Agent" or not (edge.source_handle == "agentException" or edge.target.startswith("Tool"))


def _params(drawing: Drawing, node: DrawnNode, depth: int) -> Fields:
    form = dict(node.form)
    match node.label:
        case "Agent":
            return _agent_params(drawing, node, depth)
        case "Categorize":
            return _categorize_params(drawing, node)
        case "DataOperations":
            rows = {"query": "input", "select_keys": "name", "remove_keys": "name"}
            return {**form, **{key: values_of(form[key], row) for key, row in rows.items() if key in form}}
        case "Begin" if form.get("mode") == "Webhook":
            return _webhook_params(form)
        case _:
            return form


def _agent_params(drawing: Drawing, node: DrawnNode, depth: int) -> Fields:
    if depth > MAX_AGENT_DEPTH:
        raise InvalidCanvas(
            f'Node "{node.name}" ({node.id}): sub-agents are nested deeper than {MAX_AGENT_DEPTH} levels.',
            node=node.id,
            field="tools",
        )
    tools = node.form.get("tools")
    below = [drawing.nodes[it] for it in dict.fromkeys(drawing.targets(node.id, "agentBottom")) if it in drawing.nodes]
    return {
        **node.form,
        "exception_goto": drawing.targets(node.id, "agentException"),
        "tools": [*(tools if isinstance(tools, list) else []), *(_sub_agent(drawing, sub, depth) for sub in below)],
    }


def _sub_agent(drawing: Drawing, node: DrawnNode, depth: int) -> Fields:
    """Return a sub-agent as a tool. Only one agent may have it: sharing would copy its tools into every agent above."""
    above = {edge.source for edge in drawing.entering[node.id] if edge.source_handle == "agentBottom"}
    if len(above) > 1:
        raise InvalidCanvas(
            f'Node "{node.name}" ({node.id}): a sub-agent belongs to one agent, here to {", ".join(sorted(above))}.',
            node=node.id,
            field="graph.edges",
        )
    params = _agent_params(drawing, node, depth + 1)
    return {"component_name": "Agent", "id": node.id, "name": node.name, "params": params}


def _categorize_params(drawing: Drawing, node: DrawnNode) -> Fields:
    dropped = {"items", "parameter", *MODEL_SETTINGS.values()}
    dropped.update(setting for setting, flag in MODEL_SETTINGS.items() if not node.form.get(flag))
    params = {key: value for key, value in node.form.items() if key not in dropped}
    items = node.form.get("items")
    if isinstance(items, list):
        params["category_description"] = category_rows(items, drawing.by_handle(node.id))
    return params


def _webhook_params(form: Fields) -> Fields:
    """Convert a webhook's schema rows to JSON schemas, and the rows of its security block to plain lists."""
    params = dict(form)
    if isinstance(schema := form.get("schema"), Mapping):
        lists = {key: _schema(rows) for key, rows in schema.items() if isinstance(rows, list)}
        params["schema"] = {**schema, **lists}
    if isinstance(security := form.get("security"), Mapping):
        params["security"] = _security(security)
    return params


def _schema(rows: list[Any]) -> Fields:
    named = [row for row in rows if isinstance(row, Mapping) and isinstance(row.get("key"), str)]
    return {
        "type": "object",
        "required": [row["key"] for row in named if row.get("required")],
        "properties": {row["key"]: {"type": row.get("type")} for row in named},
    }


def _security(security: Mapping[str, Any]) -> Fields:
    plain = dict(security)
    if "ip_whitelist" in plain:
        plain["ip_whitelist"] = values_of(plain["ip_whitelist"], "value")
    if isinstance(jwt := plain.get("jwt"), Mapping) and "required_claims" in jwt:
        plain["jwt"] = {**jwt, "required_claims": values_of(jwt["required_claims"], "value")}
    if plain.get("auth_type") != "none":
        plain.pop("allow_anonymous", None)
    return plain


def _draw_components(components: Mapping[str, Any]) -> Fields:
    """Draw one node per component, in a row, and its edges. Entries are those of a parsed document."""
    nodes: list[Fields] = []
    edges: list[Fields] = []
    for position, node_id in enumerate(sorted(components)):
        entry = components[node_id]
        obj = entry["obj"]
        label = obj["component_name"]
        node: Fields = {
            "id": node_id,
            "type": node_type_of(label),
            "position": {"x": 50 + 350 * position, "y": 200},
            "data": {"label": label, "name": node_id, "form": obj["params"]},
        }
        nodes.append({**node, "parentId": entry["parent_id"]} if entry.get("parent_id") else node)
        edges.extend(_draw_edge(node_id, target) for target in dict.fromkeys(entry["downstream"]))
    return {"nodes": nodes, "edges": edges}


def _draw_edge(source: str, target: str) -> Fields:
    return {
        "id": f"xy-edge__{source}-{target}",
        "source": source,
        "target": target,
        "sourceHandle": "start",
        "targetHandle": "end",
    }


def _normalize_handles(edge: Any) -> Any:
    if not isinstance(edge, Mapping):
        return edge
    plain = dict(edge)
    for key, convention in (("sourceHandle", "start"), ("targetHandle", "end")):
        if edge.get(key) in (None, "", "start", "end"):
            plain[key] = convention
    return plain
