"""Memories: what a tenant's canvases remember of conversations beyond each of them."""

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
from store.tables.memory import memories

TYPES = {"raw": 1, "semantic": 2, "episodic": 4, "procedural": 8}
"""The types of messages, as bits of `Memory.types`."""

MAX_NAME_CHARS = 128

CHANGEABLE = (
    "name", "description", "types", "embedding_model", "chat_model", "temperature", "system_prompt", "user_prompt",
    "most_bytes", "policy", "permissions", "avatar",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory. `types` are bits of TYPES and always include raw; `bytes` of `most_bytes` are used."""

    id: UUID
    tenant_id: TenantId
    name: str
    description: str
    types: int
    embedding_model: str  # "": searched by words only
    chat_model: str  # "": the tenant's first one
    temperature: float
    system_prompt: str
    user_prompt: str
    most_bytes: int
    policy: str
    permissions: str
    avatar: str
    bytes: int
    last_number: int
    created_at: datetime
    updated_at: datetime

    @property
    def extracted_types(self) -> tuple[str, ...]:
        """Return the types of messages that a model extracts from saved ones."""
        return tuple(name for name, bit in TYPES.items() if bit & self.types and name != "raw")


_SHOWN = [memories.c[column] for column in Memory.__dataclass_fields__]
_this_memory = (memories.c.tenant_id == bindparam("of_tenant"), memories.c.id == bindparam("memory_id"))
INSERT = (
    insert(memories)
    .values({name: bindparam(name) for name in ("id", "tenant_id", *CHANGEABLE)})
    .on_conflict_do_nothing()
    .returning(*_SHOWN)
)
GET = select(*_SHOWN).where(*_this_memory)
LOCK_NAMES = sa.text("select pg_advisory_xact_lock(hashtextextended(cast(:tenant_id as text), 2))")
NAMES = select(memories.c.name).where(
    memories.c.tenant_id == bindparam("of_tenant"),
    memories.c.id.is_distinct_from(bindparam("but", type_=sa.Uuid)),
)
BY_ID_OR_NAME = select(*_SHOWN).where(
    memories.c.tenant_id == bindparam("of_tenant"),
    sa.or_(
        memories.c.id == sa.any_(bindparam("ids", type_=sa.ARRAY(sa.Uuid))),
        func.lower(memories.c.name) == sa.any_(bindparam("names", type_=sa.ARRAY(sa.Text))),
    ),
)
PAGE = (
    select(*_SHOWN, func.count().over().label("total"))
    .where(
        memories.c.tenant_id == bindparam("of_tenant"),
        memories.c.name.ilike(bindparam("like"), escape="\\"),
        sa.or_(bindparam("any_of") == 0, memories.c.types.bitwise_and(bindparam("any_of")) != 0),
    )
    .order_by(memories.c.created_at.desc(), memories.c.id.desc())
    .limit(bindparam("most"))
    .offset(bindparam("skipped"))
)
UPDATE = (
    sa.update(memories)
    .where(*_this_memory)
    .values({c: func.coalesce(bindparam(f"new_{c}", type_=memories.c[c].type), memories.c[c]) for c in CHANGEABLE})
    .values(updated_at=func.now())
    .returning(*_SHOWN)
)
DELETE = sa.delete(memories).where(*_this_memory)


def create(
    tx: Transaction,
    tenant_id: TenantId,
    name: str,
    *,
    types: int,
    embedding_model: str,
    chat_model: str,
    most_bytes: int,
    **fields: Any,
) -> Memory:
    """Add an empty memory; `fields`: further ones. Raises Conflict if the name is taken, in any letter case."""
    values: dict[str, Any] = {
        "description": "", "temperature": 0.5, "system_prompt": "", "user_prompt": "", "policy": "FIFO",
        "permissions": "me", "avatar": "",
    }  # fmt: skip
    values |= {key: value for key, value in fields.items() if value is not None}
    row = tx.one_or_none(
        INSERT,
        id=new_id(),
        tenant_id=tenant_id,
        name=name,
        types=types | TYPES["raw"],
        embedding_model=embedding_model,
        chat_model=chat_model,
        most_bytes=most_bytes,
        **values,
    )
    if row is None:
        raise _name_conflict(name)
    return Memory(**row)


def find_free_name(tx: Transaction, tenant_id: TenantId, name: str, own_id: UUID | None = None) -> str:
    """Return the name, or `name(1)` and so on if another memory than `own_id` has it, in any letter case.

    Nobody else names a memory of the tenant until the transaction ends.
    """
    tx.execute(LOCK_NAMES, tenant_id=str(tenant_id))
    rows = tx.rows(NAMES, of_tenant=tenant_id, but=own_id)
    used, number, candidate = {row.name.lower() for row in rows}, 0, name
    while candidate.lower() in used:
        number += 1
        ending = f"({number})"
        candidate = name[: MAX_NAME_CHARS - len(ending)] + ending
    return candidate


def get(tx: Transaction, tenant_id: TenantId, memory_id: UUID) -> Memory:
    """Return a memory. Raises NotFound, also for another tenant's memory."""
    row = tx.one_or_none(GET, of_tenant=tenant_id, memory_id=memory_id)
    if row is None:
        raise NotFound(f"Memory '{memory_id.hex}' not found.")
    return Memory(**row)


def find_by_id_or_name(tx: Transaction, tenant_id: TenantId, ids: list[UUID], names: list[str]) -> list[Memory]:
    """Return the tenant's memories with one of these ids or names, in no order."""
    rows = tx.rows(BY_ID_OR_NAME, of_tenant=tenant_id, ids=ids, names=[name.lower() for name in names])
    return [Memory(*row) for row in rows]


def page(
    tx: Transaction, tenant_id: TenantId, *, keywords: str = "", types: int = 0, most: int = 30, skipped: int = 0
) -> tuple[list[Memory], int]:
    """Return memories, newest first, and the number of all that match; one of the bits of `types` must be set."""
    quoted = keywords.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    rows, total = list_pages.page_with_total(
        tx, PAGE, of_tenant=tenant_id, like=f"%{quoted}%", any_of=types, most=most, skipped=skipped
    )
    return [Memory(*row[:-1]) for row in rows], total


def update(tx: Transaction, tenant_id: TenantId, memory_id: UUID, **changes: Any) -> Memory:
    """Change the given fields (of CHANGEABLE). Raises NotFound, and Conflict if the name is taken.

    Only an empty memory may get other types or another embedding model; the caller checks that.
    """
    values = {f"new_{name}": changes.get(name) for name in CHANGEABLE}
    try:
        with tx.savepoint():
            row = tx.one_or_none(UPDATE, of_tenant=tenant_id, memory_id=memory_id, **values)
    except IntegrityError as error:  # the unique name is the only constraint that these columns can violate
        raise _name_conflict(str(changes.get("name"))) from error
    if row is None:
        raise NotFound(f"Memory '{memory_id.hex}' not found.")
    return Memory(**row)


def delete(tx: Transaction, tenant_id: TenantId, memory_id: UUID) -> None:
    """Delete a memory with its messages. Raises NotFound."""
    if not tx.execute(DELETE, of_tenant=tenant_id, memory_id=memory_id):
        raise NotFound(f"Memory '{memory_id.hex}' not found.")


def _name_conflict(name: str) -> Conflict:
    return Conflict(f"Memory name '{name}' already exists.")
