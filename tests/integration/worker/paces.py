"""Paces of vendors and accounts, for tests that do not wait until their minutes are over."""

from datetime import UTC, datetime

import redis

from store.tables.runs import activations
from tests.integration.engine import Bench, Run


def nothing_has_left_of_late(bench: Bench, run: Run) -> None:
    """A minute passes: for a run that waits for its turn, and for whoever keeps the pace."""
    with redis.Redis.from_url(bench.redis_url) as client:
        for key in client.scan_iter("easel:pace:*"):
            client.delete(key)
    with bench.database.transaction() as tx:
        due = activations.update().where(activations.c.run_id == run.id, activations.c.status == "ready")
        tx.execute(due.values(not_before=datetime.now(UTC)))
