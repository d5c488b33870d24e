"""What the start and the end of a run write into its conversation.

`active_run` is the one run of a conversation that is running, waiting or stopping, or about to begin. Others of it are
queued, in the order in which they were accepted; one that interrupts goes before them all, the newest first, for they
stop what was accepted before. The conversation's row is the last lock anybody takes (protocol.md, "Locks"); who ends a
run takes it before the queue is read, and who queues one before the row is written, so neither overlooks the other.

Queued runs may be of any week, so to look for one is to look through every partition. `has_queue` false says that there
is none: set by who ends a run and finds none, and unset by who queues one, both under the conversation's lock.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, insert, select, text

from store.db.transaction import Transaction
from store.runs.run_rows import RunRow
from store.tables.tenants import conversation_messages, conversations

ON_BUSY = "on_busy"  # among the options of a queued run's request: `interrupt`

LOCK = (
    select(conversations)
    .where(conversations.c.id == bindparam("of_conversation"), conversations.c.tenant_id == bindparam("of_tenant"))
    .with_for_update(key_share=True)
)
OCCUPY = text("""
    update conversations set active_run = :run_id, last_run = :run_id, updated_at = now()
    where id = :conversation_id and (active_run is null or active_run = :run_id)
""")
COUNT_MESSAGE = text("""
    update conversations set messages = messages + 1, updated_at = now() where id = :conversation_id
    returning messages, has_queue
""")
PUT_MESSAGE = insert(conversation_messages)
HOLD = text("select id, has_queue from conversations where id = :conversation_id for no key update")
QUEUE = text("update conversations set has_queue = true where id = :conversation_id and not has_queue")
NEXT_QUEUED = text("""
    select id from runs where conversation_id = :conversation_id and status = 'queued'
    order by case when request -> 'options' ->> 'on_busy' = 'interrupt' then created_at end desc nulls last,
        created_at, id
    limit 1
""")
NOT_OVER = text("""
    select id from runs where conversation_id = :conversation_id
        and status in ('queued', 'running', 'waiting', 'stopping')
    order by created_at desc, id desc
""")
RELEASE = text("""
    update conversations set active_run = :next_run, has_queue = :has_queue, rounds = rounds + :completed,
        error = :error, updated_at = now()
    where id = :conversation_id and active_run = :run_id
""")


def lock(tx: Transaction, tenant_id: UUID, conversation_id: UUID) -> Mapping[str, Any] | None:
    """A conversation's row, taken until the transaction ends; None if the tenant has no such conversation."""
    return tx.one_or_none(LOCK, of_conversation=conversation_id, of_tenant=tenant_id)


def queue(tx: Transaction, conversation: Mapping[str, Any], conversation_id: UUID) -> None:
    """Note that a run of a conversation is queued, whose row the caller holds and has."""
    if not conversation["has_queue"]:
        tx.later(QUEUE, conversation_id=conversation_id)


def next_queued(tx: Transaction, conversation_id: UUID) -> UUID | None:
    """The run that comes next in a conversation that the caller holds."""
    return tx.scalar(NEXT_QUEUED, conversation_id=conversation_id)


def open_runs(tx: Transaction, conversation_id: UUID) -> list[UUID]:
    """The runs of a conversation that are not over, the newest first: stopped in this order, none begins meanwhile."""
    return [run_id for (run_id,) in tx.rows(NOT_OVER, conversation_id=conversation_id)]


def set_active_run(tx: Transaction, conversation_id: UUID, run_id: UUID) -> None:
    """Make a run the active one, unless another is."""
    tx.later(OCCUPY, conversation_id=conversation_id, run_id=run_id)


def append_user_message(
    tx: Transaction, conversation: Mapping[str, Any], conversation_id: UUID, run_id: UUID, content: Any
) -> int:
    """Append the user's message to a conversation that the caller holds, and whose row he has; its number."""
    number = int(conversation["messages"]) + 1
    tx.later(COUNT_MESSAGE, conversation_id=conversation_id)
    tx.later(PUT_MESSAGE, conversation_id=conversation_id, number=number, run_id=run_id, role="user", content=content)
    return number


def import_history(tx: Transaction, conversation_id: UUID, entries: Sequence[tuple[str, str]]) -> None:
    """Give a new conversation a past that no run of ours has made: (role, text), oldest first."""
    for number, (role, said) in enumerate(entries, start=1):
        tx.later(COUNT_MESSAGE, conversation_id=conversation_id)
        content = said if role == "user" else {"content": said}
        tx.later(PUT_MESSAGE, conversation_id=conversation_id, number=number, role=role, content=content)


def finish_run(tx: Transaction, row: RunRow, *, last: tuple[UUID, str] | None, error: str) -> UUID | None:
    """A run is over: its answer joins the conversation, which goes to the next queued run, if there is one.

    `last` is the (activation, node) whose outputs are the answer of a run that succeeded. The run that was handed the
    conversation comes back; None also for one that ended in the queue.
    """
    conversation_id = row.conversation_id
    held = tx.one_or_none(HOLD if last is None else COUNT_MESSAGE, conversation_id=conversation_id)
    if last is not None and held is not None:  # else the conversation was deleted meanwhile
        tx.run(
            PUT_MESSAGE,
            conversation_id=conversation_id,
            number=held["messages"],
            run_id=row.id,
            role="assistant",
            activation_id=last[0],
            node_id=last[1],
        )
    next_run = next_queued(tx, conversation_id) if held is None or held["has_queue"] else None
    released = tx.run(
        RELEASE,
        conversation_id=conversation_id,
        run_id=row.id,
        next_run=next_run,
        has_queue=next_run is not None,
        completed=1 if last is not None else 0,
        error=error,
    )
    return next_run if released or held is None else None
