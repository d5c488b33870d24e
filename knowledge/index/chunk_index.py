"""The index: a base's chunks as arrays, and their similarity to a query.

The search is exact: every chunk is scored. 100,000 vectors of 384 numbers take one processor 16 ms
(docs/decisions/0024). This module needs NumPy; callers import it only when they search.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from canvas.errors import ToolError
from store.knowledge.chunks import ChunkBlock

ABSENT_WORD_WEIGHT = 0.35  # weight of a query word that is in no passage
MAX_SEGMENTS = 16  # of an index; each further segment costs a few calls for every query


@dataclass(frozen=True, slots=True)
class Segment:
    """Chunks that were read together. Row `i` is the chunk at `positions[i]` of `documents[codes[i]]`.

    `words` holds the hashes of all words of all chunks in ascending order, `rows` the row of each.
    """

    documents: Sequence[tuple[UUID, int]]  # with the generation of its chunks
    codes: NDArray[np.int32]
    positions: NDArray[np.int32]
    vectors: NDArray[np.float32] | None
    words: NDArray[np.uint32]
    rows: NDArray[np.int32]

    @property
    def size(self) -> int:
        """Bytes."""
        arrays = (self.codes, self.positions, self.words, self.rows)
        return sum(array.nbytes for array in arrays) + (self.vectors.nbytes if self.vectors is not None else 0)


class SegmentBuilder:
    """A builder of a segment. Blocks of chunks are added one after another, those of a document together.

    `expected` is the number of chunks to come, so that the array of vectors is allocated once and not copied.
    """

    def __init__(self, generations: Mapping[UUID, int], expected: int) -> None:
        self._generations = generations
        self._expected = expected
        self._documents = list[tuple[UUID, int]]()
        self._codes = list[NDArray[np.int32]]()
        self._positions = list[NDArray[np.int32]]()
        self._words = list[NDArray[np.uint64]]()
        self._vectors: NDArray[np.float32] | None = None
        self._has_vectors = True
        self._count = 0

    @property
    def size(self) -> int:
        """An estimate of the complete segment's bytes, from the chunks so far."""
        words = 8 * sum(map(len, self._words))
        to_come = self._expected / self._count if self._count else 0
        vectors = self._vectors.nbytes if self._vectors is not None else 0
        return vectors + int(to_come * (words + 8 * self._count))

    def add(self, block: ChunkBlock) -> None:
        """Add a block. Raises ToolError for vectors of several lengths."""
        if not block.count:
            return
        self._add_vectors(block)
        ids = np.frombuffer(block.documents, np.uint8).reshape(block.count, 16)
        begins = np.flatnonzero(np.concatenate([[True], (ids[1:] != ids[:-1]).any(axis=1)]))
        codes = np.zeros(block.count, np.int32)
        codes[begins] = 1
        first = UUID(bytes=ids[0].tobytes())
        if self._documents and self._documents[-1][0] == first:  # a long document, in several blocks
            codes[0] = 0
            begins = begins[1:]
        self._codes.append(np.cumsum(codes, dtype=np.int32) + np.int32(len(self._documents) - 1))
        for at in begins:
            document_id = UUID(bytes=ids[at].tobytes())
            self._documents.append((document_id, self._generations[document_id]))
        self._positions.append(np.frombuffer(block.positions, ">i4").astype(np.int32))
        rows = np.arange(self._count, self._count + block.count, dtype=np.uint64)
        lengths = np.frombuffer(block.lengths, ">i4") // 4
        self._words.append(_pack(np.frombuffer(block.words, "<u4"), np.repeat(rows, lengths)))
        self._count += block.count

    def _add_vectors(self, block: ChunkBlock) -> None:
        self._has_vectors = self._has_vectors and block.with_vectors == block.count
        if not self._has_vectors or block.vectors is None or block.longest is None:
            self._vectors = None
            return
        numbers = block.longest // 4
        if self._vectors is None:
            self._vectors = np.empty((max(self._expected, block.count), numbers), np.float32)
        if block.shortest != block.longest or self._vectors.shape[1] != numbers:
            raise ToolError("The knowledge base has vectors of several lengths. Parse its documents again.")
        until = self._count + block.count
        if until > len(self._vectors):  # more than expected
            more = np.empty((until - len(self._vectors), numbers), np.float32)
            self._vectors = np.concatenate([self._vectors, more])
        self._vectors[self._count : until] = np.frombuffer(block.vectors, "<f4").reshape(-1, numbers)

    def build(self) -> Segment:
        """Return the segment of all added blocks."""
        words, rows = _sort_and_unpack(self._words)
        return Segment(
            self._documents,
            _concatenate(self._codes),
            _concatenate(self._positions),
            self._vectors[: self._count] if self._vectors is not None else None,
            words,
            rows,
        )


def build_segment(block: ChunkBlock, generations: Mapping[UUID, int]) -> Segment:
    """Return the segment of one block."""
    growing = SegmentBuilder(generations, block.count)
    growing.add(block)
    return growing.build()


def merge_segments(segments: Sequence[Segment], alive: Collection[tuple[UUID, int]]) -> Segment:
    """Merge segments into one, with the chunks of the documents in `alive`."""
    documents, parts, at = list[tuple[UUID, int]](), list[Segment](), 0
    placed, offset = list[NDArray[np.uint64]](), 0
    for each in segments:
        lives = np.fromiter((document in alive for document in each.documents), bool, count=len(each.documents))
        keep = lives[each.codes]
        renumbered = np.cumsum(keep, dtype=np.int32) - 1
        code_of = np.cumsum(lives, dtype=np.int32) - 1
        words_to_keep = keep[each.rows]
        vectors = each.vectors
        if vectors is not None and not keep.all():
            vectors = vectors[keep]
        codes, positions = code_of[each.codes[keep]] + np.int32(at), each.positions[keep]
        parts.append(Segment((), codes, positions, vectors, each.words[:0], each.rows[:0]))
        placed.append(_pack(each.words[words_to_keep], renumbered[each.rows[words_to_keep]].astype(np.uint64) + offset))
        documents += [document for document, is_alive in zip(each.documents, lives, strict=True) if is_alive]
        at = len(documents)
        offset += len(codes)
    vectors = [part.vectors for part in parts if part.vectors is not None]
    return Segment(
        documents,
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.positions for part in parts]),
        np.concatenate(vectors) if len(vectors) == len(parts) else None,
        *_sort_and_unpack(placed),
    )


def _pack(words: NDArray[np.uint32], rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return each word and its row packed into one number, which sorts three times as fast as pairs."""
    return (words.astype(np.uint64) << np.uint64(32)) | rows


def _sort_and_unpack(placed: Sequence[NDArray[np.uint64]]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Return the words in ascending order, and their rows."""
    numbers = np.concatenate(placed) if placed else np.zeros(0, np.uint64)
    numbers.sort()
    return (numbers >> np.uint64(32)).astype(np.uint32), (numbers & np.uint64(0xFFFFFFFF)).astype(np.int32)


def _concatenate(parts: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """A query: hashes of its words, and a vector of length 1 if the base has an embedding model."""

    words: Sequence[int]
    vector: NDArray[np.float32] | None = None
    documents: frozenset[UUID] | None = None  # None: any


@dataclass(frozen=True, slots=True)
class ChunkMatch:
    """A chunk and its similarities, each from 0 to 1."""

    document_id: UUID
    position: int
    similarity: float
    by_vector: float
    by_words: float


@dataclass
class SegmentScores:
    """The scores of a segment's chunks."""

    documents: Sequence[tuple[UUID, int]] = field(default_factory=list[tuple[UUID, int]])
    codes: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    positions: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    cosines: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    hits: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))  # a bit for each word


def score_segment(
    part: Segment, question: IndexQuery, alive: Collection[tuple[UUID, int]] | None = None
) -> SegmentScores:
    """Score the chunks of a segment, without those of deleted or excluded documents."""
    count = len(part.codes)
    hits = np.zeros(count, np.uint64)
    for bit, word in enumerate(question.words):
        word_hash = np.uint32(word)  # of the array's type, else NumPy copies the array for each query
        first, last = np.searchsorted(part.words, word_hash, "left"), np.searchsorted(part.words, word_hash, "right")
        hits[part.rows[first:last]] |= np.uint64(1 << bit)
    if part.vectors is not None and question.vector is not None:
        cosines = _cosines(part.vectors, question.vector)
    else:
        cosines = np.zeros(count, np.float32)
    codes, positions = part.codes, part.positions
    allowed = question.documents
    may_be_found = [
        (alive is None or document in alive) and (allowed is None or document[0] in allowed)
        for document in part.documents
    ]
    if not all(may_be_found):
        keep = np.array(may_be_found, dtype=bool)[codes]
        codes, positions, cosines, hits = codes[keep], positions[keep], cosines[keep], hits[keep]
    return SegmentScores(part.documents, codes, positions, cosines, hits)


def _cosines(vectors: NDArray[np.float32], question: NDArray[np.float32]) -> NDArray[np.float32]:
    if vectors.shape[1] != len(question):
        raise ToolError(
            f"The embedding model now returns vectors of {len(question)} numbers, and the knowledge base has vectors "
            f"of {vectors.shape[1]}. Parse its documents again, or restore the previous model."
        )
    return vectors @ question


def normalize(vector: Sequence[float]) -> NDArray[np.float32]:
    """Scale a vector to length 1; a zero vector stays as it is."""
    found = np.asarray(vector, dtype=np.float32)
    length = float(np.linalg.norm(found))
    return found / np.float32(length) if length else found


def best_matches(
    parts: Iterable[SegmentScores], variants: Sequence[int], by_vector: float, threshold: float, limit: int
) -> list[ChunkMatch]:
    """Return the most similar chunks, the best match first. `by_vector` is the vector's weight, the rest the words'.

    The word similarity of a chunk is the weighted share of the query's words that it contains; rarer words weigh more.
    `variants` holds the number of words of each wording of the query; the best wording counts.
    """
    found = [part for part in parts if len(part.codes)]
    if not found:
        return []
    hits = np.concatenate([part.hits for part in found])
    cosines = np.clip(np.concatenate([part.cosines for part in found]), 0.0, 1.0)
    by_words = np.zeros(len(hits), np.float32)
    first = 0
    for count in variants:
        by_words = np.maximum(by_words, _word_similarity(hits, range(first, first + count)))
        first += count
    similarity = by_vector * cosines + (1 - by_vector) * by_words
    candidates = np.flatnonzero(similarity >= threshold)
    if len(candidates) > limit:
        candidates = candidates[np.argpartition(similarity[candidates], -limit)[-limit:]]
    order = candidates[np.lexsort((candidates, -similarity[candidates]))]
    return [
        ChunkMatch(*_locate(found, int(row)), float(similarity[row]), float(cosines[row]), float(by_words[row]))
        for row in order
    ]


def _word_similarity(hits: NDArray[np.uint64], bits: Iterable[int]) -> NDArray[np.float32]:
    """Return for each chunk the weight of the query words that it contains, divided by the weight of all."""
    total = np.zeros(len(hits), np.float32)
    whole = 0.0
    for bit in bits:
        has = (hits >> np.uint64(bit)) & np.uint64(1)
        count = int(has.sum())
        weight = log(2 + len(hits) / count) if count else ABSENT_WORD_WEIGHT  # 2: no word is rare in a base of three
        total += has.astype(np.float32) * np.float32(weight)
        whole += weight
    return total / np.float32(whole) if whole else total


def _locate(parts: Sequence[SegmentScores], row: int) -> tuple[UUID, int]:
    for part in parts:
        if row < len(part.codes):
            return part.documents[part.codes[row]][0], int(part.positions[row])
        row -= len(part.codes)
    raise AssertionError("unreachable: a row is in one of the parts")
