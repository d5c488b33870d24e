"""Chunks and messages that the previous release stored: their words and vectors are bytes, and are converted.

They have no lexemes, and searches do not find them before.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import text

from store.db.transaction import Transaction

BATCH_SIZE = 200  # rows of one transaction

CHUNKS = text("""
    select r.document_id as owner, r.position as number, r.text, r.vector, b.language
    from knowledge_chunks r join knowledge_bases b on b.id = r.base_id
    where r.lexemes is null order by r.document_id, r.position limit :most for update of r skip locked
""")
MESSAGES = text("""
    select memory_id as owner, number, content as text, vector, '' as language from memory_messages
    where lexemes is null order by memory_id, number limit :most for update skip locked
""")
CONVERT_CHUNK = text("""
    update knowledge_chunks
    set lexemes = array_to_tsvector(cast(:lexemes as text[])), embedding = cast(:embedding as real[])
    where document_id = :owner and position = :number
""")
CONVERT_MESSAGE = text("""
    update memory_messages
    set lexemes = array_to_tsvector(cast(:lexemes as text[])), embedding = cast(:embedding as real[])
    where memory_id = :owner and number = :number
""")
IS_WAITING = text("""
    select exists (select from knowledge_chunks where lexemes is null)
        or exists (select from memory_messages where lexemes is null)
""")


def convert(tx: Transaction, words_of: Callable[[str, str], Sequence[str]]) -> int:
    """Convert a batch of rows; return their number. `words_of` returns the words of a text in a language, "" for the
    language of memories.
    """
    for read, write in ((CHUNKS, CONVERT_CHUNK), (MESSAGES, CONVERT_MESSAGE)):
        rows = tx.rows(read, most=BATCH_SIZE)
        tx.write_many(
            write,
            [
                {
                    "owner": row.owner,
                    "number": row.number,
                    "lexemes": list(words_of(row.text, row.language)),
                    "embedding": _decode_vector(row.vector),
                }
                for row in rows
            ],
        )
        if rows:
            return len(rows)
    return 0


def is_waiting(tx: Transaction) -> bool:
    """Return whether a row is to be converted."""
    return bool(tx.scalar(IS_WAITING))


def _decode_vector(vector: Any) -> list[float] | None:
    """Return the numbers of a vector that was stored as little-endian float32."""
    if vector is None:
        return None
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))
