"""What the start and the end of a run write into its conversation.

`active_run` is the only run of a conversation that is running, waiting or stopping, or about to start. The others are
queued in the order in which they were accepted. A run that interrupts goes before them all, the newest first, because
it stops the runs that were accepted before it. The conversation's row is the last lock that any transaction takes
(docs/protocol.md, "Locks"): the end of a run locks it before it reads the queue, and a start locks it before it queues
its run, so neither overlooks the other.

A queued run may be of any week, so a query for one reads every partition. `has_queue` false says that there is none.
The end of a run clears it when it finds none, and a start that queues a run sets it, both under the conversation's
lock.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, insert, select, text

from canvas.ids import ActivationId, RunId, SessionId, TenantId
from store.db.transaction import Transaction
from store.runs.run_rows import RunRow
from store.tables.tenants import conversation_messages, conversations

ON_BUSY = "on_busy"  # an option of a queued run's request; its value may be `interrupt`

LOCK = (
    select(conversations)
    .where(conversations.c.id == bindparam("of_conversation"), conversations.c.tenant_id == bindparam("of_tenant"))
    .with_for_update(key_share=True)
)
SET_ACTIVE_RUN = text("""
    update conversations set active_run = :run_id, last_run = :run_id, updated_at = now()
    where id = :conversation_id and (active_run is null or active_run = :run_id)
""")
COUNT_MESSAGE = text("""
    update conversations set messages = messages + 1, updated_at = now() where id = :conversation_id
    returning messages, has_queue
""")
PUT_MESSAGE = insert(conversation_messages)
LOCK_QUEUE = text("select id, has_queue from conversations where id = :conversation_id for no key update")
SET_HAS_QUEUE = text("update conversations set has_queue = true where id = :conversation_id and not has_queue")
NEXT_QUEUED = text("""
    select id from runs where conversation_id = :conversation_id and status = 'queued'
    order by case when request -> 'options' ->> 'on_busy' = 'interrupt' then created_at end desc nulls last,
        created_at, id
    limit 1
""")
OPEN_RUNS = text("""
    select id from runs where conversation_id = :conversation_id
        and status in ('queued', 'running', 'waiting', 'stopping')
    order by created_at desc, id desc
""")
RELEASE = text("""
    update conversations set active_run = :next_run, has_queue = :has_queue, rounds = rounds + :completed,
        error = :error, updated_at = now()
    where id = :conversation_id and active_run = :run_id
""")


def lock(tx: Transaction, tenant_id: TenantId, conversation_id: SessionId) -> Mapping[str, Any] | None:
    """Lock a conversation's row until the transaction ends; return it, None if the tenant has no such conversation."""
    return tx.one_or_none(LOCK, of_conversation=conversation_id, of_tenant=tenant_id)


def mark_queued(tx: Transaction, conversation: Mapping[str, Any], conversation_id: SessionId) -> None:
    """Note that a run of a conversation is queued. The caller has locked the conversation and passes its row."""
    if not conversation["has_queue"]:
        tx.send(SET_HAS_QUEUE, conversation_id=conversation_id)


def find_next_queued(tx: Transaction, conversation_id: SessionId) -> RunId | None:
    """Return the run that comes next in a conversation that the caller has locked; None if none is queued."""
    return tx.scalar(NEXT_QUEUED, conversation_id=conversation_id)


def list_open_runs(tx: Transaction, conversation_id: SessionId) -> list[RunId]:
    """Return the open runs of a conversation, newest first: stopped in this order, none of them starts meanwhile."""
    return [run_id for (run_id,) in tx.rows(OPEN_RUNS, conversation_id=conversation_id)]


def set_active_run(tx: Transaction, conversation_id: SessionId, run_id: RunId) -> None:
    """Make a run the active one, unless there is another active run."""
    tx.send(SET_ACTIVE_RUN, conversation_id=conversation_id, run_id=run_id)


def append_user_message(
    tx: Transaction, conversation: Mapping[str, Any], conversation_id: SessionId, run_id: RunId, content: Any
) -> int:
    """Append the user's message to a conversation; return its number.

    The caller has locked the conversation and passes its row.
    """
    number = int(conversation["messages"]) + 1
    tx.send(COUNT_MESSAGE, conversation_id=conversation_id)
    tx.send(PUT_MESSAGE, conversation_id=conversation_id, number=number, run_id=run_id, role="user", content=content)
    return number


def import_history(tx: Transaction, conversation_id: SessionId, entries: Sequence[tuple[str, Any]]) -> None:
    """Give a new conversation messages that no run of it has produced: (role, content), oldest first.

    The content of an assistant is a text, or the outputs of the node that answered.
    """
    for number, (role, message) in enumerate(entries, start=1):
        tx.send(COUNT_MESSAGE, conversation_id=conversation_id)
        content = {"content": message} if role != "user" and isinstance(message, str) else message
        tx.send(PUT_MESSAGE, conversation_id=conversation_id, number=number, role=role, content=content)


def finish_run(tx: Transaction, row: RunRow, *, last: tuple[ActivationId, str] | None, error: str) -> RunId | None:
    """Add the answer of a finished run to its conversation, and activate the next queued run; return that run.

    `last`: the (activation, node) whose outputs are the answer of a run that succeeded. Returns None if no run is
    queued, and for a run that ended while it was queued.
    """
    conversation_id = row.conversation_id
    conversation = tx.one_or_none(LOCK_QUEUE if last is None else COUNT_MESSAGE, conversation_id=conversation_id)
    if last is not None and conversation is not None:  # conversation is None if the conversation was deleted meanwhile
        tx.execute(
            PUT_MESSAGE,
            conversation_id=conversation_id,
            number=conversation["messages"],
            run_id=row.id,
            role="assistant",
            activation_id=last[0],
            node_id=last[1],
        )
    next_run = find_next_queued(tx, conversation_id) if conversation is None or conversation["has_queue"] else None
    released = tx.execute(
        RELEASE,
        conversation_id=conversation_id,
        run_id=row.id,
        next_run=next_run,
        has_queue=next_run is not None,
        completed=1 if last is not None else 0,
        error=error,
    )
    return next_run if released or conversation is None else None
