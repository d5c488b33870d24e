"""Lookup of knowledge bases and memories by id or by name in any case. An id goes before a name."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from canvas.ids import TenantId
from components.checks.missing_sources import Sources
from store.db.transaction import Transaction
from store.knowledge import bases as knowledge_bases
from store.knowledge import memories
from store.mcp import servers as mcp_servers


class NamedRow(Protocol):
    """A knowledge base or a memory."""

    @property
    def id(self) -> UUID: ...

    @property
    def name(self) -> str: ...


Row = TypeVar("Row", bound=NamedRow)


def find_named(entries: Iterable[str], find_rows: Callable[[list[UUID], list[str]], Sequence[Row]]) -> dict[str, Row]:
    """Return the row that each entry names; unknown entries are left out. `find_rows` finds rows by ids and names."""
    names = list(dict.fromkeys(entries))
    ids = {entry: found for entry in names if (found := _parse_id(entry)) is not None}
    known = find_rows(list(ids.values()), names)
    by_id, by_name = {each.id: each for each in known}, {each.name.lower(): each for each in known}
    found = {entry: by_id.get(ids[entry]) if entry in ids else None for entry in names}
    return {entry: one for entry in names if (one := found[entry] or by_name.get(entry.lower())) is not None}


def existing_sources(tx: Transaction, tenant_id: TenantId, named: Sources) -> Sources:
    """Return those of the named sources that the tenant has. Kinds without any name are not looked up."""
    bases = find_named(
        named.datasets,
        lambda ids, names: knowledge_bases.find_by_id_or_name(tx, tenant_id, ids, names) if names else [],
    )
    found_memories = find_named(
        named.memories, lambda ids, names: memories.find_by_id_or_name(tx, tenant_id, ids, names) if names else []
    )
    ids = {entry: found for entry in named.servers if (found := _parse_id(entry)) is not None}
    registered = mcp_servers.filter_registered(tx, tenant_id, list(ids.values())) if ids else set[UUID]()
    servers = frozenset(entry for entry, server_id in ids.items() if server_id in registered)
    return Sources(frozenset(bases), frozenset(found_memories), servers)


def _parse_id(entry: str) -> UUID | None:
    try:
        return UUID(entry) if len(entry) in (32, 36) else None
    except ValueError:
        return None
