"""What a node has done so far, for its next attempt: model rounds and tool calls by the component's own keys.

Only the attempt that holds the lease may write, and what is written stays. Beside it the trace of tool calls, which
people read (engine 5.7).
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, insert, or_, select, text

from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.primitives.json_codec import encode
from store.runs.activations import Claim
from store.tables.runs import journal, runs, tool_calls
from store.tables.tenants import conversations

RECORD = text("""
    with mine as (
        select run_id, id from activations
        where run_id = :run_id and id = :activation_id and lease_id = :lease_id and status = 'running'
        for no key update
    ), put as (
        insert into journal (run_id, activation_id, key, value)
        select run_id, id, :key, cast(:value as json) from mine on conflict do nothing returning 1
    )
    select (select count(*) from mine) as held, (select count(*) from put) as written
""")
"""The lock keeps the lease from being taken away before the record is committed, so that no two attempts record."""
RECALL = select(journal.c.value).where(
    journal.c.run_id == bindparam("of_run"),
    journal.c.activation_id == bindparam("of_activation"),
    journal.c.key == bindparam("key"),
)
ADD_CALL = insert(tool_calls)
CALLS = (
    select(tool_calls.c.node_id, tool_calls.c.body)
    .where(tool_calls.c.message_id == bindparam("of_message"), tool_calls.c.run_id == bindparam("of_run"))
    .order_by(tool_calls.c.id)
)
CALLS_OF_TENANT = (
    select(tool_calls.c.node_id, tool_calls.c.body)
    .join(runs, runs.c.id == tool_calls.c.run_id)
    .where(
        tool_calls.c.message_id == bindparam("of_message"),
        runs.c.tenant_id == bindparam("of_tenant"),
        or_(*(column == bindparam("of") for column in (runs.c.canvas_id, runs.c.conversation_id, runs.c.id))),
    )
    .order_by(tool_calls.c.id)
)


CALLS_OF_LINK = CALLS_OF_TENANT.join(conversations, conversations.c.id == runs.c.conversation_id).where(
    conversations.c.token_id == bindparam("of_token")
)


def record(tx: Transaction, claim: Claim, key: str, value: Any) -> bool | None:
    """Write a value down for good, unless the key has one already, which stays. Whether it was written now.

    None, and nothing is written, if the lease is gone.
    """
    (found,) = tx.rows(
        RECORD,
        run_id=claim.run_id,
        activation_id=claim.id,
        lease_id=claim.lease_id,
        key=key,
        value=encode(value),
    )
    return found.written == 1 if found.held else None


def recall(tx: Transaction, claim: Claim, key: str) -> Any:
    """What was recorded under a key of this activation; None if nothing."""
    return tx.scalar(RECALL, of_run=claim.run_id, of_activation=claim.id, key=key)


def trace(tx: Transaction, run_id: UUID, message_id: UUID, node_id: str, call: Mapping[str, Any]) -> None:
    """Note a tool call of a node."""
    tx.run(ADD_CALL, run_id=run_id, id=new_id(), message_id=message_id, node_id=node_id, body=dict(call))


def traces(tx: Transaction, run_id: UUID, message_id: UUID) -> list[dict[str, Any]]:
    """The tool calls of a turn in order: [{component_id, trace: [call]}], consecutive calls of one node together."""
    return _together(tx.rows(CALLS, of_run=run_id, of_message=message_id))


def traces_of(
    tx: Transaction, tenant_id: UUID, of: UUID, message_id: UUID, *, token_id: UUID | None = None
) -> list[dict[str, Any]]:
    """The same for a reader who knows no run: `of` is the id of the agent, of the conversation or of the run.

    With `token_id` of conversations alone that were begun by this share link.
    """
    given = {"of_tenant": tenant_id, "of": of, "of_message": message_id}
    if token_id is None:
        return _together(tx.rows(CALLS_OF_TENANT, **given))
    return _together(tx.rows(CALLS_OF_LINK, **given, of_token=token_id))


def _together(calls: Iterable[Any]) -> list[dict[str, Any]]:
    """Calls as people read them, consecutive ones of one node together."""
    told: list[dict[str, Any]] = []
    for node_id, body in calls:
        if not told or told[-1]["component_id"] != node_id:
            told.append({"component_id": node_id, "trace": []})
        told[-1]["trace"].append(body)
    return told
