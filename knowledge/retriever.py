"""The retriever of Retrieval (`providers/interfaces.py`): searches the tenant's own bases, and others on RAGFlow.

An entry that names one of the tenant's bases or memories, by id or by name, is searched here. Every other entry goes to
the RAGFlow server that the deployment configured; without one it is reported as not existing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from canvas.errors import ToolError
from canvas.ids import TenantId
from knowledge.bases.search import KnowledgeBaseSearch, SearchQuery
from knowledge.memory.memories import MemoryQuery, MemoryStore
from providers.interfaces import RetrievalQuery, Retriever
from store.knowledge.memory_messages import MessageScope


@dataclass(frozen=True, slots=True)
class TenantRetriever:
    """The knowledge bases and memories that one tenant's nodes may search."""

    tenant_id: TenantId
    knowledge_search: KnowledgeBaseSearch
    memories: MemoryStore
    remote: Retriever | None = None

    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        """Return {"chunks", "doc_aggs"}, the best match first. Raises ToolError, ModelError."""
        if search.memory_ids:
            return {"chunks": await self._in_memories(search), "doc_aggs": []}
        own = await self.knowledge_search.find_bases(self.tenant_id, search.dataset_ids)
        others = [entry for entry in search.dataset_ids if entry not in own]
        if others and self.remote is None:
            raise ToolError(f"Dataset({others[0]}) does not exist.")
        bases = list({base.id: base for base in own.values()}.values())
        asking = [self.knowledge_search.search(self.tenant_id, bases, search_query_of(search))] if bases else []
        if others and self.remote is not None:
            found = await _gather(*asking, self.remote.search(replace(search, dataset_ids=others)))
        else:
            found = await _gather(*asking)
        return found[0] if len(found) == 1 else _merge(found, int(search.options["top_n"]))

    async def _in_memories(self, search: RetrievalQuery) -> list[Mapping[str, Any]]:
        own = await self.memories.find_by_name(self.tenant_id, search.memory_ids)
        others = [entry for entry in search.memory_ids if entry not in own]
        if others and self.remote is None:
            raise ToolError(f"Memory {others} not found.")
        chosen = list({memory.id: memory for memory in own.values()}.values())
        here = await self.memories.search(self.tenant_id, chosen, memory_query_of(search)) if chosen else []
        own_messages: list[Mapping[str, Any]] = [
            {"content": message.content, "similarity": near} for message, near in here
        ]
        if not others or self.remote is None:
            return own_messages
        there = (await self.remote.search(replace(search, memory_ids=others))).get("chunks") or ()
        return _interleave(own_messages, there)[: int(search.options["top_n"])]


def memory_query_of(search: RetrievalQuery) -> MemoryQuery:
    """Return the query for memories from a node's search."""
    options = search.options
    return MemoryQuery(
        search.question,
        threshold=float(options.get("similarity_threshold", 0.2)),
        word_weight=float(options.get("keywords_similarity_weight", 0.5)),
        limit=int(options.get("top_n", 8)),
        scope=MessageScope(user_id=str(options.get("user_id") or "")),
    )


def search_query_of(search: RetrievalQuery) -> SearchQuery:
    """Return the query for knowledge bases from a node's search."""
    options = search.options
    return SearchQuery(
        search.question,
        threshold=float(options.get("similarity_threshold", 0.2)),
        word_weight=float(options.get("keywords_similarity_weight", 0.5)),
        limit=int(options.get("top_n", 8)),
        candidates=int(options.get("top_k", 1024)),
        rerank_id=str(options.get("rerank_id") or ""),
        languages=_text_list(options.get("cross_languages")),
        filter=options.get("meta_data_filter") or {},
        use_graph=bool(options.get("use_kg")),
        use_table_of_contents=bool(options.get("toc_enhance")),
    )


async def _gather(*searches: Any) -> list[Mapping[str, Any]]:
    return list(await asyncio.gather(*searches))


def _interleave(*found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Interleave results by rank, because not every server returns a similarity."""
    return [each for rank in zip_longest(*found) for each in rank if each is not None]


def _merge(found: Sequence[Mapping[str, Any]], most: int) -> Mapping[str, Any]:
    """Return the best matches of several searches. `doc_aggs` is left empty; the tool counts the documents itself."""
    chunks = [chunk for each in found for chunk in each.get("chunks") or ()]
    chunks.sort(key=lambda chunk: -float(chunk.get("similarity") or 0))
    return {"chunks": chunks[:most], "doc_aggs": []}


def _text_list(value: Any) -> Sequence[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [str(each) for each in value] if isinstance(value, list | tuple) else []
