"""Warnings about knowledge bases, memories and MCP servers that a canvas names and its tenant does not have."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from canvas.document.document import Document
from canvas.validation.findings import Finding, warning

_LISTS = {"dataset_ids": "datasets", "kb_ids": "datasets", "memory_ids": "memories"}


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources as canvases name them: by id, and knowledge bases and memories also by name."""

    datasets: frozenset[str] = frozenset()
    memories: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()


def find_named_sources(document: Document) -> Sources:
    """Return the sources that a document names, in Agents' tools as well. References resolve only at run time."""
    found: dict[str, set[str]] = {"datasets": set(), "memories": set(), "servers": set()}
    for entry in document.entries.values():
        for _, kind, name in _iter_sources("", entry.params):
            found[kind].add(name)
    return Sources(**{kind: frozenset(names) for kind, names in found.items()})


def find_missing(document: Document, existing: Sources, *, may_be_external: bool) -> Iterator[Finding]:
    """Yield a warning for every field that names a source which does not exist.

    `existing`: the tenant's sources. `may_be_external`: knowledge bases and memories may also exist on a search server,
    so they are not reported.
    """
    for entry in document.entries.values():
        for field, kind, name in _iter_sources("", entry.params):
            if kind == "servers" and name not in existing.servers:
                yield warning(entry, field, "unknown_mcp_server", f'MCP server "{name}" is not registered. Register it')
            elif kind == "datasets" and not may_be_external and name not in existing.datasets:
                yield warning(entry, field, "unknown_dataset", f"Dataset({name}) does not exist. Pick another")
            elif kind == "memories" and not may_be_external and name not in existing.memories:
                yield warning(entry, field, "unknown_memory", f"Memory {name} not found. Pick another")


def _iter_sources(field: str, value: Any) -> Iterator[tuple[str, str, str]]:
    """Yield (field, kind, name) of every source inside params, whose depth `parse` has limited."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{field}.{key}" if field else str(key)
            if key == "mcp_id" and isinstance(item, str) and item:
                yield inner, "servers", item
            elif key in _LISTS:
                yield from ((at, _LISTS[key], name) for at, name in _entries(inner, item))
            else:
                yield from _iter_sources(inner, item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _iter_sources(f"{field}[{position}]", item)


def _entries(field: str, value: Any) -> Iterator[tuple[str, str]]:
    listed = (
        [(f"{field}[{at}]", item) for at, item in enumerate(value)] if isinstance(value, list) else [(field, value)]
    )
    for at, item in listed:
        if isinstance(item, str) and item.strip() and "@" not in item and "{" not in item:
            yield at, item.strip()
