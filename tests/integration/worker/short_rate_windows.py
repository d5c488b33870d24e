"""Rate limits of vendors and accounts, for tests that do not wait a real minute."""

from datetime import UTC, datetime

import redis

from store.tables.runs import activations
from tests.integration.engine import Bench, Run


def expire_rate_limit_waits(bench: Bench, run: Run) -> None:
    """Reset the state of all rate limiters, and make the activations of a run that wait for one due."""
    with redis.Redis.from_url(bench.redis_url) as client:
        for key in client.scan_iter("easel:pace:*"):
            client.delete(key)
    with bench.database.transaction() as tx:
        due = activations.update().where(activations.c.run_id == run.id, activations.c.status == "ready")
        tx.execute(due.values(not_before=datetime.now(UTC)))
