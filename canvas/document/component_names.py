"""Names of components and tools: the accepted spellings of each, and the names that older canvases used.

`canonical` maps any accepted spelling to the class name: any case, and the function name or an alias of a tool.
`rename_components` replaces old names in a whole document: component names, ids that begin with one, and references
to such ids. It is pure and idempotent. An id keeps its old name if the document already uses the new one.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

COMPONENTS = (
    "Agent",
    "Answer",
    "Begin",
    "Browser",
    "Categorize",
    "DataOperations",
    "DeepResearch",
    "DocGenerator",
    "ExcelProcessor",
    "ExitLoop",
    "Invoke",
    "Iteration",
    "IterationItem",
    "ListOperations",
    "LLM",
    "Loop",
    "LoopItem",
    "Message",
    "StringTransform",
    "Switch",
    "UserFillUp",
    "VariableAggregator",
    "VariableAssigner",
)
TOOLS: Mapping[str, tuple[str, ...]] = {
    "AkShare": ("akshare_stock_news",),
    "ArXiv": ("arxiv_search",),
    "BGPT": ("bgpt_search",),
    "CodeExec": ("execute_code", "code_exec"),
    "Crawler": ("web_crawler",),
    "DeepL": ("deepl_translate",),
    "DuckDuckGo": ("duckduckgo_search",),
    "Email": (),
    "ExeSQL": ("execute_sql",),
    "GitHub": ("github_search",),
    "Google": ("google_search",),
    "GoogleScholar": ("google_scholar_search", "google_scholar"),
    "Jin10": (),
    "KeenableSearch": ("keenable_search", "keenable"),
    "PubMed": ("pubmed_search",),
    "QueritContents": ("querit_contents",),
    "QueritSearch": ("querit_search", "querit"),
    "QWeather": (),
    "Retrieval": ("search_my_dateset", "search_my_dataset", "SearchMyDataset"),
    "SearXNG": ("searxng_search",),
    "TavilyExtract": ("tavily_extract",),
    "TavilySearch": ("tavily_search", "tavily"),
    "TuShare": (),
    "WenCai": ("iwencai",),
    "Wikipedia": ("wikipedia_search",),
    "YahooFinance": ("yahoo_finance",),
}

CURRENT_NAMES: Mapping[str, str] = {
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
CURRENT_NODE_TYPES: Mapping[str, str] = {"splitterNode": "chunkerNode", "parallelNode": "iterationNode"}
IMPLIED_PARAMS: Mapping[str, Mapping[str, Any]] = {
    "Parallel": {"max_concurrency": 4},  # what the old name implied and the new one does not
    "Fillup": {"enable_tips": False},
}

_CANONICAL: Mapping[str, str] = {
    **{name.lower(): name for name in (*COMPONENTS, *TOOLS)},
    **{alias.lower(): name for name, also in TOOLS.items() for alias in also},
}
_OLD_NAMES_BY_LOWER_CASE = {old.lower(): old for old in CURRENT_NAMES}
_KEYS_WITH_IDS = ("components", "history", "messages", "reference")
_IN_BRACES = re.compile(r"(\{[ \t\n\r]*+)([A-Za-z0-9:_-]++)(@[A-Za-z0-9_.\[\]-]++[ \t\n\r]*+\})")
_BARE = re.compile(r"([A-Za-z0-9:_-]++)(@[A-Za-z0-9_.\[\]-]++)")

Ids: TypeAlias = Mapping[str, str]
JsonObject: TypeAlias = dict[str, Any]


def canonical(name: str) -> str:
    """Return the class name for any accepted spelling of a component or tool; unknown names are returned as written."""
    current = current_name(name)
    return _CANONICAL.get(current.lower(), current)


def rename_components(source: Any) -> Any:
    """Return a document with current names in place of old ones; a value that is not an object is returned as it is."""
    if not isinstance(source, Mapping):
        return source
    ids = _find_new_ids(source)
    renamed = dict(source)
    for key in _KEYS_WITH_IDS:
        if key in renamed:
            renamed[key] = _replace_ids(renamed[key], ids)
    if isinstance(components := renamed.get("components"), Mapping):
        renamed["components"] = {ids.get(key, key): _rename_entry(entry) for key, entry in components.items()}
    if "path" in renamed:
        renamed["path"] = _replace_ids(renamed["path"], ids)
    if isinstance(graph := renamed.get("graph"), Mapping):
        renamed["graph"] = _rename_graph(graph, ids)
    return renamed


def current_name(name: str) -> str:
    """Return the current component name for an old one, in any case; other names are returned unchanged."""
    old = _OLD_NAMES_BY_LOWER_CASE.get(name.lower())
    return CURRENT_NAMES[old] if old else name


def _find_new_ids(source: Mapping[str, Any]) -> dict[str, str]:
    """Return old id -> new id, for all ids of the document that begin with an old component name."""
    ids = list(dict.fromkeys(_iterate_ids(source)))
    in_use = set(ids)
    renamed: dict[str, str] = {}
    for old in ids:
        prefix, colon, rest = old.partition(":")
        new = f"{CURRENT_NAMES[prefix]}:{rest}" if colon and prefix in CURRENT_NAMES else old
        if new not in in_use:
            in_use.add(new)
            renamed[old] = new
    return renamed


def _iterate_ids(source: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(components := source.get("components"), Mapping):
        yield from (key for key in components if isinstance(key, str))
    if isinstance(graph := source.get("graph"), Mapping) and isinstance(nodes := graph.get("nodes"), list):
        for node in nodes:
            if isinstance(node, Mapping) and isinstance(node_id := node.get("id"), str):
                yield node_id


def _rename_entry(entry: Any) -> Any:
    """Return a `components` entry, nested or flat, with the current name and the params that the old name implied."""
    if not isinstance(entry, Mapping):
        return entry
    if isinstance(obj := entry.get("obj"), Mapping):
        return {**entry, "obj": _rename_object(obj, "component_name")}
    return _rename_object(entry, "component_name" if "component_name" in entry else "name")


def _rename_object(obj: Mapping[str, Any], name_key: str) -> JsonObject:
    renamed = dict(obj)
    name = renamed.get(name_key)
    old = _OLD_NAMES_BY_LOWER_CASE.get(name.lower()) if isinstance(name, str) else None
    if old is None:
        return renamed
    renamed[name_key] = CURRENT_NAMES[old]
    params = renamed.get("params")
    if old in IMPLIED_PARAMS and (params is None or isinstance(params, Mapping)):
        renamed["params"] = {**IMPLIED_PARAMS[old], **(params or {})}
    return renamed


def _rename_graph(graph: Mapping[str, Any], ids: Ids) -> JsonObject:
    renamed = dict(graph)
    if isinstance(nodes := graph.get("nodes"), list):
        renamed["nodes"] = [_rename_node(node, ids) for node in nodes]
    if isinstance(edges := graph.get("edges"), list):
        renamed["edges"] = [_rename_edge(edge, ids) for edge in edges]
    return renamed


def _rename_node(node: Any, ids: Ids) -> Any:
    if not isinstance(node, Mapping):
        return node
    renamed = _change_texts(node, ("id", "parentId"), lambda text: ids.get(text, text))
    renamed = _change_texts(renamed, ("type",), lambda text: CURRENT_NODE_TYPES.get(text, text))
    if isinstance(data := node.get("data"), Mapping):
        drawn = _change_texts(data, ("label", "name"), lambda text: CURRENT_NAMES.get(text, text))
        if isinstance(form := data.get("form"), Mapping):
            drawn["form"] = {**IMPLIED_PARAMS.get(str(data.get("label")), {}), **_replace_ids(form, ids)}
        renamed["data"] = drawn
    return renamed


def _rename_edge(edge: Any, ids: Ids) -> Any:
    """Return an edge with new ends. Editors build an edge's id from its ends, so old ids are replaced there too."""
    if not isinstance(edge, Mapping):
        return edge
    renamed = _change_texts(edge, ("source", "target"), lambda text: ids.get(text, text))
    ends = {end for key in ("source", "target") if isinstance(end := edge.get(key), str) and end in ids}
    if ends:
        renamed = _change_texts(renamed, ("id",), lambda text: _replace_ends(text, ends, ids))
    return renamed


def _replace_ends(text: str, ends: set[str], ids: Ids) -> str:
    """Return a text with new ids in place of the old ends; of two that begin at one position the longer is replaced.

    The text is scanned once, however long the ids are.
    """
    parts: list[str] = []
    position = 0
    starts = {end: text.find(end) for end in ends}
    while matches := [(start, -len(end), end) for end, start in starts.items() if start >= 0]:
        start, _, end = min(matches)
        parts += [text[position:start], ids[end]]
        position = start + len(end)
        starts = {end: text.find(end, position) if 0 <= was < position else was for end, was in starts.items()}
    return "".join([*parts, text[position:]])


def _change_texts(fields: Mapping[str, Any], keys: tuple[str, ...], change: Callable[[str], str]) -> JsonObject:
    changed = dict(fields)
    for key in keys:
        if isinstance(text := changed.get(key), str):
            changed[key] = change(text)
    return changed


def _replace_ids(value: Any, ids: Ids) -> Any:
    """Return a JSON value with new ids in its strings: whole ids, and references with or without braces."""
    if not ids:
        return value
    match value:
        case str() as text:
            return _replace_ids_in_text(text, ids)
        case Mapping() as fields:
            return {key: _replace_ids(item, ids) for key, item in fields.items()}
        case list() as items:
            return [_replace_ids(item, ids) for item in items]
        case _:
            return value


def _replace_ids_in_text(text: str, ids: Ids) -> str:
    if text in ids:
        return ids[text]
    if bare := _BARE.fullmatch(text):
        return ids.get(bare.group(1), bare.group(1)) + bare.group(2)
    return _IN_BRACES.sub(lambda match: match[1] + ids.get(match[2], match[2]) + match[3], text)
