"""Chunks as people change them: add, change, switch on and off, delete.

Every change locks the row of the document, which counts its chunks. While a document is parsed nothing is changed,
because its reader counts the chunks, too, and parsing it again replaces all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import JSONB

from canvas.errors import Conflict, NotFound
from canvas.ids import TenantId
from store.db.transaction import Transaction
from store.knowledge import bases, chunk_indexes
from store.knowledge.chunks import FIRST_WRITTEN

LOCK_DOCUMENT = text("""
    select status from knowledge_documents
    where tenant_id = :tenant_id and base_id = :base_id and id = :document_id for update
""")
COUNT_ADDED = text("""
    update knowledge_documents set chunks = chunks + 1, written_chunks = written_chunks + 1,
        last_written = last_written + 1, tokens = tokens + :tokens, updated_at = clock_timestamp()
    where tenant_id = :tenant_id and id = :document_id returning last_written
""")
INSERT = text("""
    insert into knowledge_chunks (document_id, position, tenant_id, base_id, text, lexemes, embedding, details, image)
    values (:document_id, :position, :tenant_id, :base_id, :text, array_to_tsvector(cast(:lexemes as text[])),
        cast(:embedding as real[]), :details, :image)
""").bindparams(bindparam("details", type_=JSONB(none_as_null=True)))
GET = text("""
    select position, text, details, available, image is not null as has_image from knowledge_chunks
    where tenant_id = :tenant_id and document_id = :document_id and position = :position
""")
IMAGE = text("""
    select image from knowledge_chunks
    where tenant_id = :tenant_id and base_id = :base_id and document_id = :document_id and position = :position
""")
_this_chunk = "tenant_id = :tenant_id and document_id = :document_id and position = :position"
UPDATE = text(f"""
    update knowledge_chunks set text = :text, details = :details, available = :available,
        image = coalesce(cast(:image as bytea), image)
    where {_this_chunk} and text = :former_text and details is not distinct from cast(:former_details as jsonb)
""").bindparams(  # noqa: S608 (this module's own text)
    *(bindparam(name, type_=JSONB(none_as_null=True)) for name in ("details", "former_details"))
)
REINDEX = text(f"""
    update knowledge_chunks
    set lexemes = array_to_tsvector(cast(:lexemes as text[])), embedding = cast(:embedding as real[])
    where {_this_chunk}
""")  # noqa: S608 (this module's own text)
SWITCH = text("""
    update knowledge_chunks set available = :available
    where tenant_id = :tenant_id and document_id = :document_id and position = any(cast(:positions as int[]))
""")
DELETE = text("""
    delete from knowledge_chunks where tenant_id = :tenant_id and document_id = :document_id
        and (cast(:positions as int[]) is null or position = any(cast(:positions as int[]))) returning position
""")
COUNT_DELETED = text("""
    update knowledge_documents set chunks = greatest(0, chunks - :deleted),
        written_chunks = greatest(0, written_chunks - :written), updated_at = clock_timestamp()
    where tenant_id = :tenant_id and id = :document_id
""")

BEING_PARSED = (
    "The document is being parsed, which replaces its chunks. Change them when that is done, or stop parsing it."
)


class BeingParsed(Conflict):
    """The document of a chunk is being parsed."""

    code = "being_parsed"


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """The document in which a chunk is changed."""

    tenant_id: TenantId
    base_id: UUID
    document_id: UUID

    def key(self) -> dict[str, Any]:
        """Return the parameters of statements about chunks of the document."""
        return {"tenant_id": self.tenant_id, "document_id": self.document_id}


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk. `details` has what people wrote beside the text."""

    position: int
    text: str
    details: Mapping[str, Any] | None
    available: bool
    has_image: bool


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """How searches find a chunk: its words, its vector of length 1, and the tokens that the vector cost."""

    lexemes: Sequence[str]
    embedding: Sequence[float] | None
    tokens: int


def add(
    tx: Transaction,
    place: ChunkPlace,
    content: str,
    index: ChunkIndex,
    *,
    details: Mapping[str, Any],
    image: bytes | None = None,
) -> int:
    """Add a chunk; return its position. Raises NotFound if the document does not exist, and BeingParsed."""
    _lock_document(tx, place)
    number = tx.scalar(COUNT_ADDED, **place.key(), tokens=index.tokens)
    position = FIRST_WRITTEN + int(number) - 1
    tx.execute(
        INSERT,
        **place.key(),
        base_id=place.base_id,
        position=position,
        text=content,
        lexemes=list(index.lexemes),
        embedding=None if index.embedding is None else list(index.embedding),
        details=dict(details),
        image=image,
    )
    bases.increment_revision(tx, place.tenant_id, place.base_id)
    chunk_indexes.mark_due(tx, place.tenant_id, place.base_id)
    return position


def find(tx: Transaction, place: ChunkPlace, position: int) -> StoredChunk | None:
    """Return a chunk of the document, None if there is none at this position."""
    row = tx.one_or_none(GET, **place.key(), position=position)
    return StoredChunk(**row) if row else None


def load_image(tx: Transaction, place: ChunkPlace, position: int) -> bytes | None:
    """Return the picture of a chunk, None if it has none."""
    found = tx.scalar(IMAGE, **place.key(), base_id=place.base_id, position=position)
    return bytes(found) if found is not None else None


def update(
    tx: Transaction,
    place: ChunkPlace,
    former: StoredChunk,
    changed: StoredChunk,
    index: ChunkIndex | None,
    image: bytes | None = None,
) -> bool:
    """Replace a chunk by the changed one; return False if it is no longer the former one. Raises BeingParsed.

    `index` None: its words and vector stay. `image` None: its picture stays.
    """
    _lock_document(tx, place)
    key = {**place.key(), "position": former.position}
    hit = tx.execute(
        UPDATE,
        **key,
        text=changed.text,
        details=dict(changed.details) if changed.details is not None else None,
        available=changed.available,
        image=image,
        former_text=former.text,
        former_details=dict(former.details) if former.details is not None else None,
    )
    if hit and index is not None:
        embedding = None if index.embedding is None else list(index.embedding)
        tx.execute(REINDEX, **key, lexemes=list(index.lexemes), embedding=embedding)
    if hit:
        bases.increment_revision(tx, place.tenant_id, place.base_id)
    return bool(hit)


def switch(tx: Transaction, place: ChunkPlace, positions: Sequence[int], *, available: bool) -> int:
    """Have searches find some chunks, or not find them; return how many exist. Raises BeingParsed."""
    _lock_document(tx, place)
    hit = tx.execute(SWITCH, **place.key(), positions=list(positions), available=available)
    bases.increment_revision(tx, place.tenant_id, place.base_id)
    return hit


def delete(tx: Transaction, place: ChunkPlace, positions: Sequence[int] | None) -> int:
    """Delete some chunks of the document, None: all of them; return how many existed. Raises BeingParsed."""
    _lock_document(tx, place)
    rows = tx.rows(DELETE, **place.key(), positions=None if positions is None else list(positions))
    written = sum(row.position >= FIRST_WRITTEN for row in rows)
    if rows:
        tx.execute(COUNT_DELETED, **place.key(), deleted=len(rows), written=written)
        chunk_indexes.forget_if_empty(tx, place.tenant_id, place.base_id)
        bases.increment_revision(tx, place.tenant_id, place.base_id)
    return len(rows)


def _lock_document(tx: Transaction, place: ChunkPlace) -> None:
    status = tx.scalar(LOCK_DOCUMENT, **place.key(), base_id=place.base_id)
    if status is None:
        raise NotFound(f"you don't own the document {place.document_id.hex}")
    if status == "pending":
        raise BeingParsed(BEING_PARSED)
