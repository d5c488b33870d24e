"""The cache of this process's indexes: loaded at a base's first query, updated when the base's revision has changed.

All indexes together have a memory limit; the least recently used base is evicted first. A base that exceeds the limit
by itself is read from the database for each query, a block at a time: correct, but slow.

The first query waits until the index is loaded. Loading continues in its thread if that caller gives up.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from canvas.ids import TenantId
from components.text.extraction.file_kinds import library_missing
from knowledge.index import tokenizer
from store.db.database import Database
from store.knowledge import chunks
from store.knowledge.bases import SearchableBase

if TYPE_CHECKING:
    from knowledge.index.chunk_index import ChunkMatch, Segment

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class QueryVariants:
    """A query in one or more wordings, its vector if the bases have an embedding model, and the documents to search."""

    variants: Sequence[str]
    vector: Sequence[float] | None = None
    documents: frozenset[UUID] | None = None

    def words(self, language: str) -> Iterator[Sequence[int]]:
        """Yield the word hashes of each wording, the same number for every language."""
        remaining = tokenizer.MAX_QUERY_WORDS
        for variant in self.variants:
            found = tokenizer.query_hashes(variant, language)[:remaining]
            remaining -= len(found)
            yield found


@dataclass
class _CachedIndex:
    """A base's index at a revision."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    revision: int = -1
    documents: Mapping[UUID, tuple[int, int]] = field(default_factory=dict[UUID, tuple[int, int]])
    """Generation and number of chunks."""
    alive: frozenset[tuple[UUID, int]] = frozenset()
    segments: Sequence["Segment"] = ()
    size: int = 0
    is_too_large: bool = False


class IndexCache:
    """The indexes of one process, shared by its threads. `memory` is the limit in bytes."""

    def __init__(self, database: Database, memory: int) -> None:
        self._database = database
        self._memory = memory
        self._indexes: OrderedDict[UUID, _CachedIndex] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes that all indexes take."""
        return sum(index.size for index in self._indexes.copy().values())

    def search(
        self,
        tenant_id: TenantId,
        bases: Sequence[SearchableBase],
        terms: "QueryVariants",
        *,
        by_vector: float,
        threshold: float,
        limit: int,
    ) -> list["ChunkMatch"]:
        """Return the most similar chunks of several bases.

        Blocks on the database and computes: call it from a thread.
        """
        try:
            from knowledge.index import chunk_index
        except ImportError as error:
            raise library_missing("knowledge", "Knowledge bases") from error
        vector = chunk_index.normalize(terms.vector) if terms.vector is not None else None
        found, variants = list[chunk_index.SegmentScores](), list[int]()
        for base in bases:
            wordings = list(terms.words(base.language))
            variants = list(map(len, wordings))  # the same for every language
            question = chunk_index.IndexQuery(list(chain(*wordings)), vector, terms.documents)
            alive, segments = self._segments(tenant_id, base)
            found += [chunk_index.score_segment(part, question, alive) for part in segments]
        return chunk_index.best_matches(found, variants, by_vector, threshold, limit)

    def _segments(
        self, tenant_id: TenantId, base: SearchableBase
    ) -> tuple[frozenset[tuple[UUID, int]], "Iterable[Segment]"]:
        with self._lock:
            index = self._indexes.setdefault(base.id, _CachedIndex())
            self._indexes.move_to_end(base.id)
        with index.lock:
            if index.revision < base.revision:
                self._refresh(index, tenant_id, base)
            if index.is_too_large:
                return index.alive, self._stream_segments(tenant_id, index.documents)
            return index.alive, index.segments

    def _refresh(self, index: _CachedIndex, tenant_id: TenantId, base: SearchableBase) -> None:
        from knowledge.index import chunk_index

        with self._database.transaction() as tx:
            documents = chunks.list_searchable(tx, tenant_id, base.id)
        alive = frozenset((document_id, generation) for document_id, (generation, _) in documents.items())
        segments = [part for part in index.segments if not alive.isdisjoint(part.documents)]
        known = {document for part in segments for document in part.documents}
        new = {document_id: documents[document_id] for document_id, _ in alive - known}
        room = self._memory - sum(part.size for part in segments)
        read = self._load_segment(tenant_id, new, room)
        if read is None:
            log.warning("knowledge_base_exceeds_memory", base_id=str(base.id), documents=len(alive))
            segments = []
        else:
            segments += [read] if len(read.codes) else []
            segments = _compact(segments, alive) if len(segments) > chunk_index.MAX_SEGMENTS else segments
        index.documents, index.alive = documents, alive
        index.segments, index.size = segments, sum(part.size for part in segments)
        index.revision, index.is_too_large = base.revision, read is None
        self._evict(base.id)

    def _load_segment(
        self, tenant_id: TenantId, documents: Mapping[UUID, tuple[int, int]], room: int
    ) -> "Segment | None":
        """Load the chunks of documents as one segment; return None if it takes more than `room` bytes.

        The size is estimated from the first block on, so that a base that is too large is not loaded in full.
        """
        from knowledge.index import chunk_index

        generations, sizes = _generations_and_sizes(documents)
        growing = chunk_index.SegmentBuilder(generations, sum(sizes.values()))
        for block in chunks.read_blocks(self._database, tenant_id, sizes):
            growing.add(block)
            if growing.size > room:
                return None
        return growing.build()

    def _stream_segments(self, tenant_id: TenantId, documents: Mapping[UUID, tuple[int, int]]) -> "Iterable[Segment]":
        """Yield the chunks of documents, a block at a time."""
        from knowledge.index import chunk_index

        generations, sizes = _generations_and_sizes(documents)
        return (
            chunk_index.build_segment(block, generations)
            for block in chunks.read_blocks(self._database, tenant_id, sizes)
        )

    def _evict(self, but: UUID) -> None:
        """Evict the least recently used indexes until the limit is kept; never the index of `but`."""
        with self._lock:
            for base_id in [base_id for base_id in self._indexes if base_id != but]:
                if self.size <= self._memory:
                    return
                self._indexes.pop(base_id)


def _generations_and_sizes(documents: Mapping[UUID, tuple[int, int]]) -> tuple[dict[UUID, int], dict[UUID, int]]:
    return (
        {document_id: generation for document_id, (generation, _) in documents.items()},
        {document_id: size for document_id, (_, size) in documents.items()},
    )


def _compact(segments: "Sequence[Segment]", alive: frozenset[tuple[UUID, int]]) -> "list[Segment]":
    """Merge segments into one, or into two if one is so large that copying it is not worth it."""
    from knowledge.index import chunk_index

    largest, *others = sorted(segments, key=lambda part: -part.size)
    if largest.size > 2 * sum(part.size for part in others) and alive.issuperset(largest.documents):
        return [largest, chunk_index.merge_segments(others, alive)]
    return [chunk_index.merge_segments(segments, alive)]
