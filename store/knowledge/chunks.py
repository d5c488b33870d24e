"""The chunks of documents: written once by the process that has the document's lease, read in bulk into an index."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.ids import TenantId
from store.db.database import Database
from store.db.transaction import Transaction

BLOCK_SIZE = 4000  # chunks; 16 MB of vectors of 1024 numbers, a fraction of a second

HEADING = (
    r"(^|\n)[ \t]*(#{1,6}[ \t]|\d{1,3}\.\d|[[:alpha:]]{4,9}[ \t]+([0-9]{1,3}|[ivxlc]{1,7}|[a-z])\M|第)"  # or nearly
)

INSERT = text("""
    insert into knowledge_chunks (document_id, position, tenant_id, base_id, text, words, vector)
    values (:document_id, :position, :tenant_id, :base_id, :text, :words, :vector)
    on conflict do nothing
""")
SEARCHABLE = text("""
    select id, generation, chunks from knowledge_documents
    where tenant_id = :tenant_id and base_id = :base_id and status = 'done' and chunks > 0 order by id
""")
BLOCK = text("""
    select string_agg(uuid_send(document_id), '') as documents, string_agg(int4send(position), '') as positions,
        string_agg(int4send(length(words)), '') as lengths, string_agg(words, '') as words,
        string_agg(vector, '') as vectors, count(vector) as with_vectors,
        min(length(vector)) as shortest, max(length(vector)) as longest, count(*) as count
    from (
        select document_id, position, words, vector from knowledge_chunks
        where document_id = any(cast(:document_ids as uuid[])) and position >= :first and position < :last
            and tenant_id = :tenant_id
        order by document_id, position
    ) as chunks
""")
CHUNKS_WITH_DOCUMENTS = text("""
    select c.document_id, c.position, c.text, d.name, d.metadata, d.base_id
    from unnest(cast(:document_ids as uuid[]), cast(:positions as int[])) as wanted (document_id, position)
    join knowledge_chunks c using (document_id, position)
    join knowledge_documents d on d.id = c.document_id
    where c.tenant_id = :tenant_id and d.tenant_id = :tenant_id
""")
OF_DOCUMENT = text("""
    select position, text, count(*) over () as total from knowledge_chunks
    where tenant_id = :tenant_id and document_id = :document_id
        and (cast(:position as int) is null or position = :position)
        and (:like = '%%' or text ilike :like)
    order by position limit :most offset :skipped
""")
WITH_HEADINGS = text("""
    select position, text from knowledge_chunks
    where tenant_id = :tenant_id and document_id = :document_id and text ~* :heading
    order by position limit :most
""")
METADATA = text("""
    select id, metadata from knowledge_documents
    where tenant_id = :tenant_id and base_id = any(cast(:base_ids as uuid[])) and status = 'done' order by id
""")
OWNED = text("""
    select id from knowledge_documents
    where tenant_id = :tenant_id and base_id = any(cast(:base_ids as uuid[])) and id = any(cast(:ids as uuid[]))
""")


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk to be stored. `words` and `vector` are numbers as bytes."""

    position: int
    text: str
    words: bytes
    vector: bytes | None


@dataclass(frozen=True, slots=True)
class ChunkBlock:
    """Many chunks as a few long byte strings.

    `documents` has the id of each chunk's document, `positions` its position, and so on, one after the other (numbers
    of 4 bytes, big-endian). `lengths` says how many bytes of `words` are each chunk's. `shortest` and `longest` are the
    lengths of vectors in bytes.
    """

    documents: bytes
    positions: bytes
    lengths: bytes
    words: bytes
    vectors: bytes | None
    with_vectors: int
    shortest: int | None
    longest: int | None
    count: int


def add(tx: Transaction, tenant_id: TenantId, base_id: UUID, document_id: UUID, chunks: Sequence[NewChunk]) -> None:
    """Store chunks; an existing chunk stays unchanged."""
    tx.write_many(
        INSERT,
        [
            {
                "document_id": document_id,
                "position": chunk.position,
                "tenant_id": tenant_id,
                "base_id": base_id,
                "text": chunk.text,
                "words": chunk.words,
                "vector": chunk.vector,
            }
            for chunk in chunks
        ],
    )


def list_searchable(tx: Transaction, tenant_id: TenantId, base_id: UUID) -> dict[UUID, tuple[int, int]]:
    """Return the searchable documents of a base, with the generation of their chunks and how many there are."""
    rows = tx.rows(SEARCHABLE, tenant_id=tenant_id, base_id=base_id)
    return {row.id: (row.generation, row.chunks) for row in rows}


def read_blocks(database: Database, tenant_id: TenantId, sizes: Mapping[UUID, int]) -> Iterator["ChunkBlock"]:
    """Yield all chunks of some documents in blocks of some thousands; a document's chunks are together and in order.

    `sizes`: the number of chunks by document. The server aggregates a block, which is faster than reading its rows.
    """
    for document_ids, first, last in _split_reads(sizes):
        with database.statements() as tx:
            (row,) = tx.rows_in_binary(BLOCK, tenant_id=tenant_id, document_ids=document_ids, first=first, last=last)
        if row.count:
            yield ChunkBlock(*row)


def _split_reads(sizes: Mapping[UUID, int]) -> Iterator[tuple[list[UUID], int, int]]:
    """Yield (ids, first position, end position): small documents several at a time, large ones in slices."""
    small, count = list[UUID](), 0
    for document_id, size in sizes.items():
        if size > BLOCK_SIZE:
            yield from (([document_id], first, first + BLOCK_SIZE) for first in range(0, size, BLOCK_SIZE))
            continue
        if small and count + size > BLOCK_SIZE:
            yield small, 0, BLOCK_SIZE
            small, count = [], 0
        small.append(document_id)
        count += size
    if small:
        yield small, 0, BLOCK_SIZE


def load_chunks(
    tx: Transaction, tenant_id: TenantId, places: Sequence[tuple[UUID, int]]
) -> dict[tuple[UUID, int], Any]:
    """Return chunks by document and position, with the names and metadata of their documents."""
    rows = tx.rows(
        CHUNKS_WITH_DOCUMENTS,
        tenant_id=tenant_id,
        document_ids=[document for document, _ in places],
        positions=[position for _, position in places],
    )
    return {(row.document_id, row.position): row for row in rows}


def list_of_document(
    tx: Transaction,
    tenant_id: TenantId,
    document_id: UUID,
    *,
    position: int | None = None,
    keywords: str = "",
    most: int,
    skipped: int,
) -> Sequence[Any]:
    """Return a document's chunks in order as (position, text, total), filtered by `position` and `keywords`."""
    quoted = keywords.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return tx.rows(
        OF_DOCUMENT,
        tenant_id=tenant_id,
        document_id=document_id,
        position=position,
        like=f"%{quoted}%",
        most=most,
        skipped=skipped,
    )


def find_with_headings(tx: Transaction, tenant_id: TenantId, document_id: UUID, *, most: int) -> list[tuple[int, str]]:
    """Return the chunks of a document that contain a line that looks like a heading, in order: (position, text)."""
    rows = tx.rows(WITH_HEADINGS, tenant_id=tenant_id, document_id=document_id, heading=HEADING, most=most)
    return [(row.position, row.text) for row in rows]


def load_metadata(tx: Transaction, tenant_id: TenantId, base_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """Return the metadata of all searchable documents of some bases."""
    return {row.id: dict(row.metadata) for row in tx.rows(METADATA, tenant_id=tenant_id, base_ids=list(base_ids))}


def filter_owned(tx: Transaction, tenant_id: TenantId, base_ids: Sequence[UUID], ids: Sequence[UUID]) -> set[UUID]:
    """Return those of the ids that are documents of these bases."""
    return {row.id for row in tx.rows(OWNED, tenant_id=tenant_id, base_ids=list(base_ids), ids=list(ids))}
