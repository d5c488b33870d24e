"""Canaries: empty tasks that prove a queue moves (protocol.md, "Sweeper")."""

from datetime import datetime

from sqlalchemy import text

from store.database import Transaction

CAME_BACK = text("""
    insert into canaries (queue, sent_at) values (:queue, :sent_at)
    on conflict (queue) do update set sent_at = greatest(canaries.sent_at, excluded.sent_at)
""")
LATEST = text("select sent_at from canaries where queue = :queue")


def came_back(tx: Transaction, queue: str, sent_at: datetime) -> None:
    """A canary that was sent at this time has gone through the queue."""
    tx.run(CAME_BACK, queue=queue, sent_at=sent_at)


def latest(tx: Transaction, queue: str) -> datetime | None:
    """When the latest canary that came back was sent; None if none ever did."""
    return tx.scalar(LATEST, queue=queue)
