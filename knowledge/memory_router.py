"""Routing of saved memories (`providers/interfaces.py`): the tenant's own are stored here, all others on RAGFlow.

An entry that names one of the tenant's memories, by id or by name, is saved here. Every other entry goes to the RAGFlow
server that the deployment configured; without one it is reported as not found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from canvas.errors import ExecutorError, ToolError
from canvas.ids import TenantId
from knowledge.memory.memories import MemoryStore


class RemoteMemories(Protocol):
    """A server with its own memories."""

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str | None) -> None:
        """Save a record on the server. Raises ToolError with the server's text."""
        ...


@dataclass(frozen=True, slots=True)
class TenantMemories:
    """The memories that one tenant's nodes may write to."""

    tenant_id: TenantId
    memories: MemoryStore
    remote: RemoteMemories | None = None

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str | None) -> None:
        """Save a record in every memory that can be reached. Raises ToolError at the end if any could not."""
        entries = list(dict.fromkeys(memory_ids))
        own = await self.memories.find_by_name(self.tenant_id, entries)
        others = [entry for entry in entries if entry not in own]
        failures = [f"Memory {others} not found."] if others and self.remote is None else []
        for memory in {memory.id: memory for memory in own.values()}.values():
            try:
                await self.memories.save(memory, record, key)
            except ExecutorError as failure:  # the other memories still get the record
                failures.append(failure.message)
        if others and self.remote is not None:
            try:
                await self.remote.save(others, record, key)
            except ExecutorError as failure:
                failures.append(failure.message)
        if failures:
            raise ToolError(" ".join(failures))
