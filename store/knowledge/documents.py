"""The documents of knowledge bases: what was uploaded, and how far its chunks have come.

A document is `uploaded`, then `pending` once somebody wants it searched, and in the end `done` or `failed`. A pending
row is its own message: whoever looks takes the oldest one that nobody works on, under a lease. What was stored of it
stays, so whoever comes after a process that died goes on from there.
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
from store.db.transaction import Transaction
from store.knowledge import bases
from store.primitives.ids import new_id
from store.tables.knowledge import knowledge_documents as documents

MOST_TRIES = 5  # of one generation; whatever ends the process that reads it ends five of them at most


@dataclass(frozen=True, slots=True)
class Document:
    """A document. `size` is in bytes, `chunks` how many are stored, `expected` how many there will be (0: unknown)."""

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
    """A document that is ours to read, for as long as the lease is renewed."""

    id: UUID
    tenant_id: UUID
    base_id: UUID
    lease_id: UUID
    name: str
    mime_type: str
    sha256: bytes
    generation: int
    chunks: int  # stored by whoever had it before
    read_pages: int  # likewise, of a picture or scan that a model reads page by page
    tries: int
    embedding_model: str
    language: str
    parser: Mapping[str, Any] = field(default_factory=dict[str, Any])


_SHOWN = [documents.c[column] for column in Document.__dataclass_fields__]
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
ONE_AT_A_TIME = text("select pg_advisory_xact_lock(hashtextextended(cast(:base_id as text), 1))")
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

TAKE = text("""
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
_IS_OURS = "tenant_id = :tenant_id and id = :id and lease_id = :lease_id and status = 'pending'"
RENEW = text(f"update knowledge_documents set lease_until = clock_timestamp() + :lease where {_IS_OURS}")  # noqa: S608
HOLD = text(f"select id from knowledge_documents where {_IS_OURS} for update")  # noqa: S608
GROWN = text(f"""
    update knowledge_documents set chunks = chunks + :more, expected = :expected, tokens = tokens + :tokens,
        read_pages = :read_pages, updated_at = clock_timestamp() where {_IS_OURS}
""")  # noqa: S608
END = text(f"""
    update knowledge_documents set status = :status, error = :error, lease_id = null, lease_until = null,
        updated_at = clock_timestamp() where {_IS_OURS}
""")  # noqa: S608
PUT_BACK = text(f"""
    update knowledge_documents set error = :error, lease_id = null, lease_until = clock_timestamp() + :pause,
        tries = tries - :unstruck where {_IS_OURS}
""")  # noqa: S608


# -- what people do with documents -----------------------------------------------------------------------------------
def add(
    tx: Transaction,
    tenant_id: UUID,
    base_id: UUID,
    name: str,
    mime_type: str,
    size: int,
    sha256: bytes,
    *,
    metadata: Mapping[str, Any] | None = None,
    status: str = "uploaded",
) -> tuple[Document, bool]:
    """A document, and whether it is new: the same content is in a base once, under its first name.

    Other content of a name that is taken gets a number: `a(1).txt`. The base is the caller's.
    """
    tx.run(ONE_AT_A_TIME, base_id=str(base_id))
    known = tx.rows(SAME_CONTENT, of_tenant=tenant_id, of_base=base_id, hash=sha256)
    if known:
        return Document(*known[0]), False
    taken = {row.name for row in tx.rows(NAMES, of_tenant=tenant_id, of_base=base_id)}
    (row,) = tx.rows(
        INSERT,
        id=new_id(),
        tenant_id=tenant_id,
        base_id=base_id,
        name=_free_name(name, taken),
        mime_type=mime_type,
        size=size,
        sha256=sha256,
        metadata=dict(metadata or {}),
        status=status,
    )
    return Document(*row), True


def get_many(tx: Transaction, tenant_id: UUID, base_id: UUID, ids: Sequence[UUID]) -> list[Document]:
    """Documents by id, in no order; those that are not there are left out."""
    return [Document(*row) for row in tx.rows(SOME, of_tenant=tenant_id, of_base=base_id, ids=list(ids))]


def page(
    tx: Transaction,
    tenant_id: UUID,
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
) -> tuple[list[Document], int]:
    """Documents, the newest first, and how many there are.

    `keywords` is in the name; `since` and `until` are about when a document was added; `order_by` is one of ORDERS.
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
    return [Document(*row[:-1]) for row in rows], rows[0].total if rows else 0


def update(
    tx: Transaction,
    tenant_id: UUID,
    base_id: UUID,
    document_id: UUID,
    *,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Change a document's name or metadata. Raises NotFound; an IntegrityError for a name that is taken."""
    hit = tx.run(
        UPDATE,
        of_tenant=tenant_id,
        of_base=base_id,
        ids=[document_id],
        new_name=name,
        new_metadata=dict(metadata) if metadata is not None else None,
    )
    if not hit:
        raise NotFound("The dataset doesn't own the document.")


def begin(tx: Transaction, tenant_id: UUID, base_id: UUID, ids: Sequence[UUID]) -> int:
    """Have documents read, again from the beginning if they were before; those on their way are left alone."""
    begun = [row.id for row in tx.rows(BEGIN, of_tenant=tenant_id, of_base=base_id, ids=list(ids))]
    _forget_chunks(tx, tenant_id, base_id, begun)
    return len(begun)


def stop(tx: Transaction, tenant_id: UUID, base_id: UUID, ids: Sequence[UUID]) -> int:
    """Have documents not be read any more; what was stored of them goes."""
    stopped = [row.id for row in tx.rows(STOP, of_tenant=tenant_id, of_base=base_id, ids=list(ids))]
    _forget_chunks(tx, tenant_id, base_id, stopped)
    return len(stopped)


def contents(tx: Transaction, tenant_id: UUID, base_id: UUID, ids: Sequence[UUID]) -> list[bytes]:
    """The hashes of the bytes of documents. No two documents of a base have the same."""
    rows = tx.rows(CONTENTS, of_tenant=tenant_id, of_base=base_id, ids=list(ids)) if ids else ()
    return [bytes(row.sha256) for row in rows]


def delete(tx: Transaction, tenant_id: UUID, base_id: UUID, ids: Sequence[UUID]) -> None:
    """Delete documents with their chunks. Their bytes go before (`contents`), outside of the transaction."""
    if ids and tx.run(DELETE, of_tenant=tenant_id, of_base=base_id, ids=list(ids)):
        bases.touch(tx, tenant_id, base_id)


def _forget_chunks(tx: Transaction, tenant_id: UUID, base_id: UUID, ids: list[UUID]) -> None:
    if ids:
        tx.run(CLEAR, tenant_id=tenant_id, ids=ids)
        bases.touch(tx, tenant_id, base_id)


def _free_name(name: str, taken: set[str]) -> str:
    stem, dot, end = name.rpartition(".") if "." in name[1:] else (name, "", "")
    number, found = 0, name
    while found in taken:
        number += 1
        found = f"{stem}({number}){dot}{end}"
    return found


# -- what whoever reads them does ------------------------------------------------------------------------------------
def claim_next(
    tx: Transaction, lease_id: UUID, lease: timedelta, tenant_id: UUID | None = None
) -> LeasedDocument | None:
    """The lease on the document that waits longest, of any tenant or of one; None if none waits."""
    row = tx.one_or_none(TAKE, lease_id=lease_id, lease=lease, only_tenant=tenant_id)
    return LeasedDocument(**row) if row else None


def waiting(tx: Transaction) -> int:
    """How many documents nobody works on, although they are to be read."""
    return int(tx.scalar(WAITING))


def renew(tx: Transaction, taken: LeasedDocument, lease: timedelta) -> bool:
    """Keep a lease; False if it is gone."""
    return tx.run(RENEW, **_key(taken), lease=lease) > 0


def assert_lease(tx: Transaction, taken: LeasedDocument) -> bool:
    """Lock a document's row if its lease is still ours."""
    return bool(tx.rows(HOLD, **_key(taken)))


def add_progress(
    tx: Transaction, taken: LeasedDocument, *, more: int, expected: int, tokens: int, read_pages: int = 0
) -> None:
    """Note chunks that were stored, of how many, what embedding them cost, and how many pages a model has read."""
    tx.run(GROWN, **_key(taken), more=more, expected=expected, tokens=tokens, read_pages=read_pages)


def end(tx: Transaction, taken: LeasedDocument, status: str, error: str = "") -> bool:
    """The document is `done`, or `failed` for a reason; False if the lease is gone."""
    if not tx.run(END, **_key(taken), status=status, error=error):
        return False
    bases.touch(tx, taken.tenant_id, taken.base_id)
    return True


def release(tx: Transaction, taken: LeasedDocument, error: str, pause: timedelta, *, struck: bool) -> None:
    """Let go of a document, which waits again after a pause; `struck`: the try counts."""
    tx.run(PUT_BACK, **_key(taken), error=error, pause=pause, unstruck=0 if struck else 1)


def _key(taken: LeasedDocument) -> dict[str, UUID]:
    return {"tenant_id": taken.tenant_id, "id": taken.id, "lease_id": taken.lease_id}
