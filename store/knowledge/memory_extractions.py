"""What was said to memories and is still to be looked through: what can be learnt from it.

Such a message (`extraction` pending) is its own message to the workers: whoever looks takes the oldest one, under a
lease, and stores what came of it in the one transaction that ends it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from store.db.transaction import Transaction
from store.knowledge.memories import Memory
from store.knowledge.memory_messages import MessageScope, NewMessage, add, lock

MOST_TRIES = 5  # of one extraction; whatever ends the process that makes it ends five of them at most


@dataclass(frozen=True, slots=True)
class LeasedExtraction:
    """Something said that is ours to look through, for as long as the lease lasts."""

    memory_id: UUID
    tenant_id: UUID
    number: int
    lease_id: UUID
    content: str
    whose: MessageScope
    valid_at: datetime
    tries: int


TAKE = text("""
    update memory_messages m
    set lease_id = :lease_id, lease_until = clock_timestamp() + :lease, tries = m.tries + 1
    from (
        select memory_id, number from memory_messages
        where extraction = 'pending' and (lease_until is null or lease_until < clock_timestamp())
            and (cast(:only_tenant as uuid) is null or tenant_id = :only_tenant)
        order by tries, created_at for update skip locked limit 1
    ) oldest
    where m.memory_id = oldest.memory_id and m.number = oldest.number
    returning m.memory_id, m.tenant_id, m.number, m.lease_id, m.content, m.user_id, m.agent_id, m.session_id,
        m.valid_at, m.tries
""")
WAITING = text("""
    select count(*) from memory_messages
    where extraction = 'pending' and (lease_until is null or lease_until < clock_timestamp())
""")
_IS_OURS = """tenant_id = :tenant_id and memory_id = :memory_id and number = :number and lease_id = :lease_id
    and extraction = 'pending'"""
END = text(f"""
    update memory_messages set extraction = :status, error = :error, lease_id = null, lease_until = null
    where {_IS_OURS}
""")  # noqa: S608
PUT_BACK = text(f"""
    update memory_messages set error = :error, lease_id = null, lease_until = clock_timestamp() + :pause,
        tries = tries - :unstruck where {_IS_OURS}
""")  # noqa: S608


def take(tx: Transaction, lease_id: UUID, lease: timedelta, tenant_id: UUID | None = None) -> LeasedExtraction | None:
    """The lease on what waits longest, of any tenant or of one; None if nothing waits."""
    row = tx.one_or_none(TAKE, lease_id=lease_id, lease=lease, only_tenant=tenant_id)
    if row is None:
        return None
    plain = {name: value for name, value in row.items() if name not in MessageScope.__dataclass_fields__}
    return LeasedExtraction(**plain, whose=MessageScope(row["user_id"], row["agent_id"], row["session_id"]))


def waiting(tx: Transaction) -> int:
    """How much nobody looks through, although somebody should."""
    return int(tx.scalar(WAITING))


def extracted(tx: Transaction, memory: Memory, taken: LeasedExtraction, found: Sequence[NewMessage]) -> bool:
    """Store what was extracted, and that this is done; False if the lease is gone. Raises like `say` of messages."""
    room = lock(tx, memory)
    if not _end(tx, taken, "done"):
        return False
    if found:
        add(tx, memory, room, found, taken.whose, source=taken.number)
    return True


def fail(tx: Transaction, taken: LeasedExtraction, error: str) -> None:
    """Nothing will be extracted, for this reason."""
    _end(tx, taken, "failed", error)


def put_back(tx: Transaction, taken: LeasedExtraction, error: str, pause: timedelta, *, struck: bool) -> None:
    """Let go of what was said, which waits again after a pause; `struck`: the try counts."""
    tx.run(PUT_BACK, **_key(taken), error=error, pause=pause, unstruck=0 if struck else 1)


def _end(tx: Transaction, taken: LeasedExtraction, status: str, error: str = "") -> bool:
    return tx.run(END, **_key(taken), status=status, error=error) > 0


def _key(taken: LeasedExtraction) -> dict[str, Any]:
    return {
        "tenant_id": taken.tenant_id,
        "memory_id": taken.memory_id,
        "number": taken.number,
        "lease_id": taken.lease_id,
    }
