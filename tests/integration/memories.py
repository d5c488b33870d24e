"""Memories for tests: a tenant's, with a vendor of vectors and answers on this machine."""

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


def extracted(**by_type: Sequence[str]) -> str:
    """An answer of the model that has found these sentences."""
    told = {
        name: [{"content": text, "valid_at": "", "invalid_at": ""} for text in each] for name, each in by_type.items()
    }
    return f"```json\n{json.dumps(told)}\n```"


@dataclass
class Notebook:
    """A tenant's memories, and who writes into them, searches them and looks through what they were told."""

    database: Database
    tenant_id: UUID
    accounts: Sequence[VendorAccount] = ()

    def __post_init__(self) -> None:
        self.models = TenantModels(self.database, self.accounts, RequestLimits(), None)
        self.told = 0
        self.memories = MemoryStore(self.database, self.models, self._tell)

    def _tell(self) -> None:
        self.told += 1

    def memory(
        self, name: str = "Customers", *, types: int = 1, model: str = "echo", chat: str = "", **given: Any
    ) -> Memory:
        most = given.pop("most_bytes", 10**6)
        with self.database.transaction() as tx:
            return memories.create(
                tx, self.tenant_id, name, types=types, embedding_model=model, chat_model=chat, most_bytes=most, **given
            )

    def again(self, memory: Memory) -> Memory:
        """The memory as it is now."""
        with self.database.transaction() as tx:
            return memories.get(tx, self.tenant_id, memory.id)

    def write(
        self, memory: Memory, question: str, answer: str = "Noted.", *, key: str | None = None, **whose: str
    ) -> None:
        record = {"user_input": question, "agent_response": answer, **whose}
        _run(self.memories.save(memory, record, key))

    def extract(self, **given: Any) -> int:
        """Look through what waits; how often something did."""

        async def extract() -> int:
            count = 0
            extraction = Extraction(self.database, given.pop("models", self.models), **given)
            while await extraction.next(self.tenant_id):
                count += 1
            return count

        return _run(extract())

    def find(self, question: str, *chosen: Memory, **given: Any) -> list[str]:
        """What is found, the nearest first."""
        whose = MessageScope(**given.pop("whose", {}))
        looked = MemoryQuery(question, scope=whose, **{"threshold": 0.0, **given})
        return [message.content for message, _ in _run(self.memories.search(self.tenant_id, chosen, looked))]

    def messages(self, memory: Memory) -> list[MemoryMessage]:
        """Everything that is alive in a memory, the newest first."""
        with self.database.transaction() as tx:
            return memory_messages.list_recent(tx, self.tenant_id, [memory.id], ANY_SCOPE, 1000)


def _run(work: Any) -> Any:
    async def to_the_end() -> Any:
        try:
            return await work
        finally:
            await close_connections()

    return asyncio.run(to_the_end())
