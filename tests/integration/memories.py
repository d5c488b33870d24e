"""Memories for tests: a tenant whose memories are written, extracted and searched on demand."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from knowledge.memory.extraction import Extraction
from knowledge.memory.memories import MemoryQuery, MemoryStore
from knowledge.models import TenantModels
from providers.models.chat.catalogue import RequestLimits
from providers.models.transport.clients import close_connections
from providers.models.vendors.accounts import VendorAccount
from store.db.database import Database
from store.knowledge import memories, memory_messages
from store.knowledge.memories import Memory
from store.knowledge.memory_messages import ANY_SCOPE, MemoryMessage, MessageScope


def extraction_answer(**by_type: Sequence[str]) -> str:
    """Return an answer of the model with these sentences, by memory type."""
    answer = {
        name: [{"content": text, "valid_at": "", "invalid_at": ""} for text in each] for name, each in by_type.items()
    }
    return f"```json\n{json.dumps(answer)}\n```"


@dataclass
class MemoryTenant:
    """A tenant with memories, and what writes, searches and extracts them."""

    database: Database
    tenant_id: UUID
    accounts: Sequence[VendorAccount] = ()

    def __post_init__(self) -> None:
        self.models = TenantModels(self.database, self.accounts, RequestLimits(), None)
        self.extraction_requests = 0
        self.memories = MemoryStore(self.database, self.models, self._count_request)

    def _count_request(self) -> None:
        self.extraction_requests += 1

    def memory(
        self, name: str = "Customers", *, types: int = 1, model: str = "echo", chat: str = "", **options: Any
    ) -> Memory:
        most = options.pop("most_bytes", 10**6)
        with self.database.transaction() as tx:
            return memories.create(
                tx,
                self.tenant_id,
                name,
                types=types,
                embedding_model=model,
                chat_model=chat,
                most_bytes=most,
                **options,
            )

    def reload(self, memory: Memory) -> Memory:
        """Read the memory again from the database."""
        with self.database.transaction() as tx:
            return memories.get(tx, self.tenant_id, memory.id)

    def write(
        self, memory: Memory, question: str, answer: str = "Noted.", *, key: str | None = None, **ids: str
    ) -> None:
        record = {"user_input": question, "agent_response": answer, **ids}
        _run(self.memories.save(memory, record, key))

    def extract(self, **options: Any) -> int:
        """Extract the pending messages; return their number."""

        async def extract() -> int:
            count = 0
            extraction = Extraction(self.database, options.pop("models", self.models), **options)
            while await extraction.next(self.tenant_id):
                count += 1
            return count

        return _run(extract())

    def find(self, question: str, *memories_to_search: Memory, **options: Any) -> list[str]:
        """Search memories; return the texts, the nearest first."""
        scope = MessageScope(**options.pop("scope", {}))
        query = MemoryQuery(question, scope=scope, **{"threshold": 0.0, **options})
        return [message.content for message, _ in _run(self.memories.search(self.tenant_id, memories_to_search, query))]

    def messages(self, memory: Memory) -> list[MemoryMessage]:
        """Return the messages of a memory, the newest first."""
        with self.database.transaction() as tx:
            return memory_messages.list_recent(tx, self.tenant_id, [memory.id], ANY_SCOPE, 1000)


def _run(work: Any) -> Any:
    async def run_and_close() -> Any:
        try:
            return await work
        finally:
            await close_connections()

    return asyncio.run(run_and_close())
