"""Knowledge bases: document collections that a tenant's canvases can search without another server."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from canvas.errors import Conflict, NotFound
from canvas.ids import TenantId
from store.db.transaction import Transaction
from store.knowledge import list_pages
from store.primitives.ids import new_id
from store.tables.knowledge import knowledge_bases as bases
from store.tables.knowledge import knowledge_documents as documents

MAX_CREATE_TRIES = 100  # each waits for a transaction that has taken the same name


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """A knowledge base.

    `parser` has fields of RAGFlow's `parser_config`, `settings` those of its datasets that need no column
    (api/knowledge/dataset_settings.py).
    """

    id: UUID
    tenant_id: TenantId
    name: str
    description: str
    language: str
    embedding_model: str  # "": searched by words only
    parser: Mapping[str, Any]
    settings: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    documents: int
    chunks: int
    tokens: int


def _sum_over_documents(figure: Any) -> Any:
    return (
        select(func.coalesce(figure, 0))
        .where(documents.c.base_id == bases.c.id, documents.c.tenant_id == bases.c.tenant_id)
        .correlate(bases)
        .scalar_subquery()
    )


_BASE = select(
    *(
        bases.c[name]
        for name in (
            "id",
            "tenant_id",
            "name",
            "description",
            "language",
            "embedding_model",
            "parser",
            "settings",
            "created_at",
            "updated_at",
        )
    ),
    _sum_over_documents(func.count()).label("documents"),
    _sum_over_documents(sa.cast(func.sum(documents.c.chunks), sa.BigInteger)).label("chunks"),
    _sum_over_documents(sa.cast(func.sum(documents.c.tokens), sa.BigInteger)).label("tokens"),
).where(bases.c.tenant_id == bindparam("of_tenant"))
BASE = _BASE.where(bases.c.id == bindparam("base_id"))
ORDERS = {"create_time": bases.c.created_at, "update_time": bases.c.updated_at}
PAGE = (
    _BASE.where(
        sa.or_(
            bindparam("only_ids", type_=sa.ARRAY(sa.Uuid)).is_(None),
            bases.c.id == func.any(bindparam("only_ids", type_=sa.ARRAY(sa.Uuid))),
        ),
        sa.or_(
            bindparam("only_name", type_=sa.Text).is_(None),
            func.lower(bases.c.name) == func.lower(bindparam("only_name", type_=sa.Text)),
        ),
        bases.c.name.ilike(bindparam("like"), escape="\\"),
    )
    .add_columns(func.count().over().label("total"))
    .limit(bindparam("most"))
    .offset(bindparam("skipped"))
)
BY_ID_OR_NAME = sa.text("""
    select id, name, embedding_model, language from knowledge_bases
    where tenant_id = :tenant_id
        and (id = any(cast(:ids as uuid[])) or lower(name) = any(cast(:names as text[])))
""")
INSERT = (
    insert(bases)
    .values({name: bindparam(name) for name in ("id", "tenant_id", "name", "description", "language")})
    .values({name: bindparam(name) for name in ("embedding_model", "parser", "settings")})
    .on_conflict_do_nothing()
    .returning(bases.c.id)
)
_this_base = (bases.c.tenant_id == bindparam("of_tenant"), bases.c.id == bindparam("base_id"))
_texts = ("name", "description", "language", "embedding_model")
_objects = ("parser", "settings")
UPDATE = sa.update(bases).where(*_this_base).values(
    {c: func.coalesce(bindparam(f"new_{c}", type_=bases.c[c].type), bases.c[c]) for c in _texts}
    | {c: bases.c[c].op("||")(bindparam(f"new_{c}", type_=bases.c[c].type)) for c in _objects}
    | {"updated_at": func.now()}
)  # fmt: skip
SIMILAR_NAMES = select(func.lower(bases.c.name).label("name")).where(
    bases.c.tenant_id == bindparam("of_tenant"),
    func.starts_with(func.lower(bases.c.name), func.lower(bindparam("beginning", type_=sa.Text))),
)
TOUCH = sa.update(bases).where(*_this_base).values(revision=bases.c.revision + 1, updated_at=func.now())
DELETE = sa.delete(bases).where(*_this_base)


@dataclass(frozen=True, slots=True)
class SearchableBase:
    """The facts about a base that a search needs."""

    id: UUID
    name: str
    embedding_model: str
    language: str


def create(
    tx: Transaction,
    tenant_id: TenantId,
    name: str,
    *,
    embedding_model: str,
    parser: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    description: str = "",
    language: str = "English",
) -> UUID:
    """Add an empty base; return its id. Raises Conflict if the tenant has a base of that name, in any letter case."""
    created = tx.scalar(
        INSERT,
        id=new_id(),
        tenant_id=tenant_id,
        name=name,
        description=description,
        language=language,
        embedding_model=embedding_model,
        parser=dict(parser),
        settings=dict(settings or {}),
    )
    if created is None:
        raise _name_conflict(name)
    return created


def create_numbered(tx: Transaction, tenant_id: TenantId, name: str, **fields: Any) -> UUID:
    """Add an empty base as `create` does; if its name is taken, in any letter case, as `name(1)`, `name(2)`, ..."""
    for _ in range(MAX_CREATE_TRIES):
        with suppress(Conflict):  # another transaction has just taken the name
            return create(tx, tenant_id, _find_free_name(tx, tenant_id, name), **fields)
    raise _name_conflict(name)


def _find_free_name(tx: Transaction, tenant_id: TenantId, name: str) -> str:
    used = {row.name for row in tx.rows(SIMILAR_NAMES, of_tenant=tenant_id, beginning=name)}
    number, candidate = 0, name
    while candidate.lower() in used:
        number += 1
        candidate = f"{name}({number})"
    return candidate


def get(tx: Transaction, tenant_id: TenantId, base_id: UUID) -> KnowledgeBase:
    """Return a base. Raises NotFound, also for another tenant's base."""
    row = tx.one_or_none(BASE, of_tenant=tenant_id, base_id=base_id)
    if row is None:
        raise NotFound(f"You don't own the dataset {base_id.hex}.")
    return KnowledgeBase(**row)


def page(
    tx: Transaction,
    tenant_id: TenantId,
    *,
    ids: Sequence[UUID] | None = None,
    name: str | None = None,
    keywords: str = "",
    order_by: str = "create_time",
    descending: bool = True,
    most: int = 30,
    skipped: int = 0,
) -> tuple[list[KnowledgeBase], int]:
    """Return bases, newest first, and the number of all that match.

    `keywords` must be in the name; `order_by` is one of ORDERS.
    """
    by = (ORDERS[order_by], bases.c.id)
    quoted = keywords.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    rows, total = list_pages.page_with_total(
        tx,
        PAGE.order_by(*(column.desc() if descending else column for column in by)),
        of_tenant=tenant_id,
        only_ids=list(ids) if ids is not None else None,
        only_name=name,
        like=f"%{quoted}%",
        most=most,
        skipped=skipped,
    )
    return [KnowledgeBase(*row[:-1]) for row in rows], total


def find_by_id_or_name(
    tx: Transaction, tenant_id: TenantId, ids: Sequence[UUID], names: Sequence[str]
) -> list[SearchableBase]:
    """Return the tenant's bases with one of these ids or names, in no order."""
    rows = tx.rows(BY_ID_OR_NAME, tenant_id=tenant_id, ids=list(ids), names=[name.lower() for name in names])
    return [SearchableBase(*row) for row in rows]


def update(tx: Transaction, tenant_id: TenantId, base_id: UUID, **changes: Any) -> None:
    """Change the given fields: name, description, language, embedding_model; and the given keys of parser, settings.

    Only an empty base may get another embedding model; the caller checks that. Raises NotFound, and Conflict if the
    name is taken.
    """
    values = {f"new_{name}": changes.get(name) for name in _texts}
    values |= {f"new_{name}": dict(changes.get(name) or {}) for name in _objects}
    try:
        with tx.savepoint():
            hit = tx.execute(UPDATE, of_tenant=tenant_id, base_id=base_id, **values)
    except IntegrityError as error:  # the unique name is the only constraint that these columns can violate
        raise _name_conflict(str(changes.get("name"))) from error
    if not hit:
        raise NotFound(f"You don't own the dataset {base_id.hex}.")


def increment_revision(tx: Transaction, tenant_id: TenantId, base_id: UUID) -> None:
    """Increment a base's revision, because a search may find other chunks from now on."""
    tx.execute(TOUCH, of_tenant=tenant_id, base_id=base_id)


def delete(tx: Transaction, tenant_id: TenantId, base_id: UUID) -> None:
    """Delete a base with its documents. Delete the documents first: one statement may take ten seconds at most."""
    if not tx.execute(DELETE, of_tenant=tenant_id, base_id=base_id):
        raise NotFound(f"You don't own the dataset {base_id.hex}.")


def _name_conflict(name: str) -> Conflict:
    return Conflict(f"Dataset name '{name}' already exists.")
