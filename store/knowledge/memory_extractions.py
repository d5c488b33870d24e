"""Pending extractions: saved messages from which further ones are still to be extracted.

Such a message (`extraction` pending) is a task itself: a worker takes the oldest one under a lease, and stores the
result in the transaction that ends it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.ids import LeaseId, TenantId
from store.db.transaction import Transaction
from store.knowledge.memories import Memory
from store.knowledge.memory_messages import MessageScope, NewMessage, add, lock

MAX_TRIES = 5  # per message; a message that kills its process kills five at most


@dataclass(frozen=True, slots=True)
class LeasedExtraction:
    """A saved message that this process may extract from, as long as the lease lasts."""

    memory_id: UUID
    tenant_id: TenantId
    number: int
    lease_id: LeaseId
    content: str
    scope: MessageScope
    valid_at: datetime
    tries: int


CLAIM_NEXT = text("""
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
_HAS_LEASE = """tenant_id = :tenant_id and memory_id = :memory_id and number = :number and lease_id = :lease_id
    and extraction = 'pending'"""
END = text(f"""
    update memory_messages set extraction = :status, error = :error, lease_id = null, lease_until = null
    where {_HAS_LEASE}
""")  # noqa: S608
RELEASE = text(f"""
    update memory_messages set error = :error, lease_id = null, lease_until = clock_timestamp() + :pause,
        tries = tries - :unstruck where {_HAS_LEASE}
""")  # noqa: S608


def claim_next(
    tx: Transaction, lease_id: LeaseId, lease: timedelta, tenant_id: TenantId | None = None
) -> LeasedExtraction | None:
    """Lease the message that has waited longest, of any tenant or of one; return None if none waits."""
    row = tx.one_or_none(CLAIM_NEXT, lease_id=lease_id, lease=lease, only_tenant=tenant_id)
    if row is None:
        return None
    plain = {name: value for name, value in row.items() if name not in MessageScope.__dataclass_fields__}
    return LeasedExtraction(**plain, scope=MessageScope(row["user_id"], row["agent_id"], row["session_id"]))


def count_waiting(tx: Transaction) -> int:
    """Return how many pending messages have no valid lease."""
    return int(tx.scalar(WAITING))


def complete(tx: Transaction, memory: Memory, leased: LeasedExtraction, messages: Sequence[NewMessage]) -> bool:
    """Store the extracted messages and end the extraction; return False if the lease is lost.

    Raises the errors of `memory_messages.lock` and `memory_messages.add`.
    """
    room = lock(tx, memory)
    if not _end(tx, leased, "done"):
        return False
    if messages:
        add(tx, memory, room, messages, leased.scope, source=leased.number)
    return True


def fail(tx: Transaction, leased: LeasedExtraction, error: str) -> None:
    """End an extraction without a result, for this reason."""
    _end(tx, leased, "failed", error)


def release(tx: Transaction, leased: LeasedExtraction, error: str, pause: timedelta, *, counts: bool) -> None:
    """Release a message, which waits for `pause` before its next try; `counts`: this try counts."""
    tx.execute(RELEASE, **_key(leased), error=error, pause=pause, unstruck=0 if counts else 1)


def _end(tx: Transaction, leased: LeasedExtraction, status: str, error: str = "") -> bool:
    return tx.execute(END, **_key(leased), status=status, error=error) > 0


def _key(leased: LeasedExtraction) -> dict[str, Any]:
    return {
        "tenant_id": leased.tenant_id,
        "memory_id": leased.memory_id,
        "number": leased.number,
        "lease_id": leased.lease_id,
    }
