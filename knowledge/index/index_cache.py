"""Indexes that this process keeps: read when a base is first asked, brought up to date when its revision has changed.

What is kept has a limit for all bases together; whatever was asked longest ago goes first. A base that is larger by
itself is read from the database for each question, a part at a time: right, and slow.

Who asks first waits for the reading. It goes on in its thread when that one gives up, and the next one finds it done.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from components.text.extraction.file_kinds import lacking
from knowledge.index import tokenizer
from store.db.database import Database
from store.knowledge import chunks
from store.knowledge.bases import SearchableBase

if TYPE_CHECKING:
    from knowledge.index.chunk_index import Near, Segment

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Asked:
    """A question in one or more wordings; its vector where the bases have a model, and which documents may be found."""

    variants: Sequence[str]
    vector: Sequence[float] | None = None
    documents: frozenset[UUID] | None = None

    def words(self, language: str) -> Iterator[Sequence[int]]:
        """The words of each wording as numbers, as many for one language as for another."""
        room = tokenizer.MOST_ASKED
        for variant in self.variants:
            found = tokenizer.asked(variant, language)[:room]
            room -= len(found)
            yield found


@dataclass
class _Kept:
    """A base's index as of a revision."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    revision: int = -1
    documents: Mapping[UUID, tuple[int, int]] = field(default_factory=dict[UUID, tuple[int, int]])
    """Generation and number of chunks."""
    alive: frozenset[tuple[UUID, int]] = frozenset()
    segments: Sequence["Segment"] = ()
    size: int = 0
    is_too_large: bool = False


class Shelf:
    """The indexes of one process. Threads share it; `memory` is in bytes."""

    def __init__(self, database: Database, memory: int) -> None:
        self._database = database
        self._memory = memory
        self._kept: OrderedDict[UUID, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes that all indexes take."""
        return sum(kept.size for kept in self._kept.copy().values())

    def nearest(
        self,
        tenant_id: UUID,
        bases: Sequence[SearchableBase],
        asked: "Asked",
        *,
        by_vector: float,
        threshold: float,
        most: int,
    ) -> list["Near"]:
        """The nearest chunks of some bases together. Reads and computes: call it from a thread."""
        try:
            from knowledge.index import chunk_index
        except ImportError as error:
            raise lacking("knowledge", "Knowledge bases") from error
        vector = chunk_index.direction(asked.vector) if asked.vector is not None else None
        found, variants = list[chunk_index.Measured](), list[int]()
        for base in bases:
            wordings = list(asked.words(base.language))
            variants = list(map(len, wordings))  # the same for every language
            question = chunk_index.Question(list(chain(*wordings)), vector, asked.documents)
            alive, segments = self._segments(tenant_id, base)
            found += [chunk_index.measured(part, question, alive) for part in segments]
        return chunk_index.nearest(found, variants, by_vector, threshold, most)

    def _segments(
        self, tenant_id: UUID, base: SearchableBase
    ) -> tuple[frozenset[tuple[UUID, int]], "Iterable[Segment]"]:
        with self._lock:
            kept = self._kept.setdefault(base.id, _Kept())
            self._kept.move_to_end(base.id)
        with kept.lock:
            if kept.revision < base.revision:
                self._bring_up_to_date(kept, tenant_id, base)
            if kept.is_too_large:
                return kept.alive, self._read(tenant_id, kept.documents)
            return kept.alive, kept.segments

    def _bring_up_to_date(self, kept: _Kept, tenant_id: UUID, base: SearchableBase) -> None:
        from knowledge.index import chunk_index

        with self._database.transaction() as tx:
            documents = chunks.searchable(tx, tenant_id, base.id)
        alive = frozenset((document_id, generation) for document_id, (generation, _) in documents.items())
        segments = [part for part in kept.segments if not alive.isdisjoint(part.documents)]
        known = {document for part in segments for document in part.documents}
        new = {document_id: documents[document_id] for document_id, _ in alive - known}
        room = self._memory - sum(part.size for part in segments)
        read = self._read_whole(tenant_id, new, room)
        if read is None:
            log.warning("knowledge_base_exceeds_memory", base_id=str(base.id), documents=len(alive))
            segments = []
        else:
            segments += [read] if len(read.codes) else []
            segments = _fewer(segments, alive) if len(segments) > chunk_index.MOST_SEGMENTS else segments
        kept.documents, kept.alive = documents, alive
        kept.segments, kept.size = segments, sum(part.size for part in segments)
        kept.revision, kept.is_too_large = base.revision, read is None
        self._make_room(base.id)

    def _read_whole(self, tenant_id: UUID, documents: Mapping[UUID, tuple[int, int]], room: int) -> "Segment | None":
        """The chunks of documents as one segment; None if it would take more than there is room for, in bytes.

        That is told from the first block on: a base that is too large is not read in vain.
        """
        from knowledge.index import chunk_index

        generations, sizes = _generations_and_sizes(documents)
        growing = chunk_index.Growing(generations, sum(sizes.values()))
        for block in chunks.read(self._database, tenant_id, sizes):
            growing.add(block)
            if growing.size > room:
                return None
        return growing.segment()

    def _read(self, tenant_id: UUID, documents: Mapping[UUID, tuple[int, int]]) -> "Iterable[Segment]":
        """The chunks of documents, a block at a time."""
        from knowledge.index import chunk_index

        generations, sizes = _generations_and_sizes(documents)
        return (chunk_index.segment(block, generations) for block in chunks.read(self._database, tenant_id, sizes))

    def _make_room(self, but: UUID) -> None:
        """Let go of what was asked longest ago."""
        with self._lock:
            for base_id in [base_id for base_id in self._kept if base_id != but]:
                if self.size <= self._memory:
                    return
                self._kept.pop(base_id)


def _generations_and_sizes(documents: Mapping[UUID, tuple[int, int]]) -> tuple[dict[UUID, int], dict[UUID, int]]:
    return (
        {document_id: generation for document_id, (generation, _) in documents.items()},
        {document_id: size for document_id, (_, size) in documents.items()},
    )


def _fewer(segments: "Sequence[Segment]", alive: frozenset[tuple[UUID, int]]) -> "list[Segment]":
    """The same chunks in one segment, or in two: a large one is not copied for a few small ones beside it."""
    from knowledge.index import chunk_index

    largest, *others = sorted(segments, key=lambda part: -part.size)
    if largest.size > 2 * sum(part.size for part in others) and alive.issuperset(largest.documents):
        return [largest, chunk_index.joined(others, alive)]
    return [chunk_index.joined(segments, alive)]
