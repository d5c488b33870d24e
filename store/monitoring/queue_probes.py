"""Queue probes, which prove that a queue moves (docs/protocol.md, "Sweeper"), and the latest observations of sweepers.

Both are rows of the table `canaries`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from store.db.transaction import Transaction

RECORD_RETURN = text("""
    insert into canaries (queue, sent_at)
    select :queue, cast(:sent_at as timestamptz) where cast(:sent_at as timestamptz) <= now()
    on conflict (queue) do update
      set sent_at = greatest(case when canaries.sent_at <= now() then canaries.sent_at end, excluded.sent_at)
""")
"""A time in the future proves nothing, because the clock was ahead then; such a row is overwritten."""
LATEST = text("select sent_at from canaries where queue = :queue")

OBSERVATION = text("select queue, sent_at from canaries where queue in ('sweeper:since', 'sweeper:seen')")
SAVE_OBSERVATION = text("""
    with seen as (
        insert into canaries (queue, sent_at) values ('sweeper:since', :since), ('sweeper:seen', :now)
        on conflict (queue) do update set sent_at = excluded.sent_at
    )
    select sent_at from canaries where queue = :queue and sent_at <= :now
""")

MAINTENANCE_CLAIM = timedelta(minutes=10)  # after that, the sweeper that made the claim is taken to be dead
CLAIM_MAINTENANCE = text("""
    insert into canaries (queue, sent_at) values ('sweeper:house', now())
    on conflict (queue) do update set sent_at = excluded.sent_at
    where canaries.sent_at < now() - :claimed_for or canaries.sent_at > now() + :claimed_for
    returning sent_at
""")  # a claim from far ahead was made before the clock was set back; one slightly ahead began after this transaction
RELEASE_MAINTENANCE = text("delete from canaries where queue = 'sweeper:house' and sent_at = :claimed_at")


@dataclass(frozen=True, slots=True)
class SweeperObservation:
    """Since when sweepers have observed the database without interruption, and until when, by the database's clock."""

    since: datetime
    until: datetime


def record_return(tx: Transaction, queue: str, sent_at: datetime) -> None:
    """Record that a probe sent at this time went through the queue. A time in the future is ignored."""
    tx.execute(RECORD_RETURN, queue=queue, sent_at=sent_at)


def latest_return(tx: Transaction, queue: str) -> datetime | None:
    """Return when the latest probe that returned was sent; None if none has returned."""
    return tx.scalar(LATEST, queue=queue)


def last_observation(tx: Transaction) -> SweeperObservation | None:
    """Return what earlier sweepers have observed; None if there was none."""
    rows: Mapping[str, datetime] = {row[0]: row[1] for row in tx.rows(OBSERVATION)}
    if len(rows) < 2:
        return None
    return SweeperObservation(rows["sweeper:since"], rows["sweeper:seen"])


def save_observation(tx: Transaction, observation: SweeperObservation, queue: str) -> datetime | None:
    """Store an observation for the next sweeper, and return what `latest_return` returns, in one round trip."""
    return tx.scalar(SAVE_OBSERVATION, since=observation.since, now=observation.until, queue=queue)


def claim_maintenance(tx: Transaction) -> datetime | None:
    """Claim the maintenance, which only one sweeper at a time does beside its ticks; return the claim's time.

    Returns None if another sweeper has claimed it. This is a row, not an advisory lock, because maintenance takes many
    transactions, and a pooler does not keep a lock between them.
    """
    return tx.scalar(CLAIM_MAINTENANCE, claimed_for=MAINTENANCE_CLAIM)


def release_maintenance(tx: Transaction, claimed_at: datetime) -> None:
    """End a claim, unless it has expired and another sweeper has its own."""
    tx.execute(RELEASE_MAINTENANCE, claimed_at=claimed_at)
