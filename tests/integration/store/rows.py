"""Rows that other parts of the product write, as small as the tables allow."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import insert

from store.db.transaction import Transaction
from store.primitives.ids import created_at_of, new_id
from store.tables.runs import activations, node_values, runs
from store.tables.tenants import conversation_messages


def add_run(
    tx: Transaction,
    tenant_id: UUID,
    *,
    run_id: UUID | None = None,
    version_id: UUID | None = None,
    canvas_id: UUID | None = None,
    conversation_id: UUID | None = None,
    status: str = "succeeded",
    accepted_at: datetime | None = None,
    request: Mapping[str, Any] | None = None,
) -> UUID:
    """Insert a run, finished by default, accepted at the time in its id, else now; return its id."""
    inserted_id = run_id or new_id()
    by_id = created_at_of(inserted_id) if inserted_id.version != 4 else datetime.now(UTC)
    tx.execute(
        insert(runs).values(
            id=inserted_id,
            tenant_id=tenant_id,
            canvas_id=canvas_id or new_id(),
            version_id=version_id or new_id(),
            conversation_id=conversation_id or new_id(),
            message_id=new_id(),
            status=status,
            rules_version=1,
            state={},
            request=dict(request or {}),
            baseline={},
            usage={},
            created_at=accepted_at or by_id,
        )
    )
    return inserted_id


def add_activations(tx: Transaction, run_id: UUID, rows: Sequence[Mapping[str, Any]]) -> list[UUID]:
    """Insert activations in canonical order, one of each set of columns, done by default; return their ids."""
    defaults: dict[str, Any] = {
        "node_id": "LLM:0",
        "component": "LLM",
        "scope": "",
        "ordinal": 0,
        "region": b"",
        "level": 0,
        "trail": [],
        "status": "done",
        "attempt": 1,
        "activated_rev": 1,
        "applied_rev": 2,
        "outcome": {"is": "Finished"},
        "not_before": datetime(1970, 1, 1, tzinfo=UTC),
    }
    ids = [new_id() for _ in rows]
    ids.reverse()  # not in the order of their keys
    for number, (id_, row) in enumerate(zip(ids, rows, strict=True)):
        key = number.to_bytes(4, "big")
        tx.execute(insert(activations), **{**defaults, **row, "run_id": run_id, "id": id_, "order_key": key})
    return ids


def add_outputs(tx: Transaction, run_id: UUID, node_id: str, outputs: dict[str, Any]) -> UUID:
    """Insert the outputs of a node; return the id of the activation that wrote them."""
    activation_id = new_id()
    tx.execute(
        insert(node_values).values(
            run_id=run_id,
            activation_id=activation_id,
            node_id=node_id,
            container_entry="",
            item=0,
            order_key=b"",
            region=b"",
            outputs=outputs,
            names=list(outputs),
        )
    )
    return activation_id


def add_user_message(tx: Transaction, conversation_id: UUID, number: int, content: Any) -> None:
    """Insert a message of the user."""
    tx.execute(
        insert(conversation_messages).values(
            conversation_id=conversation_id, number=number, run_id=new_id(), role="user", content=content
        )
    )


def add_assistant_message(tx: Transaction, conversation_id: UUID, number: int, outputs: dict[str, Any]) -> None:
    """Insert a message of the assistant, whose content is the outputs of a node."""
    run_id = new_id()
    activation_id = add_outputs(tx, run_id, "Message:0", outputs)
    tx.execute(
        insert(conversation_messages).values(
            conversation_id=conversation_id,
            number=number,
            run_id=run_id,
            role="assistant",
            activation_id=activation_id,
            node_id="Message:0",
        )
    )
