"""Search in chunks that are stored as arrays, also after documents were added and removed."""

import struct
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import ToolError
from knowledge.index import chunk_index, vector_codec
from knowledge.index.chunk_index import ChunkMatch, IndexQuery, Segment


@dataclass(frozen=True)
class Row:
    document_id: UUID
    position: int
    words: bytes
    vector: bytes | None


def row(document: int, position: int, words: list[int], vector: list[float] | None = None) -> Row:
    packed = struct.pack(f"<{len(words)}I", *sorted(words))
    return Row(UUID(int=document), position, packed, struct.pack(f"<{len(vector)}f", *vector) if vector else None)


def segment(*rows: Row) -> Segment:
    return chunk_index.build_segment(vector_codec.build_block(rows), {row.document_id: 0 for row in rows})


def search(*parts: Segment, words: list[int], vector: list[float] | None = None, **settings: float) -> list[ChunkMatch]:
    question = IndexQuery(words, chunk_index.normalize(vector) if vector else None)
    found = [chunk_index.score_segment(part, question) for part in parts]
    figures = {"by_vector": 0.5 if vector else 0.0, "threshold": 0.01, "most": 10, **settings}
    return chunk_index.best_matches(
        found, [len(words)], figures["by_vector"], figures["threshold"], int(figures["most"])
    )


def test_similarity_combines_words_and_vectors_by_weight() -> None:
    part = segment(row(1, 0, [7, 8], [1, 0]), row(1, 1, [9], [0.6, 0.8]), row(2, 0, [9], [0, 1]))

    by_both = search(part, words=[9], vector=[1, 0])
    by_vector = search(part, words=[9], vector=[1, 0], by_vector=1.0)
    by_words = search(part, words=[9], vector=[1, 0], by_vector=0.0)

    assert [(each.position, round(each.similarity, 2)) for each in by_both] == [(1, 0.8), (0, 0.5), (0, 0.5)]
    assert [(each.document_id.int, each.position) for each in by_vector] == [(1, 0), (1, 1)]
    assert [(each.document_id.int, each.position) for each in by_words] == [(1, 1), (2, 0)]


def test_a_rare_word_counts_for_more_than_a_common_one() -> None:
    part = segment(*(row(1, at, [5]) for at in range(50)), row(1, 50, [6]))

    first, *others = search(part, words=[5, 6])

    assert first.position == 50
    assert first.by_words > 0.6 > others[0].by_words


def test_similarity_of_several_wordings_is_that_of_the_best() -> None:
    part = segment(row(1, 0, [1, 2]))
    found = [chunk_index.score_segment(part, IndexQuery([1, 2, 3, 4]))]

    (both,) = chunk_index.best_matches(found, [2, 2], 0.0, 0.1, 5)

    assert both.by_words == pytest.approx(1.0)


def test_only_allowed_and_live_documents_are_found() -> None:
    part = segment(row(1, 0, [1]), row(2, 0, [1]), row(3, 0, [1]))
    query = IndexQuery([1], documents=frozenset({UUID(int=1), UUID(int=2)}))

    found = chunk_index.best_matches(
        [chunk_index.score_segment(part, query, {(UUID(int=2), 0), (UUID(int=3), 0)})], [1], 0.0, 0.1, 5
    )

    assert [each.document_id.int for each in found] == [2]


def in_order(rows: list[tuple[int, set[int]]]) -> list[tuple[int, set[int]]]:
    """Return the rows sorted by document."""
    return sorted(rows, key=lambda row: row[0])


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 4), st.sets(st.integers(0, 5))), min_size=1, max_size=5), max_size=5),
    st.sets(st.integers(1, 4)),
)
def test_merged_segments_find_chunks_of_live_documents(drawn: list[list[tuple[int, set[int]]]], live: set[int]) -> None:
    parts = [
        segment(
            *(row(document + 10 * at, position, [*words]) for position, (document, words) in enumerate(in_order(rows)))
        )
        for at, rows in enumerate(drawn)
    ]
    live_documents = {(UUID(int=document + 10 * at), 0) for document in live for at in range(len(drawn))}
    apart = [chunk_index.score_segment(part, IndexQuery([1, 3]), live_documents) for part in parts]

    joined = (
        [
            chunk_index.score_segment(
                chunk_index.merge_segments(parts, live_documents), IndexQuery([1, 3]), live_documents
            )
        ]
        if parts
        else []
    )

    def hits_of(found: list[chunk_index.SegmentScores]) -> list[tuple[int, int, int]]:
        return sorted(
            (part.documents[code][0].int, int(position), int(hits))
            for part in found
            for code, position, hits in zip(part.codes, part.positions, part.hits, strict=True)
        )

    assert hits_of(joined) == hits_of(apart)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sets(st.integers(0, 5))), max_size=12),
    st.lists(st.integers(1, 5), max_size=6),
    st.integers(0, 3),
)
def test_index_does_not_depend_on_the_size_of_blocks(
    drawn: list[tuple[int, set[int]]], cuts: list[int], unexpected: int
) -> None:
    rows = [row(document, at, [*words], [1.0, at]) for at, (document, words) in enumerate(in_order(drawn))]
    generations = {each.document_id: 0 for each in rows}
    growing, left = chunk_index.SegmentBuilder(generations, max(len(rows) - unexpected, 0)), rows
    for size in [*cuts, len(rows)]:
        growing.add(vector_codec.build_block(left[:size]))
        left = left[size:]

    grown, whole = growing.build(), chunk_index.build_segment(vector_codec.build_block(rows), generations)

    assert grown.documents == whole.documents
    for name in ("codes", "positions", "words", "rows"):
        assert np.array_equal(getattr(grown, name), getattr(whole, name))
    assert (grown.vectors is None and not rows) or np.array_equal(grown.vectors, whole.vectors)  # pyright: ignore[reportArgumentType]
    assert growing.size >= grown.size or unexpected


def test_vectors_of_another_length_are_an_error() -> None:
    with pytest.raises(ToolError, match="now returns vectors of 3 numbers"):
        search(segment(row(1, 0, [1], [1, 0])), words=[1], vector=[1, 0, 0])
    with pytest.raises(ToolError, match="several lengths"):
        segment(row(1, 0, [1], [1, 0]), row(2, 0, [1], [1, 0, 0]))


def test_matches_are_sorted_by_similarity_and_then_by_position() -> None:
    part = segment(*(row(1, at, [1], [1, 0]) for at in range(20)))

    found = search(part, words=[1], vector=[1, 0], most=20)

    assert [each.position for each in found] == list(range(20))
    assert np.isclose(found[0].similarity, 1.0)
