"""Canaries: empty tasks that prove a queue moves (protocol.md, "Sweeper"); and what sweepers have seen, beside them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from store.db.transaction import Transaction

CAME_BACK = text("""
    insert into canaries (queue, sent_at)
    select :queue, cast(:sent_at as timestamptz) where cast(:sent_at as timestamptz) <= now()
    on conflict (queue) do update
      set sent_at = greatest(case when canaries.sent_at <= now() then canaries.sent_at end, excluded.sent_at)
""")
"""One of a moment that is still to come proves nothing: the clock was ahead then. What it has left is overwritten."""
LATEST = text("select sent_at from canaries where queue = :queue")

REMEMBERED = text("select queue, sent_at from canaries where queue in ('sweeper:since', 'sweeper:seen')")
SEE = text("""
    with seen as (
        insert into canaries (queue, sent_at) values ('sweeper:since', :since), ('sweeper:seen', :now)
        on conflict (queue) do update set sent_at = excluded.sent_at
    )
    select sent_at from canaries where queue = :queue and sent_at <= :now
""")

HOUSE_CLAIMED_FOR = timedelta(minutes=10)  # by a sweeper that may have been killed since
CLAIM_HOUSE = text("""
    insert into canaries (queue, sent_at) values ('sweeper:house', now())
    on conflict (queue) do update set sent_at = excluded.sent_at
    where canaries.sent_at < now() - :claimed_for or canaries.sent_at > now() + :claimed_for
    returning sent_at
""")  # a claim from the future is of a clock that went back; one of a moment ahead began after this transaction
RELEASE_HOUSE = text("delete from canaries where queue = 'sweeper:house' and sent_at = :claimed_at")


@dataclass(frozen=True, slots=True)
class SweeperObservation:
    """What sweepers have seen of the database, by its own clock: without a break from `since` to `seen`."""

    since: datetime
    seen: datetime


def record_return(tx: Transaction, queue: str, sent_at: datetime) -> None:
    """A canary that was sent at this time has gone through the queue. One from the future counts for nothing."""
    tx.run(CAME_BACK, queue=queue, sent_at=sent_at)


def latest(tx: Transaction, queue: str) -> datetime | None:
    """When the latest canary that came back was sent; None if none ever did."""
    return tx.scalar(LATEST, queue=queue)


def last_observation(tx: Transaction) -> SweeperObservation | None:
    """What the sweepers before this one have seen; None if there was none."""
    rows: Mapping[str, datetime] = {row[0]: row[1] for row in tx.rows(REMEMBERED)}
    if len(rows) < 2:
        return None
    return SweeperObservation(rows["sweeper:since"], rows["sweeper:seen"])


def save_observation(tx: Transaction, sight: SweeperObservation, queue: str) -> datetime | None:
    """Leave what was seen for the next sweeper, and read what `latest` reads: one round trip for both."""
    return tx.scalar(SEE, since=sight.since, now=sight.seen, queue=queue)


def claim_house(tx: Transaction) -> datetime | None:
    """Claim what only one sweeper at a time should do beside its ticks; None if another one is at it.

    A row rather than a lock of PostgreSQL's: the work has many transactions, and a pooler keeps no locks between them.
    """
    return tx.scalar(CLAIM_HOUSE, claimed_for=HOUSE_CLAIMED_FOR)


def release_house(tx: Transaction, claimed_at: datetime) -> None:
    """End a claim, unless it was too old and another sweeper has its own by now."""
    tx.run(RELEASE_HOUSE, claimed_at=claimed_at)
