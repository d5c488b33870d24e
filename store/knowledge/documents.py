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
from store.knowledge import bases, chunk_indexes, list_pages
from store.primitives.ids import new_id
from store.tables.knowledge import knowledge_documents as documents

MAX_TRIES = 5  # per generation; a document that kills its process kills five at most


@dataclass(frozen=True, slots=True)
class KnowledgeDocument:
    """A document. `size` is in bytes; `chunks` is how many are stored, of `expected` (0: not known yet).

    `parser` are its own settings, None: those of its base. `run` is its status for RAGFlow's clients (RUNS).
    """

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
    parser: Mapping[str, Any] | None
    settings: Mapping[str, Any]
    enabled: bool
    started_at: datetime | None
    ended_at: datetime | None
    run: str


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


RUNS = ("UNSTART", "RUNNING", "CANCEL", "DONE", "FAIL")
"""What RAGFlow calls the states of a document. A document whose reading was stopped is CANCEL."""

RUN = sa.case(
    (documents.c.status == "pending", "RUNNING"),
    (documents.c.status == "done", "DONE"),
    (documents.c.status == "failed", "FAIL"),
    (documents.c.ended_at.is_not(None), "CANCEL"),
    else_="UNSTART",
)
SUFFIX = func.lower(func.coalesce(func.substring(documents.c.name, r"\.([^.]*)$"), ""))
_SHOWN = [
    RUN.label("run") if column == "run" else documents.c[column] for column in KnowledgeDocument.__dataclass_fields__
]
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
    .values(
        metadata=bindparam("metadata"),
        status=bindparam("status"),
        started_at=sa.case((bindparam("status", type_=sa.Text) == "pending", func.now()), else_=None),
    )
    .on_conflict_do_nothing()
    .returning(*_SHOWN)
)
LOCK_BASE = text("select pg_advisory_xact_lock(hashtextextended(cast(:base_id as text), 1))")
SOME = select(*_SHOWN).where(*_this_document)
OF_TENANT = select(*_SHOWN).where(
    documents.c.tenant_id == bindparam("of_tenant"), documents.c.id == func.any(bindparam("ids"))
)
ORDERS = {
    "create_time": documents.c.created_at,
    "update_time": documents.c.updated_at,
    "name": documents.c.name,
    "size": documents.c.size,
}
_moment = sa.DateTime(timezone=True)


def _any_of(column: Any, parameter: str, of_type: Any) -> Any:
    """Return the condition that a column has one of the values of a parameter; null: any value."""
    values = bindparam(parameter, type_=sa.ARRAY(of_type))
    return sa.or_(values.is_(None), column.op("=")(sa.any_(values)))


_matches = (
    documents.c.tenant_id == bindparam("of_tenant"),
    documents.c.base_id == bindparam("of_base"),
    _any_of(documents.c.id, "only_ids", sa.Uuid),
    _any_of(documents.c.name, "only_names", sa.Text),
    _any_of(RUN, "only_runs", sa.Text),
    _any_of(SUFFIX, "only_suffixes", sa.Text),
    documents.c.name.ilike(bindparam("like"), escape="\\"),
    documents.c.created_at >= func.coalesce(bindparam("since", type_=_moment), documents.c.created_at),
    documents.c.created_at <= func.coalesce(bindparam("until", type_=_moment), documents.c.created_at),
)
PAGE = (
    select(*_SHOWN, func.count().over().label("total"))
    .where(*_matches)
    .limit(bindparam("most"))
    .offset(bindparam("skipped"))
)
FACTS = select(documents.c.id, RUN.label("run"), SUFFIX.label("suffix"), documents.c.metadata).where(*_matches)
UPDATE = (
    sa.update(documents)
    .where(*_this_document)
    .values(
        name=func.coalesce(bindparam("new_name", type_=sa.Text), documents.c.name),
        metadata=func.coalesce(
            bindparam("new_metadata", type_=sa.JSON(none_as_null=True)).cast(documents.c.metadata.type),
            documents.c.metadata,
        ),
        parser=func.coalesce(
            bindparam("new_parser", type_=sa.JSON(none_as_null=True)).cast(documents.c.parser.type), documents.c.parser
        ),
        settings=documents.c.settings.op("||")(bindparam("new_settings", type_=documents.c.settings.type)),
        enabled=func.coalesce(bindparam("new_enabled", type_=sa.Boolean), documents.c.enabled),
        updated_at=func.now(),
    )
)
BEGIN = (
    sa.update(documents)
    .where(*_this_document, documents.c.status != "pending")
    .values(
        status="pending", error="", generation=documents.c.generation + 1, chunks=0, expected=0, read_pages=0, tokens=0,
        tries=0, lease_id=None, lease_until=None, updated_at=func.now(), started_at=func.now(), ended_at=None,
        written_chunks=0,
    )
    .returning(documents.c.id)
)  # fmt: skip
STOP = (
    sa.update(documents)
    .where(*_this_document, documents.c.status == "pending")
    .values(
        status="uploaded", chunks=0, expected=0, read_pages=0, tokens=0, lease_id=None, updated_at=func.now(),
        ended_at=func.now(), written_chunks=0,
    )
    .returning(documents.c.id)
)  # fmt: skip
UNSHARED_CONTENTS = text("""
    select distinct d.sha256 from knowledge_documents d
    where d.tenant_id = :tenant_id and d.base_id = :base_id and d.id = any(cast(:ids as uuid[]))
        and not exists (
            select from knowledge_documents other
            where other.tenant_id = :tenant_id and other.base_id = :base_id and other.sha256 = d.sha256
                and not other.id = any(cast(:ids as uuid[]))
        )
""")
REPLACE_METADATA = (
    sa.update(documents)
    .where(*_this_document)
    .values(metadata=bindparam("new_metadata", type_=documents.c.metadata.type), updated_at=func.now())
)
METADATA = select(documents.c.id, documents.c.metadata).where(
    documents.c.tenant_id == bindparam("of_tenant"),
    documents.c.base_id == bindparam("of_base"),
    _any_of(documents.c.id, "only_ids", sa.Uuid),
)
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
        d.read_pages, d.tries, b.embedding_model, b.language, coalesce(d.parser, b.parser) as parser
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
        ended_at = clock_timestamp(), updated_at = clock_timestamp() where {_HAS_LEASE}
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
    """Add a document to the caller's base. A name in use gets a number: `a(1).txt`.

    Documents with the same bytes have them in common in the file storage, and nothing else.
    """
    tx.execute(LOCK_BASE, base_id=str(base_id))
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


def find_same_content(tx: Transaction, tenant_id: TenantId, base_id: UUID, sha256: bytes) -> KnowledgeDocument | None:
    """Return the oldest document of a base with this content. No other transaction adds one before this one ends."""
    tx.execute(LOCK_BASE, base_id=str(base_id))
    same = tx.rows(SAME_CONTENT, of_tenant=tenant_id, of_base=base_id, hash=sha256)
    return KnowledgeDocument(*same[0]) if same else None


def get_of_tenant(tx: Transaction, tenant_id: TenantId, ids: Sequence[UUID]) -> list[KnowledgeDocument]:
    """Return documents of any bases of a tenant by id, in no order; missing ones are left out."""
    return [KnowledgeDocument(*row) for row in tx.rows(OF_TENANT, of_tenant=tenant_id, ids=list(ids))]


def get_many(tx: Transaction, tenant_id: TenantId, base_id: UUID, ids: Sequence[UUID]) -> list[KnowledgeDocument]:
    """Return documents by id, in no order; missing ones are left out."""
    return [KnowledgeDocument(*row) for row in tx.rows(SOME, of_tenant=tenant_id, of_base=base_id, ids=list(ids))]


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Which documents of a base are listed. None, or an empty text, filters nothing.

    `keywords` must be in the name; `since` and `until` limit when a document was added; `runs` are of RUNS; `suffixes`
    are extensions in lower case, without the dot.
    """

    ids: Sequence[UUID] | None = None
    name: str | None = None
    keywords: str = ""
    runs: Sequence[str] | None = None
    suffixes: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of statements that list documents."""
        quoted = self.keywords.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
        return {
            "only_ids": None if self.ids is None else list(self.ids),
            "only_names": None if self.name is None else [self.name],
            "only_runs": None if self.runs is None else list(self.runs),
            "only_suffixes": None if self.suffixes is None else list(self.suffixes),
            "like": f"%{quoted}%",
            "since": self.since,
            "until": self.until,
        }


EVERY_DOCUMENT = DocumentFilter()


def page(
    tx: Transaction,
    tenant_id: TenantId,
    base_id: UUID,
    only: DocumentFilter = EVERY_DOCUMENT,
    *,
    order_by: str = "create_time",
    descending: bool = True,
    most: int = 30,
    skipped: int = 0,
) -> tuple[list[KnowledgeDocument], int]:
    """Return documents, newest first, and the number of all that match; `order_by` is one of ORDERS."""
    by = (ORDERS[order_by], documents.c.id)
    rows, total = list_pages.page_with_total(
        tx,
        PAGE.order_by(*(column.desc() if descending else column for column in by)),
        of_tenant=tenant_id,
        of_base=base_id,
        most=most,
        skipped=skipped,
        **only.parameters(),
    )
    return [KnowledgeDocument(*row[:-1]) for row in rows], total


def list_facts(tx: Transaction, tenant_id: TenantId, base_id: UUID, only: DocumentFilter) -> Sequence[Any]:
    """Return (id, run, suffix, metadata) of all documents that match."""
    return tx.rows(FACTS, of_tenant=tenant_id, of_base=base_id, **only.parameters())


def load_metadata(
    tx: Transaction, tenant_id: TenantId, base_id: UUID, ids: Sequence[UUID] | None = None, *, lock: bool = False
) -> dict[UUID, dict[str, Any]]:
    """Return the metadata of the documents of a base, also of those that are not read; None: of all.

    `lock`: nobody else changes them until this transaction ends.
    """
    only_ids = None if ids is None else list(ids)
    rows = tx.rows(
        METADATA.with_for_update() if lock else METADATA, of_tenant=tenant_id, of_base=base_id, only_ids=only_ids
    )
    return {row.id: dict(row.metadata) for row in rows}


def replace_metadata(
    tx: Transaction, tenant_id: TenantId, base_id: UUID, metadata: Mapping[UUID, Mapping[str, Any]]
) -> None:
    """Replace the metadata of documents, by their ids."""
    tx.write_many(
        REPLACE_METADATA,
        [
            {"of_tenant": tenant_id, "of_base": base_id, "ids": [document_id], "new_metadata": dict(values)}
            for document_id, values in metadata.items()
        ],
    )


def update(
    tx: Transaction,
    tenant_id: TenantId,
    base_id: UUID,
    document_id: UUID,
    *,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    parser: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    enabled: bool | None = None,
) -> None:
    """Change what is given of a document; of `settings` the given keys. Raises NotFound.

    Raises IntegrityError for a name in use.
    """
    hit = tx.execute(
        UPDATE,
        of_tenant=tenant_id,
        of_base=base_id,
        ids=[document_id],
        new_name=name,
        new_metadata=dict(metadata) if metadata is not None else None,
        new_parser=dict(parser) if parser is not None else None,
        new_settings=dict(settings or {}),
        new_enabled=enabled,
    )
    if not hit:
        raise NotFound("The dataset doesn't own the document.")
    if enabled is not None:
        bases.increment_revision(tx, tenant_id, base_id)


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


def list_unshared_contents(tx: Transaction, tenant_id: TenantId, base_id: UUID, ids: Sequence[UUID]) -> list[bytes]:
    """Return the hashes of contents that only these documents of the base have."""
    rows = tx.rows(UNSHARED_CONTENTS, tenant_id=tenant_id, base_id=base_id, ids=list(ids)) if ids else ()
    return [bytes(row.sha256) for row in rows]


def delete(tx: Transaction, tenant_id: TenantId, base_id: UUID, ids: Sequence[UUID]) -> None:
    """Delete documents with their chunks.

    Delete their content first (`list_unshared_contents`), outside of the transaction.
    """
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
