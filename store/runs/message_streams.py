"""Spoken text by turn: a text that only grows within an epoch.

Whoever has a turn appends to its row, guarded by its lease; opening, closing and taking back are a fold's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import bindparam, select, text

from store.db.transaction import Transaction
from store.tables.runs import turns

TAKE = text("""
    insert into turns (run_id, id, node_id, speaker, epoch, keep, text)
    values (:run_id, :turn, :node_id, :lease_id, 0, 0, '')
    on conflict (run_id, id) do update set speaker = :lease_id
    returning epoch, text, keep
""")

WRITE = text("""
    update turns set text = :said
    where run_id = :run_id and id = :turn and speaker = :lease_id and epoch = :epoch and closed_at is null
""")

OPEN = text("""
    insert into turns (run_id, id, node_id, opened_at, epoch_at) values (:run_id, :turn, :node_id, :number, :number)
    on conflict (run_id, id) do update set opened_at = :number, epoch_at = :number, closed_at = null
""")

CLOSE = text("update turns set closed_at = :number where run_id = :run_id and id = :turn")

TAKE_BACK = text("""
    update turns set epoch = epoch + 1, text = left(text, keep), epoch_at = coalesce(:number, epoch_at)
    where run_id = :run_id and id = :turn
""")

PUT_TEXT = text("""
    insert into turns (run_id, id, node_id, text) values (:run_id, :turn, :node_id, :said)
    on conflict (run_id, id) do update set text = :said
""")

OF_RUN = (
    select(turns)
    .where(turns.c.run_id == bindparam("of_run"), turns.c.opened_at.is_not(None))
    .order_by(turns.c.opened_at)
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One Message's speech. Event numbers say between which events its text stands."""

    id: UUID
    node_id: str
    epoch: int
    keep: int
    text: str
    opened_at: int
    epoch_at: int
    closed_at: int | None


@dataclass(frozen=True, slots=True)
class StreamLease:
    """A turn that an attempt speaks in now: what was said before it."""

    epoch: int
    text: str
    keep: int


def claim_stream(tx: Transaction, run_id: UUID, turn: UUID, node_id: str, lease_id: UUID) -> StreamLease:
    """Become the speaker of a turn."""
    row = tx.rows(TAKE, run_id=run_id, turn=turn, node_id=node_id, lease_id=lease_id)[0]
    return StreamLease(row[0], row[1], row[2])


def write(tx: Transaction, run_id: UUID, turn: UUID, lease_id: UUID, epoch: int, said: str) -> bool:
    """Store the text so far; False if the turn has another speaker or epoch."""
    return tx.run(WRITE, run_id=run_id, turn=turn, lease_id=lease_id, epoch=epoch, said=said) == 1


def opened(tx: Transaction, run_id: UUID) -> Sequence[Turn]:
    """The turns of a run that readers may show, in the order in which they opened."""
    return [
        Turn(r.id, r.node_id, r.epoch, r.keep, r.text, r.opened_at, r.epoch_at or r.opened_at, r.closed_at)
        for r in tx.rows(OF_RUN, of_run=run_id)
    ]
