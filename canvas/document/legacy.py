"""Old names of components, renamed on every load: the names themselves, ids that begin with them, and references.

Pure and idempotent; the input is never changed. An id keeps its old name if the new one is taken.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

RENAMED: Mapping[str, str] = {
    "Splitter": "TokenChunker",
    "HierarchicalMerger": "TitleChunker",
    "PDFGenerator": "DocGenerator",
    "DocsGenerator": "DocGenerator",
    "Generate": "LLM",
    "Fillup": "UserFillUp",
    "SearchMyDataset": "Retrieval",
    "search_my_dataset": "Retrieval",
    "search_my_dateset": "Retrieval",
    "Parallel": "Iteration",
}
DRAWN_AS: Mapping[str, str] = {"splitterNode": "chunkerNode", "parallelNode": "iterationNode"}
IMPLIED: Mapping[str, Mapping[str, Any]] = {
    "Parallel": {"max_concurrency": 4},  # what the old name says and the new one does not
    "Fillup": {"enable_tips": False},
}

_BY_LOWER_CASE = {old.lower(): old for old in RENAMED}
_TEXTS_WITH_IDS = ("components", "history", "messages", "reference")
_IN_BRACES = re.compile(r"(\{[ \t\n\r]*+)([A-Za-z0-9:_-]++)(@[A-Za-z0-9_.\[\]-]++[ \t\n\r]*+\})")
_BARE = re.compile(r"([A-Za-z0-9:_-]++)(@[A-Za-z0-9_.\[\]-]++)")

Ids: TypeAlias = Mapping[str, str]
Entry: TypeAlias = dict[str, Any]


def rename(source: Any) -> Any:
    """The document with today's names. Anything but an object is given back as it is."""
    if not isinstance(source, Mapping):
        return source
    ids = _renamed_ids(source)
    renamed = dict(source)
    for key in _TEXTS_WITH_IDS:
        if key in renamed:
            renamed[key] = _with_ids(renamed[key], ids)
    if isinstance(components := renamed.get("components"), Mapping):
        renamed["components"] = {ids.get(key, key): _with_new_name(entry) for key, entry in components.items()}
    if "path" in renamed:
        renamed["path"] = _with_ids(renamed["path"], ids)
    if isinstance(graph := renamed.get("graph"), Mapping):
        renamed["graph"] = _renamed_graph(graph, ids)
    return renamed


def current_name(name: str) -> str:
    """The component name of today for an old one, in any case; other names as they are."""
    old = _BY_LOWER_CASE.get(name.lower())
    return RENAMED[old] if old else name


def _renamed_ids(source: Mapping[str, Any]) -> dict[str, str]:
    """Old id -> new id, for all ids of the document that begin with an old name."""
    known = list(dict.fromkeys(_ids(source)))
    taken = set(known)
    renamed: dict[str, str] = {}
    for old in known:
        prefix, colon, rest = old.partition(":")
        new = f"{RENAMED[prefix]}:{rest}" if colon and prefix in RENAMED else old
        if new not in taken:
            taken.add(new)
            renamed[old] = new
    return renamed


def _ids(source: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(components := source.get("components"), Mapping):
        yield from (key for key in components if isinstance(key, str))
    if isinstance(graph := source.get("graph"), Mapping) and isinstance(nodes := graph.get("nodes"), list):
        for node in nodes:
            if isinstance(node, Mapping) and isinstance(node_id := node.get("id"), str):
                yield node_id


def _with_new_name(entry: Any) -> Any:
    """A components entry, nested or flat, with today's component name and what the old name implied."""
    if not isinstance(entry, Mapping):
        return entry
    if isinstance(obj := entry.get("obj"), Mapping):
        return {**entry, "obj": _renamed_object(obj, "component_name")}
    return _renamed_object(entry, "component_name" if "component_name" in entry else "name")


def _renamed_object(obj: Mapping[str, Any], name_key: str) -> Entry:
    renamed = dict(obj)
    name = renamed.get(name_key)
    old = _BY_LOWER_CASE.get(name.lower()) if isinstance(name, str) else None
    if old is None:
        return renamed
    renamed[name_key] = RENAMED[old]
    params = renamed.get("params")
    if old in IMPLIED and (params is None or isinstance(params, Mapping)):
        renamed["params"] = {**IMPLIED[old], **(params or {})}
    return renamed


def _renamed_graph(graph: Mapping[str, Any], ids: Ids) -> Entry:
    renamed = dict(graph)
    if isinstance(nodes := graph.get("nodes"), list):
        renamed["nodes"] = [_renamed_node(node, ids) for node in nodes]
    if isinstance(edges := graph.get("edges"), list):
        renamed["edges"] = [_renamed_edge(edge, ids) for edge in edges]
    return renamed


def _renamed_node(node: Any, ids: Ids) -> Any:
    if not isinstance(node, Mapping):
        return node
    renamed = _each(node, ("id", "parentId"), lambda text: ids.get(text, text))
    renamed = _each(renamed, ("type",), lambda text: DRAWN_AS.get(text, text))
    if isinstance(data := node.get("data"), Mapping):
        drawn = _each(data, ("label", "name"), lambda text: RENAMED.get(text, text))
        if isinstance(form := data.get("form"), Mapping):
            drawn["form"] = {**IMPLIED.get(str(data.get("label")), {}), **_with_ids(form, ids)}
        renamed["data"] = drawn
    return renamed


def _renamed_edge(edge: Any, ids: Ids) -> Any:
    """An edge with new ends; its own id, which editors build from them, changes where it contains their old ids."""
    if not isinstance(edge, Mapping):
        return edge
    renamed = _each(edge, ("source", "target"), lambda text: ids.get(text, text))
    ends = {end for key in ("source", "target") if isinstance(end := edge.get(key), str) and end in ids}
    if ends:
        renamed = _each(renamed, ("id",), lambda text: _with_new_ends(text, ends, ids))
    return renamed


def _with_new_ends(text: str, ends: set[str], ids: Ids) -> str:
    """A text with the new ids of both ends, the longer one first. It is read once, however long the ids are."""
    parts: list[str] = []
    position = 0
    places = {end: text.find(end) for end in ends}
    while found := [(place, -len(end), end) for end, place in places.items() if place >= 0]:
        place, _, end = min(found)
        parts += [text[position:place], ids[end]]
        position = place + len(end)
        places = {end: text.find(end, position) if 0 <= was < position else was for end, was in places.items()}
    return "".join([*parts, text[position:]])


def _each(fields: Mapping[str, Any], keys: tuple[str, ...], change: Callable[[str], str]) -> Entry:
    changed = dict(fields)
    for key in keys:
        if isinstance(text := changed.get(key), str):
            changed[key] = change(text)
    return changed


def _with_ids(value: Any, ids: Ids) -> Any:
    """A JSON value whose strings speak of the new ids: whole ids, and references with or without braces."""
    if not ids:
        return value
    match value:
        case str() as text:
            return _text_with_ids(text, ids)
        case Mapping() as fields:
            return {key: _with_ids(item, ids) for key, item in fields.items()}
        case list() as items:
            return [_with_ids(item, ids) for item in items]
        case _:
            return value


def _text_with_ids(text: str, ids: Ids) -> str:
    if text in ids:
        return ids[text]
    if bare := _BARE.fullmatch(text):
        return ids.get(bare.group(1), bare.group(1)) + bare.group(2)
    return _IN_BRACES.sub(lambda found: found[1] + ids.get(found[2], found[2]) + found[3], text)
