"""The documents of knowledge bases: their content, and how far they have been processed into chunks.

A document is `uploaded`, then `pending` once it is to be searchable, and finally `done` or `failed`. A pending row is a
task itself: a worker takes the oldest one without a lease, under a lease. Stored chunks stay, so after a process has
died the next one continues where it stopped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam, func, select, text
from sqlalchemy.dialects.postgresql import insert

from canvas.errors import NotFound
from canvas.ids import LeaseId, TenantId
from store.db.transaction import Transaction
from store.knowledge import bases, chunk_indexes
from store.primitives.ids import new_id
from store.tables.knowledge import knowledge_documents as documents

MAX_TRIES = 5  # per generation; a document that kills its process kills five at most


@dataclass(frozen=True, slots=True)
class KnowledgeDocument:
    """A document. `size` is in bytes; `chunks` is how many are stored, of `expected` (0: not known yet)."""

    id: UUID
    base_id: UUID
    name: str
    mime_type: str
    size: int
    sha256: bytes
    metadata: Mapping[str, Any]
    status: str
    error: str
    generation: int
    chunks: int
    expected: int
    tokens: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class LeasedDocument:
    """A document that this process may work on, as long as it renews the lease."""

    id: UUID
    tenant_id: TenantId
    base_id: UUID
    lease_id: LeaseId
    name: str
    mime_type: str
    sha256: bytes
    generation: int
    chunks: int  # stored by earlier tries
    read_pages: int  # read by earlier tries, of an image or scan that a model reads page by page
    tries: int
    embedding_model: str
    language: str
    parser: Mapping[str, Any] = field(default_factory=dict[str, Any])


_SHOWN = [documents.c[column] for column in KnowledgeDocument.__dataclass_fields__]
_this_document = (
    documents.c.tenant_id == bindparam("of_tenant"),
    documents.c.base_id == bindparam("of_base"),
    documents.c.id == func.any(bindparam("ids")),
)
SAME_CONTENT = (
    select(*_SHOWN)
    .where(
        documents.c.tenant_id == bindparam("of_tenant"),
        documents.c.base_id == bindparam("of_base"),
        documents.c.sha256 == bindparam("hash"),
    )
    .order_by(documents.c.created_at)
    .limit(1)
)
NAMES = select(documents.c.name).where(
    documents.c.tenant_id == bindparam("of_tenant"), documents.c.base_id == bindparam("of_base")
)
INSERT = (
    insert(documents)
    .values({name: bindparam(name) for name in ("id", "tenant_id", "base_id", "name", "mime_type", "size", "sha256")})
    .values(metadata=bindparam("metadata"), status=bindparam("status"))
    .on_conflict_do_nothing()
    .returning(*_SHOWN)
)
LOCK_BASE = text("select pg_advisory_xact_lock(hashtextextended(cast(:base_id as text), 1))")
SOME = select(*_SHOWN).where(*_this_document)
ORDERS = {
    "create_time": documents.c.created_at,
    "update_time": documents.c.updated_at,
    "name": documents.c.name,
    "size": documents.c.size,
}
_moment = sa.DateTime(timezone=True)
PAGE = (
    select(*_SHOWN, func.count().over().label("total"))
    .where(
        documents.c.tenant_id == bindparam("of_tenant"),
        documents.c.base_id == bindparam("of_base"),
        sa.or_(bindparam("only_id", type_=sa.Uuid).is_(None), documents.c.id == bindparam("only_id", type_=sa.Uuid)),
        sa.or_(
            bindparam("only_name", type_=sa.Text).is_(None), documents.c.name == bindparam("only_name", type_=sa.Text)
        ),
        documents.c.name.ilike(bindparam("like"), escape="\\"),
        documents.c.created_at >= func.coalesce(bindparam("since", type_=_moment), documents.c.created_at),
        documents.c.created_at <= func.coalesce(bindparam("until", type_=_moment), documents.c.created_at),
    )
    .limit(bindparam("most"))
    .offset(bindparam("skipped"))
)  # fmt: skip
UPDATE = (
    sa.update(documents)
    .where(*_this_document)
    .values(
        name=func.coalesce(bindparam("new_name", type_=sa.Text), documents.c.name),
        metadata=func.coalesce(
            bindparam("new_metadata", type_=sa.JSON(none_as_null=True)).cast(documents.c.metadata.type),
            documents.c.metadata,
        ),
        updated_at=func.now(),
    )
)
BEGIN = (
    sa.update(documents)
    .where(*_this_document, documents.c.status != "pending")
    .values(
        status="pending", error="", generation=documents.c.generation + 1, chunks=0, expected=0, read_pages=0, tokens=0,
        tries=0, lease_id=None, lease_until=None, updated_at=func.now(),
    )
    .returning(documents.c.id)
)  # fmt: skip
STOP = (
    sa.update(documents)
    .where(*_this_document, documents.c.status == "pending")
    .values(status="uploaded", chunks=0, expected=0, read_pages=0, tokens=0, lease_id=None, updated_at=func.now())
    .returning(documents.c.id)
)
CONTENTS = sa.select(documents.c.sha256).where(*_this_document)
DELETE = sa.delete(documents).where(*_this_document)
CLEAR = text("delete from knowledge_chunks where tenant_id = :tenant_id and document_id = any(cast(:ids as uuid[]))")

CLAIM_NEXT = text("""
    update knowledge_documents d
    set lease_id = :lease_id, lease_until = clock_timestamp() + :lease, tries = d.tries + 1
    from (
        select id from knowledge_documents
        where status = 'pending' and (lease_until is null or lease_until < clock_timestamp())
            and (cast(:only_tenant as uuid) is null or tenant_id = :only_tenant)
        order by tries, updated_at for update skip locked limit 1
    ) oldest, knowledge_bases b
    where d.id = oldest.id and b.id = d.base_id
    returning d.id, d.tenant_id, d.base_id, d.lease_id, d.name, d.mime_type, d.sha256, d.generation, d.chunks,
        d.read_pages, d.tries, b.embedding_model, b.language, b.parser
""")
WAITING = text("""
    select count(*) from knowledge_documents
    where status = 'pending' and (lease_until is null or lease_until < clock_timestamp())
""")
_HAS_LEASE = "tenant_id = :tenant_id and id = :id and lease_id = :lease_id and status = 'pending'"
RENEW = text(f"update knowledge_documents set lease_until = clock_timestamp() + :lease where {_HAS_LEASE}")  # noqa: S608
ASSERT_LEASE = text(f"select id from knowledge_documents where {_HAS_LEASE} for update")  # noqa: S608
ADD_PROGRESS = text(f"""
    update knowledge_documents set chunks = chunks + :more, expected = :expected, tokens = tokens + :tokens,
        read_pages = :read_pages, updated_at = clock_timestamp() where {_HAS_LEASE}
""")  # noqa: S608
END = text(f"""
    update knowledge_documents set status = :status, error = :error, lease_id = null, lease_until = null,
        updated_at = clock_timestamp() where {_HAS_LEASE}
""")  # noqa: S608
RELEASE = text(f"""
    update knowledge_documents set error = :error, lease_id = null, lease_until = clock_timestamp() + :pause,
        tries = tries - :unstruck where {_HAS_LEASE}
""")  # noqa: S608


# -- for the API ------------------------------------------------------------------------------------------------------
def add(
    tx: Transaction,
    tenant_id: TenantId,
    base_id: UUID,
    name: str,
    mime_type: str,
    size: int,
    sha256: bytes,
    *,
    metadata: Mapping[str, Any] | None = None,
    status: str = "uploaded",
) -> KnowledgeDocument:
    """Add a document to the caller's base; return it, or the one that has the same content.

    A base has the same content once, under its first name. Other content under a name in use gets a number: `a(1).txt`.
    """
    tx.execute(LOCK_BASE, base_id=str(base_id))
    same = tx.rows(SAME_CONTENT, of_tenant=tenant_id, of_base=base_id, hash=sha256)
    if same:
        return KnowledgeDocument(*same[0])
    used_names = {row.name for row in tx.rows(NAMES, of_tenant=tenant_id, of_base=base_id)}
    (row,) = tx.rows(
        INSERT,
        id=new_id(),
        tenant_id=tenant_id,
        base_id=base_id,
        name=_free_name(name, used_names),
        mime_type=mime_type,
        size=size,
        sha256=sha256,
        metadata=dict(metadata or {}),
        status=status,
    )
    return KnowledgeDocument(*row)


def get_many(tx: Transaction, tenant_id: TenantId, base_id: UUID, ids: Sequence[UUID]) -> list[KnowledgeDocument]:
    """Return documents by id, in no order; missing ones are left out."""
    return [KnowledgeDocument(*row) for row in tx.rows(SOME, of_tenant=tenant_id, of_base=base_id, ids=list(ids))]


def page(
    tx: Transaction,
    tenant_id: TenantId,
    base_id: UUID,
    *,
    document_id: UUID | None = None,
    name: str | None = None,
    keywords: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    order_by: str = "create_time",
    descending: bool = True,
    most: int = 30,
    skipped: int = 0,
) -> tuple[list[KnowledgeDocument], int]:
    """Return documents, newest first, and the number of all that match.

    `keywords` must be in the name; `since` and `until` limit when a document was added; `order_by` is one of ORDERS.
    """
    by = (ORDERS[order_by], documents.c.id)
    quoted = keywords.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    rows = tx.rows(
        PAGE.order_by(*(column.desc() if descending else column for column in by)),
        of_tenant=tenant_id,
        of_base=base_id,
        only_id=document_id,
        only_name=name,
        like=f"%{quoted}%",
        since=since,
        until=until,
        most=most,
        skipped=skipped,
    )
    return [KnowledgeDocument(*row[:-1]) for row in rows], rows[0].total if rows else 0


def update(
    tx: Transaction,
    tenant_id: TenantId,
    base_id: UUID,
    document_id: UUID,
    *,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Change a document's name or metadata. Raises NotFound; an IntegrityError for a name in use."""
    hit = tx.execute(
        UPDATE,
        of_tenant=tenant_id,
        of_base=base_id,
        ids=[document_id],
        new_name=name,
        new_metadata=dict(metadata) if metadata is not None else None,
    )
    if not hit:
        raise NotFound("The dataset doesn't own the document.")


def start_processing(tx: Transaction, tenant_id: TenantId, base_id: UUID, ids: Sequence[UUID]) -> int:
    """Start processing documents from the beginning, except pending ones; return how many were started."""
    begun = [row.id for row in tx.rows(BEGIN, of_tenant=tenant_id, of_base=base_id, ids=list(ids))]
    _forget_chunks(tx, tenant_id, base_id, begun)
    return len(begun)


def stop_processing(tx: Transaction, tenant_id: TenantId, base_id: UUID, ids: Sequence[UUID]) -> int:
    """Stop the processing of pending documents and delete their chunks; return how many were stopped."""
    stopped = [row.id for row in tx.rows(STOP, of_tenant=tenant_id, of_base=base_id, ids=list(ids))]
    _forget_chunks(tx, tenant_id, base_id, stopped)
    return len(stopped)


def list_contents(tx: Transaction, tenant_id: TenantId, base_id: UUID, ids: Sequence[UUID]) -> list[bytes]:
    """Return the hashes of the documents' contents. No two documents of a base have the same content."""
    rows = tx.rows(CONTENTS, of_tenant=tenant_id, of_base=base_id, ids=list(ids)) if ids else ()
    return [bytes(row.sha256) for row in rows]


def delete(tx: Transaction, tenant_id: TenantId, base_id: UUID, ids: Sequence[UUID]) -> None:
    """Delete documents with their chunks. Delete their content first (`list_contents`), outside of the transaction."""
    if ids and tx.execute(DELETE, of_tenant=tenant_id, of_base=base_id, ids=list(ids)):
        bases.increment_revision(tx, tenant_id, base_id)


def _forget_chunks(tx: Transaction, tenant_id: TenantId, base_id: UUID, ids: list[UUID]) -> None:
    if ids:
        tx.execute(CLEAR, tenant_id=tenant_id, ids=ids)
        chunk_indexes.forget_if_empty(tx, tenant_id, base_id)
        bases.increment_revision(tx, tenant_id, base_id)


def _free_name(name: str, used_names: set[str]) -> str:
    stem, dot, end = name.rpartition(".") if "." in name[1:] else (name, "", "")
    number, candidate = 0, name
    while candidate in used_names:
        number += 1
        candidate = f"{stem}({number}){dot}{end}"
    return candidate


# -- for the process that reads documents ----------------------------------------------------------------------------
def claim_next(
    tx: Transaction, lease_id: LeaseId, lease: timedelta, tenant_id: TenantId | None = None
) -> LeasedDocument | None:
    """Lease the document that has waited longest, of any tenant or of one; return None if none waits."""
    row = tx.one_or_none(CLAIM_NEXT, lease_id=lease_id, lease=lease, only_tenant=tenant_id)
    return LeasedDocument(**row) if row else None


def count_waiting(tx: Transaction) -> int:
    """Return how many pending documents have no valid lease."""
    return int(tx.scalar(WAITING))


def renew(tx: Transaction, leased: LeasedDocument, lease: timedelta) -> None:
    """Renew a lease, unless it is lost."""
    tx.execute(RENEW, **_key(leased), lease=lease)


def assert_lease(tx: Transaction, leased: LeasedDocument) -> bool:
    """Lock a document's row; return False if its lease is lost."""
    return bool(tx.rows(ASSERT_LEASE, **_key(leased)))


def add_progress(
    tx: Transaction, leased: LeasedDocument, *, more: int, expected: int, tokens: int, read_pages: int = 0
) -> None:
    """Add stored chunks and the tokens of embedding them; set the expected chunks and the pages read by a model."""
    tx.execute(ADD_PROGRESS, **_key(leased), more=more, expected=expected, tokens=tokens, read_pages=read_pages)


def finish(tx: Transaction, leased: LeasedDocument, status: str, error: str = "") -> bool:
    """Set a document to `done`, or to `failed` with the reason; return False if the lease is lost."""
    if not tx.execute(END, **_key(leased), status=status, error=error):
        return False
    bases.increment_revision(tx, leased.tenant_id, leased.base_id)
    if status == "done":
        chunk_indexes.mark_due(tx, leased.tenant_id, leased.base_id)
    return True


def release(tx: Transaction, leased: LeasedDocument, error: str, pause: timedelta, *, counts: bool) -> None:
    """Release a document, which waits for `pause` before its next try; `counts`: this try counts."""
    tx.execute(RELEASE, **_key(leased), error=error, pause=pause, unstruck=0 if counts else 1)


def _key(leased: LeasedDocument) -> dict[str, UUID]:
    return {"tenant_id": leased.tenant_id, "id": leased.id, "lease_id": leased.lease_id}
