"""The messages of memories: saved ones, and those that were extracted from them.

A transaction that adds messages locks the memory's row, which has the last number and the used bytes.
store/knowledge/memory_extractions.py schedules the extraction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam, func, select, text

from canvas.errors import NotFound, ToolError
from canvas.ids import TenantId
from store.db.transaction import Transaction
from store.knowledge import list_pages, similarity
from store.knowledge.memories import TYPES, Memory
from store.knowledge.similarity import ScoredRow, Terms
from store.tables.memory import memory_messages as messages

BYTES_PER_NUMBER = 4  # of a vector, as it counts towards the memory's limit
FULL = "Failed to insert message into memory. Memory size reached limit and cannot decide which to delete."


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be stored: its words as they are searched for, its vector of length 1; `valid_at` None: now."""

    type: int
    content: str
    lexemes: Sequence[str]
    embedding: Sequence[float] | None = None
    valid_at: datetime | None = None
    invalid_at: datetime | None = None

    @property
    def size(self) -> int:
        """Return the bytes that count towards the memory's limit."""
        return len(self.content.encode()) + BYTES_PER_NUMBER * len(self.embedding or ())


@dataclass(frozen=True, slots=True)
class MessageScope:
    """The user, agent and session of a message; "" for unknown."""

    user_id: str = ""
    agent_id: str = ""
    session_id: str = ""


ANY_SCOPE = MessageScope()


@dataclass(frozen=True, slots=True)
class MemoryMessage:
    """A stored message. `source` is the number of the message it was extracted from, 0 for a saved one."""

    memory_id: UUID
    number: int
    type: int
    source: int
    user_id: str
    agent_id: str
    session_id: str
    content: str
    valid_at: datetime
    invalid_at: datetime | None
    forget_at: datetime | None
    is_enabled: bool
    extraction: str  # none | pending | done | failed
    error: str


@dataclass(frozen=True, slots=True)
class SizeBudget:
    """How many bytes a memory uses, its limit, and what happens when the limit is reached."""

    bytes: int
    most_bytes: int
    policy: str


_SHOWN = [messages.c[column] for column in MemoryMessage.__dataclass_fields__]
_of_memories = (
    messages.c.tenant_id == bindparam("of_tenant"),
    messages.c.memory_id == func.any(bindparam("of_memories", type_=sa.ARRAY(sa.Uuid))),
)
_this_message = (
    messages.c.tenant_id == bindparam("of_tenant"),
    messages.c.memory_id == bindparam("of_memory"),
    messages.c.number == bindparam("of_number"),
)
_is_searchable = (messages.c.is_enabled, messages.c.forget_at.is_(None))
_is_of_scope = tuple(
    sa.or_(bindparam(f"only_{name}", type_=sa.Text) == "", messages.c[name] == bindparam(f"only_{name}", type_=sa.Text))
    for name in ("user_id", "agent_id", "session_id")
)

LOCK = text("select bytes, most_bytes, policy from memories where tenant_id = :tenant_id and id = :id for update")
SAVED = text("select number from memory_messages where tenant_id = :tenant_id and memory_id = :id and key = :key")
MAKE_ROOM = text("""
    with gone as (
        delete from memory_messages m using (
            select number, sum(size) over (order by forget_at is null, valid_at, number) - size as before
            from memory_messages where tenant_id = :tenant_id and memory_id = :id
        ) oldest
        where m.tenant_id = :tenant_id and m.memory_id = :id and m.number = oldest.number and oldest.before < :needed
        returning m.size
    )
    select coalesce(sum(size), 0) from gone
""")
NUMBERS = text("""
    update memories set last_number = last_number + :count, bytes = bytes + :more, updated_at = clock_timestamp()
    where tenant_id = :tenant_id and id = :id returning last_number
""")
INSERT = text("""
    insert into memory_messages (memory_id, number, tenant_id, type, source, key, user_id, agent_id, session_id,
        content, lexemes, embedding, size, valid_at, invalid_at, extraction)
    values (:id, :number, :tenant_id, :type, :source, :key, :user_id, :agent_id, :session_id,
        :content, array_to_tsvector(cast(:lexemes as text[])), cast(:embedding as real[]), :size,
        coalesce(:valid_at, clock_timestamp()), :invalid_at, :extraction)
""")
SCORED = """
    select {columns} from memory_messages r
    where r.tenant_id = :tenant_id and r.memory_id = any(cast(:memory_ids as uuid[])) and r.lexemes is not null
        and r.is_enabled and r.forget_at is null
        and (:user_id = '' or r.user_id = :user_id) and (:agent_id = '' or r.agent_id = :agent_id)
        and (:session_id = '' or r.session_id = :session_id)
"""
IS_PLAIN = text("""
    select atttypid = 'real[]'::regtype from pg_attribute
    where attrelid = 'memory_messages'::regclass and attname = 'embedding' and not attisdropped
""")
SOME = select(*_SHOWN).where(*_of_memories, messages.c.number == func.any(bindparam("numbers")))
RECENT = (
    select(*_SHOWN)
    .where(*_of_memories, *_is_searchable, *_is_of_scope)
    .order_by(messages.c.valid_at.desc(), messages.c.number.desc())
    .limit(bindparam("most"))
)
_only_agents = bindparam("only_agents", type_=sa.ARRAY(sa.Text))
PAGE = (
    select(*_SHOWN, func.count().over().label("total"))
    .where(
        *_of_memories,
        sa.or_(func.cardinality(_only_agents) == 0, messages.c.agent_id == func.any(_only_agents)),
        messages.c.source == 0,
        messages.c.session_id.ilike(bindparam("like"), escape="\\"),
    )
    .order_by(messages.c.valid_at.desc(), messages.c.number.desc())
    .limit(bindparam("most"))
    .offset(bindparam("skipped"))
)
EXTRACTED = (
    select(*_SHOWN)
    .where(*_of_memories, messages.c.source == func.any(bindparam("sources")))
    .order_by(messages.c.source, messages.c.number)
)
EMBEDDING = text("""
    select cast(embedding as real[]) from memory_messages
    where tenant_id = :tenant_id and memory_id = :memory_id and number = :number
""")
ONE = select(*_SHOWN).where(*_this_message)
MARK_FORGOTTEN = (
    sa.update(messages).where(*_this_message).values(forget_at=func.coalesce(messages.c.forget_at, func.now()))
)
ENABLE = sa.update(messages).where(*_this_message).values(is_enabled=bindparam("enabled"))


# -- adding ----------------------------------------------------------------------------------------------------------
def is_saved(tx: Transaction, tenant_id: TenantId, memory_id: UUID, key: str) -> bool:
    """Return whether a message was saved under this key."""
    return bool(tx.rows(SAVED, tenant_id=tenant_id, id=memory_id, key=key))


def save_message(
    tx: Transaction,
    memory: Memory,
    message: NewMessage,
    whose: MessageScope,
    key: str | None = None,
    *,
    extract: bool = False,
) -> int | None:
    """Save a message; return its number, None if one was saved under this key before.

    Raises ToolError if the memory is full, and NotFound if it does not exist any more.
    """
    room = lock(tx, memory)
    if key is not None and is_saved(tx, memory.tenant_id, memory.id, key):
        return None
    extraction = "pending" if extract else "none"
    return add(tx, memory, room, [message], whose, key=key, extraction=extraction)


def lock(tx: Transaction, memory: Memory) -> SizeBudget:
    """Lock a memory's row until the commit, so that only this transaction adds messages. Raises NotFound."""
    row = tx.one_or_none(LOCK, tenant_id=memory.tenant_id, id=memory.id)
    if row is None:
        raise NotFound(f"Memory '{memory.id.hex}' not found.")
    return SizeBudget(**row)


def add(
    tx: Transaction,
    memory: Memory,
    room: SizeBudget,
    added: Sequence[NewMessage],
    whose: MessageScope,
    *,
    source: int = 0,
    key: str | None = None,
    extraction: str = "none",
) -> int:
    """Add messages to a memory whose row is locked; return the last one's number. Raises ToolError if it is full."""
    more = sum(each.size for each in added)
    freed = _make_room(tx, memory, room, more)
    last = int(tx.scalar(NUMBERS, tenant_id=memory.tenant_id, id=memory.id, count=len(added), more=more - freed))
    tx.write_many(
        INSERT,
        [
            {
                "id": memory.id,
                "number": last - len(added) + at,
                "tenant_id": memory.tenant_id,
                "type": each.type,
                "source": source,
                "key": key,
                "user_id": whose.user_id,
                "agent_id": whose.agent_id,
                "session_id": whose.session_id,
                "content": each.content,
                "lexemes": list(each.lexemes),
                "embedding": None if each.embedding is None else list(each.embedding),
                "size": each.size,
                "valid_at": each.valid_at,
                "invalid_at": each.invalid_at,
                "extraction": extraction,
            }
            for at, each in enumerate(added, 1)
        ],
    )
    return last


def _make_room(tx: Transaction, memory: Memory, room: SizeBudget, more: int) -> int:
    """Delete forgotten messages, then the oldest ones, until there is room; return the bytes freed."""
    needed = room.bytes + more - room.most_bytes
    if needed <= 0:
        return 0
    if room.policy != "FIFO" or more > room.most_bytes:
        raise ToolError(FULL)
    return int(tx.scalar(MAKE_ROOM, tenant_id=memory.tenant_id, id=memory.id, needed=needed))


# -- reading ---------------------------------------------------------------------------------------------------------
def search(
    tx: Transaction,
    tenant_id: TenantId,
    memory_ids: Sequence[UUID],
    whose: MessageScope,
    terms: Terms,
    *,
    by_vector: float,
    threshold: float,
    most: int,
) -> list[ScoredRow]:
    """Return the keys (memory id, number) of the most similar messages, of equal ones the newest first.

    Every message is scored. Raises ToolError for a vector of another length than the stored ones.
    """
    cosine = similarity.cosine(terms, is_plain=bool(tx.scalar(IS_PLAIN)))
    columns = similarity.columns("r.memory_id, r.number, r.valid_at", cosine, len(terms.words), "w")
    sql = similarity.rank(
        [SCORED.format(columns=columns)], ("memory_id", "number", "valid_at"), "valid_at desc, number desc", terms
    )
    values: dict[str, Any] = {
        "tenant_id": tenant_id,
        "memory_ids": list(memory_ids),
        "user_id": whose.user_id,
        "agent_id": whose.agent_id,
        "session_id": whose.session_id,
        "by_vector": by_vector,
        "threshold": threshold,
        "most": most,
        "known_rows": 0,
        **similarity.word_parameters(terms.words, "w"),
    }
    if terms.vector is not None:
        values["vector"] = list(terms.vector)
    with similarity.dimension_errors(terms):
        rows = tx.rows(text(sql), **values)
    return [ScoredRow((row.memory_id, row.number), row.similarity, row.cosine, row.by_words) for row in rows]


def get_many(
    tx: Transaction, tenant_id: TenantId, places: Sequence[tuple[UUID, int]]
) -> dict[tuple[UUID, int], MemoryMessage]:
    """Return messages by memory and number; missing ones are left out."""
    ids, numbers = [memory_id for memory_id, _ in places], [number for _, number in places]
    rows = tx.rows(SOME, of_tenant=tenant_id, of_memories=list(set(ids)), numbers=numbers)
    return {(row.memory_id, row.number): MemoryMessage(*row) for row in rows}


def list_recent(
    tx: Transaction, tenant_id: TenantId, memory_ids: Sequence[UUID], whose: MessageScope, most: int
) -> list[MemoryMessage]:
    """Return the latest messages, newest first."""
    return [MemoryMessage(*row) for row in tx.rows(RECENT, **_scope_values(tenant_id, memory_ids, whose), most=most)]


def page(
    tx: Transaction,
    tenant_id: TenantId,
    memory_id: UUID,
    *,
    agent_ids: Sequence[str] = (),
    keywords: str = "",
    most: int = 50,
    skipped: int = 0,
) -> tuple[list[MemoryMessage], int]:
    """Return saved messages, newest first, and the number of all that match; of some agents or of all.

    `keywords` must be in the session id.
    """
    quoted = keywords.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    rows, total = list_pages.page_with_total(
        tx,
        PAGE,
        of_tenant=tenant_id,
        of_memories=[memory_id],
        only_agents=list(agent_ids),
        like=f"%{quoted}%",
        most=most,
        skipped=skipped,
    )
    return [MemoryMessage(*row[:-1]) for row in rows], total


def list_extracted(
    tx: Transaction, tenant_id: TenantId, memory_id: UUID, sources: Sequence[int]
) -> list[MemoryMessage]:
    """Return the messages that were extracted from messages with these numbers, in order."""
    rows = tx.rows(EXTRACTED, of_tenant=tenant_id, of_memories=[memory_id], sources=list(sources))
    return [MemoryMessage(*row) for row in rows]


def get(tx: Transaction, tenant_id: TenantId, memory_id: UUID, number: int) -> MemoryMessage:
    """Return a message. Raises NotFound."""
    row = tx.one_or_none(ONE, of_tenant=tenant_id, of_memory=memory_id, of_number=number)
    if row is None:
        raise _not_found(memory_id, number)
    return MemoryMessage(**row)


def load_embedding(tx: Transaction, tenant_id: TenantId, memory_id: UUID, number: int) -> list[float]:
    """Return the vector of a message, [] if its memory has no embedding model."""
    found = tx.scalar(EMBEDDING, tenant_id=tenant_id, memory_id=memory_id, number=number)
    return [float(each) for each in found or ()]


def _scope_values(tenant_id: TenantId, memory_ids: Sequence[UUID], whose: MessageScope) -> dict[str, Any]:
    return {
        "of_tenant": tenant_id,
        "of_memories": list(memory_ids),
        "only_user_id": whose.user_id,
        "only_agent_id": whose.agent_id,
        "only_session_id": whose.session_id,
    }


# -- changing --------------------------------------------------------------------------------------------------------
def forget(tx: Transaction, tenant_id: TenantId, memory_id: UUID, number: int) -> None:
    """Exclude a message from searches; when room is needed, forgotten messages are deleted first. Raises NotFound."""
    if not tx.execute(MARK_FORGOTTEN, of_tenant=tenant_id, of_memory=memory_id, of_number=number):
        raise _not_found(memory_id, number)


def enable(tx: Transaction, tenant_id: TenantId, memory_id: UUID, number: int, *, enabled: bool) -> None:
    """Include a message in searches, or exclude it. Raises NotFound."""
    if not tx.execute(ENABLE, of_tenant=tenant_id, of_memory=memory_id, of_number=number, enabled=enabled):
        raise _not_found(memory_id, number)


def _not_found(memory_id: UUID, number: int) -> NotFound:
    return NotFound(f"Message '{number}' in memory '{memory_id.hex}' not found.")


def type_name(bit: int) -> str:
    """Return the name of a type of messages."""
    return next(name for name, each in TYPES.items() if each == bit)
