"""The chunks of documents: written once by the process that has the document's lease, or by people.

store/knowledge/chunk_search.py searches them, and store/knowledge/written_chunks.py changes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.ids import TenantId
from store.db.transaction import Transaction
from store.knowledge import list_pages

FIRST_WRITTEN = 0x4000_0000
"""The positions of chunks that people wrote begin here, so they come after those of the document."""

HEADING = (
    r"(^|\n)[ \t]*(#{1,6}[ \t]|\d{1,3}\.\d|[[:alpha:]]{4,9}[ \t]+([0-9]{1,3}|[ivxlc]{1,7}|[a-z])\M|第)"  # or nearly
)

INSERT = text("""
    insert into knowledge_chunks (document_id, position, tenant_id, base_id, text, lexemes, embedding)
    values (:document_id, :position, :tenant_id, :base_id, :text, array_to_tsvector(cast(:lexemes as text[])),
        cast(:embedding as real[]))
    on conflict do nothing
""")
CHUNKS_WITH_DOCUMENTS = text("""
    select c.document_id, c.position, c.text, c.details, c.image is not null as has_image, d.name, d.metadata, d.base_id
    from unnest(cast(:document_ids as uuid[]), cast(:positions as int[])) as wanted (document_id, position)
    join knowledge_chunks c using (document_id, position)
    join knowledge_documents d on d.id = c.document_id
    where c.tenant_id = :tenant_id and d.tenant_id = :tenant_id
""")
OF_DOCUMENT = text("""
    select position, text, details, available, image is not null as has_image, count(*) over () as total
    from knowledge_chunks
    where tenant_id = :tenant_id and document_id = :document_id
        and (cast(:positions as int[]) is null or position = any(cast(:positions as int[])))
        and (cast(:available as boolean) is null or available = :available)
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
    where tenant_id = :tenant_id and base_id = any(cast(:base_ids as uuid[])) and enabled
        and (status = 'done' or written_chunks > 0)
    order by id
""")
OWNED = text("""
    select id from knowledge_documents
    where tenant_id = :tenant_id and base_id = any(cast(:base_ids as uuid[])) and id = any(cast(:ids as uuid[]))
""")


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk to be stored: its words as they are searched for, and its vector, scaled to length 1."""

    position: int
    text: str
    lexemes: Sequence[str]
    embedding: Sequence[float] | None


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
                "lexemes": list(chunk.lexemes),
                "embedding": None if chunk.embedding is None else list(chunk.embedding),
            }
            for chunk in chunks
        ],
    )


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
    positions: Sequence[int] | None = None,
    keywords: str = "",
    available: bool | None = None,
    most: int,
    skipped: int,
) -> tuple[Sequence[Any], int]:
    """Return a document's chunks in order as (position, text, details, available, has_image), and how many match.

    None, and empty `keywords`, filter nothing; `keywords` must be in the text.
    """
    quoted = keywords.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return list_pages.page_with_total(
        tx,
        OF_DOCUMENT,
        tenant_id=tenant_id,
        document_id=document_id,
        positions=None if positions is None else list(positions),
        available=available,
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
