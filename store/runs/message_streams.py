"""Message streams: the text of one Message node each, which only grows within an epoch.

The attempt that has claimed a stream writes its text to the stream's row, guarded by its lease. Opening, closing and
truncating a stream is done by advances only (docs/protocol.md, "Message streams").
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, select, text

from canvas.ids import ActivationId, LeaseId, RunId
from store.db.transaction import Transaction
from store.tables.runs import turns

CLAIM = text("""
    insert into turns (run_id, id, node_id, writer, epoch, retained_length, text)
    values (:run_id, :stream_id, :node_id, :lease_id, 0, 0, '')
    on conflict (run_id, id) do update set writer = :lease_id
    returning epoch, text, retained_length
""")

WRITE = text("""
    update turns set text = :content
    where run_id = :run_id and id = :stream_id and writer = :lease_id and epoch = :epoch and closed_at is null
""")

OPEN = text("""
    insert into turns (run_id, id, node_id, opened_at, epoch_at)
    values (:run_id, :stream_id, :node_id, :number, :number)
    on conflict (run_id, id) do update set opened_at = :number, epoch_at = :number, closed_at = null
""")

CLOSE = text("update turns set closed_at = :number where run_id = :run_id and id = :stream_id")

TRUNCATE = text("""
    update turns set epoch = epoch + 1, text = left(text, retained_length), epoch_at = coalesce(:number, epoch_at)
    where run_id = :run_id and id = :stream_id
""")

PUT_TEXT = text("""
    insert into turns (run_id, id, node_id, text) values (:run_id, :stream_id, :node_id, :content)
    on conflict (run_id, id) do update set text = :content
""")

OF_RUN = (
    select(turns)
    .where(turns.c.run_id == bindparam("of_run"), turns.c.opened_at.is_not(None))
    .order_by(turns.c.opened_at)
)


@dataclass(frozen=True, slots=True)
class StreamRow:
    """The stored text of one Message node.

    `opened_at`, `epoch_at` and `closed_at` are event numbers; readers show the text between those events.
    """

    id: ActivationId
    node_id: str
    epoch: int
    retained_length: int
    text: str
    opened_at: int
    epoch_at: int
    closed_at: int | None


@dataclass(frozen=True, slots=True)
class StreamLease:
    """A stream that an attempt has claimed: its epoch, and the text that earlier attempts left.

    `retained_length` is the length of the part that finished attempts wrote.
    """

    epoch: int
    text: str
    retained_length: int


def claim_stream(
    tx: Transaction, run_id: RunId, stream_id: ActivationId, node_id: str, lease_id: LeaseId
) -> StreamLease:
    """Claim a stream for the attempt with this lease; no other attempt can write to it afterwards."""
    row = tx.rows(CLAIM, run_id=run_id, stream_id=stream_id, node_id=node_id, lease_id=lease_id)[0]
    return StreamLease(row[0], row[1], row[2])


def write(tx: Transaction, run_id: RunId, stream_id: ActivationId, lease_id: LeaseId, epoch: int, content: str) -> bool:
    """Store the text so far; return False if another attempt has claimed the stream, or its epoch has changed."""
    return tx.execute(WRITE, run_id=run_id, stream_id=stream_id, lease_id=lease_id, epoch=epoch, content=content) == 1


def list_opened(tx: Transaction, run_id: RunId) -> Sequence[StreamRow]:
    """Return the streams of a run that readers may show, in the order in which they were opened."""
    return [
        StreamRow(
            r.id, r.node_id, r.epoch, r.retained_length, r.text, r.opened_at, r.epoch_at or r.opened_at, r.closed_at
        )
        for r in tx.rows(OF_RUN, of_run=run_id)
    ]
