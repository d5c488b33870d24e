"""Where Messages remember (`providers/interfaces.py`): memories of the tenant's own here, all others on RAGFlow's
server.

An entry that names a memory of the tenant's own, by id or by name, is saved here. What is none goes to the server that
the deployment names; where there is none, it does not exist.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from canvas.errors import ExecutorError, ToolError
from knowledge.memory.memories import Memories


class Remote(Protocol):
    """A server with memories of its own."""

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str | None) -> None:
        """Keep a record there. Raises ToolError in the server's words."""
        ...


@dataclass(frozen=True, slots=True)
class TenantMemories:
    """The memories that one tenant's nodes may write to."""

    tenant_id: UUID
    memories: Memories
    remote: Remote | None = None

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str | None) -> None:
        """Keep a record in every memory that can be reached; what could not be is told in the end. Raises ToolError."""
        entries = list(dict.fromkeys(memory_ids))
        own = await self.memories.named(self.tenant_id, entries)
        others = [entry for entry in entries if entry not in own]
        failures = [f"Memory {others} not found."] if others and self.remote is None else []
        for memory in {memory.id: memory for memory in own.values()}.values():
            try:
                await self.memories.save(memory, record, key)
            except ExecutorError as failure:  # the others shall have it all the same
                failures.append(failure.message)
        if others and self.remote is not None:
            try:
                await self.remote.save(others, record, key)
            except ExecutorError as failure:
                failures.append(failure.message)
        if failures:
            raise ToolError(" ".join(failures))
