"""The graph of a canvas as its author drew it, for pages that show it: nodes, branches and edges without parameters.

Nodes that only a drawing has (notes, tools, sub-agents) are included, and so are entries that are not drawn, without a
position. Nothing is laid out here: `drawn` says whether every node has a place of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canvas.document import component_names, drawing
from canvas.document.document import BEGIN, Document, Entry

Fields = dict[str, Any]

SIZES: Mapping[str, tuple[float, float]] = {
    "iterationNode": (560, 260),
    "loopNode": (560, 260),
    "iterationStartNode": (80, 45),
    "loopStartNode": (80, 45),
    "noteNode": (240, 120),
}
DEFAULT_SIZE = (200, 49)
ELSE_BRANCH = "end_cpn_ids"
_STARTS = frozenset({"IterationItem", "LoopItem"})
_AGENT_HANDLES = ("agentTop", "agentBottom")


def graph_json(document: Document) -> Fields:
    """Return `{drawn, nodes, edges, size, components}`; positions of nodes with a parent are relative to it."""
    graph = document.raw.get("graph")
    items = graph.get("nodes") if isinstance(graph, Mapping) else None
    drawn: dict[str, Mapping[str, Any]] = {
        item["id"]: item
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, Mapping) and isinstance(item.get("id"), str)
    }
    ids = [*drawn, *(node_id for node_id in document.entries if node_id not in drawn)]
    nodes = [_node(node_id, drawn.get(node_id, {}), document.entries.get(node_id)) for node_id in ids]
    is_drawn = _is_drawn(nodes)
    branches = {node["id"]: {branch["key"] for branch in node["branches"]} for node in nodes}
    has_edges = bool(drawn) and isinstance(graph, Mapping) and isinstance(graph.get("edges"), list)
    edges = _drawn_edges(graph, drawn, branches) if has_edges else _entry_edges(document)
    return {
        "drawn": is_drawn,
        "nodes": nodes,
        "edges": list(edges),
        "size": _size(nodes) if is_drawn else None,
        "components": sorted({node["component"] for node in nodes if node["component"]}),
    }


# -- nodes ------------------------------------------------------------------------------------------------------------
def _node(node_id: str, item: Mapping[str, Any], entry: Entry | None) -> Fields:
    data = _object(item.get("data"))
    label = entry.component if entry is not None else component_names.canonical(_text(data.get("label")))
    kind = _text(item.get("type")) or drawing.node_type_of(label)
    position, measured = _object(item.get("position")), _object(item.get("measured"))
    return {
        "id": node_id,
        "kind": kind,
        "component": label,
        "name": (entry.name if entry is not None else "") or _text(data.get("name")) or node_id,
        "x": _number(position.get("x")),
        "y": _number(position.get("y")),
        "w": _first_number(item.get("width"), measured.get("width")),
        "h": _first_number(item.get("height"), measured.get("height")),
        "parent": (entry.parent if entry is not None else None) or _text(item.get("parentId")) or None,
        "branches": _branches(label, _object(data.get("form")), entry),
        "is_start": node_id == BEGIN or label in _STARTS,
    }


def _branches(label: str, form: Mapping[str, Any], entry: Entry | None) -> list[Fields]:
    """Return the branches of a Switch or Categorize in the order of its form; `key` is the handle of their edges."""
    params = entry.params if entry is not None else form
    match label:
        case "Switch":
            conditions = params.get("conditions")
            count = len(conditions) if isinstance(conditions, list | tuple) else 0
            cases = [f"Case {number}" for number in range(1, count + 1)]
            return [*({"key": case, "label": case} for case in cases), {"key": ELSE_BRANCH, "label": "Else"}]
        case "Categorize":
            items = form.get("items")
            if isinstance(items, list):
                rows = [row for row in items if isinstance(row, Mapping)]
                return [
                    {"key": _text(row.get("uuid")) or _text(row.get("name")), "label": _text(row.get("name"))}
                    for row in rows
                ]
            return [{"key": str(name), "label": str(name)} for name in _object(params.get("category_description"))]
        case _:
            return []


def _is_drawn(nodes: Sequence[Fields]) -> bool:
    """Return whether every node has a place of its own."""
    places = {(node["parent"], node["x"], node["y"]) for node in nodes}
    return bool(nodes) and len(places) == len(nodes) and all(None not in (node["x"], node["y"]) for node in nodes)


def _size(nodes: Sequence[Fields]) -> Fields:
    """Return the rectangle around the nodes outside of any container."""
    boxes = [
        (node["x"], node["y"], node["w"] or width, node["h"] or height)
        for node in nodes
        if node["parent"] is None
        for width, height in [SIZES.get(node["kind"], DEFAULT_SIZE)]
    ]
    if not boxes:
        return {"x": 0, "y": 0, "w": 0, "h": 0}
    left, top = min(x for x, *_ in boxes), min(y for _, y, *_ in boxes)
    right, bottom = max(x + w for x, _, w, _ in boxes), max(y + h for _, y, _, h in boxes)
    return {"x": left, "y": top, "w": right - left, "h": bottom - top}


# -- edges ------------------------------------------------------------------------------------------------------------
def _drawn_edges(
    graph: Any, drawn: Mapping[str, Mapping[str, Any]], branches: Mapping[str, set[str]]
) -> Iterator[Fields]:
    """Yield the edges of a drawing; those that are not well-formed are left out."""
    for position, item in enumerate(graph["edges"]):
        if not isinstance(item, Mapping):
            continue
        source, target = _text(item.get("source")), _text(item.get("target"))
        if not source or not target:
            continue
        handle = _text(item.get("sourceHandle"))
        yield {
            "id": _text(item.get("id")) or f"edge {position}",
            "from": source,
            "to": target,
            "branch": handle if handle in branches.get(source, ()) else None,
            "kind": _edge_kind(handle, _text(item.get("targetHandle")), _object(drawn.get(target, {}).get("data"))),
        }


def _edge_kind(source_handle: str, target_handle: str, target: Mapping[str, Any]) -> str:
    if source_handle == "agentException":
        return "exception"
    if source_handle == "tool" or target.get("label") == "Tool":
        return "tool"
    return "agent" if target_handle == "agentTop" or source_handle in _AGENT_HANDLES else "flow"


def _entry_edges(document: Document) -> Iterator[Fields]:
    """Yield the edges that a run can follow, for a document without drawn edges."""
    for entry in document.entries.values():
        by_target = _branch_targets(entry)
        goto = entry.params.get("exception_goto")
        exceptions = [target for target in goto if isinstance(target, str)] if isinstance(goto, list | tuple) else []
        for target in dict.fromkeys((*entry.downstream, *by_target)):
            for branch in by_target.get(target, [None]):
                yield _entry_edge(entry.id, target, branch, "flow")
        for target in dict.fromkeys(exceptions):
            yield _entry_edge(entry.id, target, None, "exception")


def _entry_edge(source: str, target: str, branch: str | None, kind: str) -> Fields:
    name = f"{source}>{target}" + (f" {branch}" if branch else "") + ("" if kind == "flow" else f" {kind}")
    return {"id": name, "from": source, "to": target, "branch": branch, "kind": kind}


def _branch_targets(entry: Entry) -> dict[str, list[str | None]]:
    """Return the branches that lead to each target of a Switch or Categorize, by target."""
    found: dict[str, list[str | None]] = {}
    match entry.component:
        case "Switch":
            conditions = entry.params.get("conditions")
            rows = conditions if isinstance(conditions, list | tuple) else ()
            for number, row in enumerate(rows, start=1):
                for target in _targets(_object(row).get("to")):
                    found.setdefault(target, []).append(f"Case {number}")
            for target in _targets(entry.params.get(ELSE_BRANCH)):
                found.setdefault(target, []).append(ELSE_BRANCH)
        case "Categorize":
            for name, row in _object(entry.params.get("category_description")).items():
                for target in _targets(_object(row).get("to")):
                    found.setdefault(target, []).append(str(name))
        case _:
            pass
    return found


def _targets(value: Any) -> list[str]:
    one_or_more = [value] if isinstance(value, str) else value
    return (
        [target for target in one_or_more if isinstance(target, str)] if isinstance(one_or_more, list | tuple) else []
    )


# -- values of a drawing, which may be anything ------------------------------------------------------------------------
def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _first_number(*values: Any) -> float | None:
    return next((number for number in map(_number, values) if number is not None), None)
