"""The encoding of word hashes and vectors in database rows: little-endian numbers (docs/decisions/0024)."""

import struct
from collections.abc import Sequence
from math import sqrt
from typing import Any

from knowledge.index.tokenizer import word_hashes
from store.knowledge.chunks import ChunkBlock


def encode_vector(numbers: Sequence[float]) -> bytes:
    """Encode a vector, scaled to length 1, as float32; a zero vector stays as it is."""
    length = sqrt(sum(number * number for number in numbers))
    scaled = [number / length for number in numbers] if length else list(numbers)
    return struct.pack(f"<{len(scaled)}f", *scaled)


def encode_words(text: str, language: str) -> bytes:
    """Encode the word hashes of a text, in ascending order, as uint32."""
    found = sorted(word_hashes(text, language))
    return struct.pack(f"<{len(found)}I", *found)


def build_block(rows: Sequence[Any]) -> ChunkBlock:
    """Return the block of rows (document_id, position, words, vector), as the database returns it.

    Rows of a document must be adjacent.
    """
    vectors = [row.vector for row in rows if row.vector is not None]
    return ChunkBlock(
        documents=b"".join(row.document_id.bytes for row in rows),
        positions=struct.pack(f">{len(rows)}i", *(row.position for row in rows)),
        lengths=struct.pack(f">{len(rows)}i", *(len(row.words) for row in rows)),
        words=b"".join(row.words for row in rows),
        vectors=b"".join(vectors),
        with_vectors=len(vectors),
        shortest=min(map(len, vectors), default=None),
        longest=max(map(len, vectors), default=None),
        count=len(rows),
    )
