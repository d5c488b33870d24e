"""The knowledge bases, memories and MCP servers that a canvas names, held against those that its tenant has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from canvas.document.document import Document
from canvas.validation.findings import Finding, warning

_LISTS = {"dataset_ids": "datasets", "kb_ids": "datasets", "memory_ids": "memories"}


@dataclass(frozen=True, slots=True)
class Sources:
    """Entries as canvases write them: ids, and names of bases and memories as well."""

    datasets: frozenset[str] = frozenset()
    memories: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()


def named(document: Document) -> Sources:
    """What a document names, Agents' tools included. A reference says only at run time what it names."""
    found: dict[str, set[str]] = {"datasets": set(), "memories": set(), "servers": set()}
    for entry in document.entries.values():
        for _, kind, name in _named("", entry.params):
            found[kind].add(name)
    return Sources(**{kind: frozenset(names) for kind, names in found.items()})


def missing(document: Document, there: Sources, *, elsewhere: bool) -> Iterator[Finding]:
    """A warning for every field that names what is not there.

    `elsewhere`: a search server may have the knowledge bases and memories that are not the tenant's own.
    """
    for entry in document.entries.values():
        for field, kind, name in _named("", entry.params):
            if kind == "servers" and name not in there.servers:
                yield warning(entry, field, "unknown_mcp_server", f'MCP server "{name}" is not registered. Register it')
            elif kind == "datasets" and not elsewhere and name not in there.datasets:
                yield warning(entry, field, "unknown_dataset", f"Dataset({name}) does not exist. Pick another")
            elif kind == "memories" and not elsewhere and name not in there.memories:
                yield warning(entry, field, "unknown_memory", f"Memory {name} not found. Pick another")


def _named(field: str, value: Any) -> Iterator[tuple[str, str, str]]:
    """(field, kind, entry) of everything that is named inside of params; `parse` has bounded their depth."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{field}.{key}" if field else str(key)
            if key == "mcp_id" and isinstance(item, str) and item:
                yield inner, "servers", item
            elif key in _LISTS:
                yield from ((at, _LISTS[key], name) for at, name in _entries(inner, item))
            else:
                yield from _named(inner, item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _named(f"{field}[{position}]", item)


def _entries(field: str, value: Any) -> Iterator[tuple[str, str]]:
    listed = (
        [(f"{field}[{at}]", item) for at, item in enumerate(value)] if isinstance(value, list) else [(field, value)]
    )
    for at, item in listed:
        if isinstance(item, str) and item.strip() and "@" not in item and "{" not in item:
            yield at, item.strip()
