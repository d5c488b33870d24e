"""Memories of a tenant: saving conversations, and searching them by words and vectors (docs/tools.md).

A memory is small (its limit is some megabytes), so a search scores all of its messages.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canvas.errors import NodeFailure, ToolError
from canvas.ids import TenantId
from components.text.templates.templates import value_text
from knowledge.index import tokenizer
from knowledge.index.vectors import normalize
from knowledge.models import Models
from knowledge.names import find_named
from store.db.database import Database
from store.knowledge import memories, memory_messages
from store.knowledge.memories import TYPES, Memory
from store.knowledge.memory_messages import ANY_SCOPE, MemoryMessage, MessageScope, NewMessage
from store.knowledge.similarity import Terms

LANGUAGE = "English"  # for stemming; languages written without blanks need no stems
MAX_EXCHANGE_LENGTH = 1_000_000  # characters of a question and its answer together


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """A search in memories; the defaults are those of the node Retrieval."""

    question: str
    threshold: float = 0.2
    word_weight: float = 0.5  # weight of the words; the rest is the vector's
    limit: int = 8
    scope: MessageScope = ANY_SCOPE


class MemoryStore:
    """Saves to and searches in the memories of all tenants.

    `on_saved` is called when a conversation waits for extraction.
    """

    def __init__(self, database: Database, models: Models, on_saved: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._models = models
        self._on_saved = on_saved

    async def find_by_name(self, tenant_id: TenantId, entries: Sequence[str]) -> dict[str, Memory]:
        """Return the tenant's memories by the entries that name them; other entries are left out."""
        return await asyncio.to_thread(self._find_by_name, tenant_id, entries)

    def _find_by_name(self, tenant_id: TenantId, entries: Sequence[str]) -> dict[str, Memory]:
        with self._database.statements() as tx:
            return find_named(entries, lambda ids, names: memories.find_by_id_or_name(tx, tenant_id, ids, names))

    # -- saving ---------------------------------------------------------------------------------------------------
    async def save(self, memory: Memory, record: Mapping[str, Any], key: str | None = None) -> None:
        """Save {user_id, agent_id, session_id, user_input, agent_response}; a second record with the same key is
        ignored.

        A model extracts facts later. Raises NodeFailure if the text cannot be embedded or the memory is full.
        """
        if key is not None and await asyncio.to_thread(self._is_saved, memory, key):
            return
        content = exchange_text(record)
        (vector,) = await self.embed(memory, [content])
        message = NewMessage(TYPES["raw"], content, sorted(tokenizer.passage_words(content, LANGUAGE)), vector)
        whose = MessageScope(*(value_text(record.get(name)) for name in ("user_id", "agent_id", "session_id")))

        def store() -> int | None:
            with self._database.transaction() as tx:
                return memory_messages.save_message(
                    tx, memory, message, whose, key, extract=bool(memory.extracted_types)
                )

        if await asyncio.to_thread(store) is not None and memory.extracted_types:
            await asyncio.to_thread(self._on_saved)

    def _is_saved(self, memory: Memory, key: str) -> bool:
        with self._database.statements() as tx:
            return memory_messages.is_saved(tx, memory.tenant_id, memory.id, key)

    async def embed(self, memory: Memory, texts: Sequence[str]) -> Sequence[list[float] | None]:
        """Return the vectors of texts, each None if the memory has no embedding model. Raises ModelError."""
        if not memory.embedding_model or not texts:
            return [None] * len(texts)
        embedder = await self._models.embedder(memory.tenant_id, memory.embedding_model)
        return [normalize(vector) for vector in (await embedder.embed(texts)).vectors]

    # -- searching ------------------------------------------------------------------------------------------------
    async def search(
        self, tenant_id: TenantId, chosen: Sequence[Memory], query: MemoryQuery
    ) -> list[tuple[MemoryMessage, float]]:
        """Return messages with their similarities, the best match first, of equal ones the newest.

        Raises NodeFailure.
        """
        models = {memory.embedding_model for memory in chosen}
        if len(models) > 1:
            raise ToolError("Memory use different embedding models.")
        if not chosen or not query.question.strip():
            return []
        vector = None
        if model := models.pop():
            embedder = await self._models.embedder(tenant_id, model)
            vector = (await embedder.embed([query.question])).vectors[0]
        return await asyncio.to_thread(self._best_matches, tenant_id, chosen, query, vector)

    def _best_matches(
        self, tenant_id: TenantId, chosen: Sequence[Memory], query: MemoryQuery, vector: Sequence[float] | None
    ) -> list[tuple[MemoryMessage, float]]:
        words = tokenizer.query_words(query.question, LANGUAGE)
        terms = Terms(words, [len(words)], normalize(vector) if vector is not None else None)
        with self._database.transaction() as tx:
            found = memory_messages.search(
                tx,
                tenant_id,
                [memory.id for memory in chosen],
                query.scope,
                terms,
                by_vector=1 - query.word_weight if vector is not None else 0.0,
                threshold=query.threshold,
                most=query.limit,
            )
            messages = memory_messages.get_many(tx, tenant_id, [(row.keys[0], row.keys[1]) for row in found])
        return [(messages[row.keys], row.similarity) for row in found if row.keys in messages]


def exchange_text(record: Mapping[str, Any]) -> str:
    """Return a record's question and answer as one text. Raises NodeFailure if it is too long for a memory."""
    question, answer = value_text(record.get("user_input")), value_text(record.get("agent_response"))
    content = f"User Input: {question}\nAgent Response: {answer}"
    if len(content) > MAX_EXCHANGE_LENGTH:
        raise NodeFailure(
            f"The exchange has more than {MAX_EXCHANGE_LENGTH:,} characters, which is too long for a memory."
        )
    return content
