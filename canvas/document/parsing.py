"""Conversion of upstream-shaped JSON to a Document and back.

`parse` runs these steps: JSON that can be stored (`json_checks`), current component names (`component_names`), entries
from the drawing if the document has none (`drawing`), one shape of entry, and main shapes of params
(`parameter_aliases`, `containers`). `Document.raw` keeps everything the author wrote, so unknown fields survive the
round trip.
"""

import copy
from collections.abc import Mapping
from typing import Any, TypeAlias

from canvas.document import component_names, containers, defaults, drawing, json_checks, parameter_aliases
from canvas.document.document import Document, Entry, Json
from canvas.errors import InvalidCanvas

MAX_BYTES = 8 * 1024 * 1024
MAX_NODES = 5000  # reachability takes a bit for each pair of nodes: 3 MB in every process that runs the canvas
MAX_EDGES = 50_000

Fields: TypeAlias = dict[str, Any]


def parse(source: str | bytes | Mapping[str, Any], *, max_bytes: int = MAX_BYTES) -> Document:
    """Parse a stored or uploaded canvas.

    Accepts what upstream and its ports store: missing parts, entries nested or flat, old names, a drawing without
    entries, a file that wraps the document in `dsl`. Raises InvalidCanvas naming node and field. Conditions across
    nodes are checked by `canvas.validation.check`.
    """
    written = json_checks.parse_json(source, max_bytes) if isinstance(source, str | bytes) else source
    if not isinstance(written, Mapping):
        raise InvalidCanvas("DSL must be a JSON object.")
    renamed = component_names.rename_components(_unwrap(json_checks.copy_storable(written)))
    if renamed.get("components") is None:
        renamed["components"] = drawing.components_of(renamed.get("graph"))
    return _document(renamed)


def dump(document: Document) -> dict[str, Any]:
    """Return the document as upstream-shaped JSON, unknown fields included; it shares nothing with the document."""
    return copy.deepcopy(
        {
            **document.raw,
            "globals": dict(document.globals),
            "variables": dict(document.variables),
            "history": list(document.history),
            "retrieval": list(document.retrieval),
            "memory": list(document.memory),
        }
    )


def _unwrap(written: Fields) -> Fields:
    """Return the document inside a template or export file, which wraps it in `dsl`."""
    inner = written.get("dsl")
    if isinstance(inner, dict) and "components" not in written and "graph" not in written:
        return inner
    return written


def _document(written: Fields) -> Document:
    components = _object(written, "components")
    _check_size("nodes", len(components), MAX_NODES)
    drawn = drawing.parse_drawing(written.get("graph"))
    entries = {node_id: _entry(node_id, item, drawn) for node_id, item in components.items()}
    _check_size("edges", sum(len(set(entry["downstream"])) for entry in entries.values()), MAX_EDGES)
    variables = _variables(written)
    loaded = defaults.complete_globals(_object(written, "globals"), variables)
    history = [_history_item(position, item) for position, item in enumerate(_list(written, "history"))]
    memory = [_memory_item(position, item) for position, item in enumerate(_list(written, "memory"))]
    one_or_more = written.get("retrieval")
    retrieval = [one_or_more] if isinstance(one_or_more, dict) else _list(written, "retrieval")
    raw: Fields = {
        **written,
        "components": entries,
        "path": _texts(_list(written, "path"), "path"),
        "history": history,
        "retrieval": retrieval,
        "memory": memory,
        "globals": loaded,
        "variables": variables,
    }
    return Document(
        _build_entries(entries, drawn), raw, loaded, variables, tuple(history), tuple(retrieval), tuple(memory)
    )


def _check_size(what: str, count: int, most: int) -> None:
    if count > most:
        message = f"The canvas has {count} {what}, and {most} are allowed. Split it into several agents."
        raise InvalidCanvas(message, field="components")


def _build_entries(raw_entries: Mapping[str, Fields], drawn: drawing.Drawing) -> dict[str, Entry]:
    """Return the entries in the main shape, without nodes that only a drawing has, and without edges to these."""
    shown = {node_id for node_id, raw in raw_entries.items() if raw["obj"]["component_name"] in drawing.DRAWN_ONLY}
    entries: dict[str, Entry] = {}
    for node_id, raw in raw_entries.items():
        if node_id in shown:
            continue
        node = drawn.nodes.get(node_id)
        parent = raw.get("parent_id") or (node.parent if node and node.parent in raw_entries else None)
        entries[node_id] = Entry(
            id=node_id,
            component=component_names.canonical(raw["obj"]["component_name"]),
            params=raw["obj"]["params"],
            downstream=tuple(dict.fromkeys(target for target in raw["downstream"] if target not in shown)),
            upstream=tuple(dict.fromkeys(source for source in raw["upstream"] if source not in shown)),
            parent=parent,
            name=node.name if node else "",
        )
    return parameter_aliases.resolve_local_names(
        containers.add_item_nodes(parameter_aliases.normalize_parameters(entries, drawn))
    )


def _entry(node_id: str, item: Any, drawn: drawing.Drawing) -> Fields:
    """Return an entry, nested or flat, in the nested shape."""
    node = drawn.nodes.get(node_id)
    where = f'Node "{node.name}" ({node_id})' if node and node.name else f"Node {node_id or '(without id)'}"
    try:
        if not node_id:
            raise _BadField("id", "must not be empty")
        return _nest_entry(item)
    except _BadField as bad:
        raise InvalidCanvas(f"{where}: `{bad.field}` {bad.reason}.", node=node_id, field=bad.field) from None


class _BadField(Exception):
    """Raised for a field of an entry with a wrong value."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason


def _nest_entry(item: Any) -> Fields:
    """Return an entry as `{obj: {component_name, params}, downstream, upstream, ...}`; ports write it flat."""
    if not isinstance(item, dict):
        raise _BadField("components", "must hold an object for every node")
    rest = dict(item)
    obj = rest.pop("obj", None)
    if obj is None:
        name = rest.pop("name", None)
        obj = {"component_name": rest.pop("component_name", None) or name, "params": rest.pop("params", None)}
    if not isinstance(obj, dict):
        raise _BadField("obj", "must be an object")
    obj = dict(obj)
    inner = {key: obj.pop(key, None) for key in ("downstream", "upstream")}
    edges = {key: _ids(key, inner[key] if rest.get(key) is None else rest[key]) for key in inner}
    name = obj.get("component_name")
    if not isinstance(name, str) or not name.strip():
        raise _BadField("component_name", "must name a component")
    params = obj.get("params")
    if not isinstance(params, dict | None):
        raise _BadField("params", "must be an object")
    if not isinstance(rest.get("parent_id"), str | None):
        raise _BadField("parent_id", "must be a node id")
    return {"obj": {**obj, "component_name": name.strip(), "params": params or {}}, **rest, **edges}


def _ids(key: str, value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(node_id, str) for node_id in value):
        raise _BadField(key, "must be a list of node ids")
    return value


def _variables(written: Fields) -> Fields:
    if written.get("variables") == []:
        return {}
    variables = _object(written, "variables")
    for name, variable in variables.items():
        if not isinstance(variable, dict):
            raise InvalidCanvas(f"`variables.{name}` must be an object.", field=f"variables.{name}")
    return variables


def _history_item(position: int, item: Any) -> list[Json]:
    """Return a message of the history as [role, content]; a port writes objects."""
    match item:
        case {"role": str() as role}:
            return [role, item.get("content")]
        case [str() as role, content, *_]:
            return [role, content]
        case _:
            raise InvalidCanvas(f"`history[{position}]` must be [role, content].", field=f"history[{position}]")


def _memory_item(position: int, item: Any) -> list[Json]:
    """Return a memory as [user, assistant, summary]; a port writes objects."""
    match item:
        case {"user": user, "assistant": assistant}:
            return [user, assistant, item.get("summary")]
        case list():
            return item
        case _:
            where = f"memory[{position}]"
            raise InvalidCanvas(f"`{where}` must be [user, assistant, summary].", field=where)


def _object(written: Fields, key: str) -> Fields:
    value = written.get(key)
    if not isinstance(value, dict | None):
        raise InvalidCanvas(f"`{key}` must be an object.", field=key)
    return value or {}


def _list(written: Fields, key: str) -> list[Json]:
    value = written.get(key)
    if not isinstance(value, list | None):
        raise InvalidCanvas(f"`{key}` must be a list.", field=key)
    return value or []


def _texts(items: list[Json], key: str) -> list[str]:
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) < len(items):
        raise InvalidCanvas(f"`{key}` must be a list of texts.", field=key)
    return texts
