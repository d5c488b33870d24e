"""A thousand runs continue after FLUSHALL: measures how long each makes no progress."""

import time

import redis
from sqlalchemy import text

from tests import services
from tests.faults.cluster import Cluster, cluster_on
from tests.faults.table import Tally

RUNS = 1000
TIMEOUT = 240.0  # seconds for all of them to end, on a small machine
NEXT_MOVES = text("""
    select max(extract(epoch from moved) - :since) from (
        select min(case when extract(epoch from a.started_at) > :since
                   then a.started_at else a.finished_at end) as moved
        from activations a join runs r on r.id = a.run_id
        where r.tenant_id = :tenant_id and extract(epoch from greatest(a.started_at, a.finished_at)) > :since
        group by a.run_id
    ) moves
""")


def measure(continue_locally_for: str = "0s") -> dict[str, Tally]:
    """Return a row of the table; the stall is the longest time from FLUSHALL to the next progress of a run."""
    with (
        services.shared_folder() as home,
        services.running(home) as servers,
        services.fresh_database(servers.database_url, services.migrated_template(servers.database_url, home)) as url,
        cluster_on(
            url,
            services.emptied_redis(servers.redis_url, "faults"),
            home,
            EASEL_CONTINUE_LOCALLY_FOR=continue_locally_for,
        ) as cluster,
    ):
        cluster.start("sweeper")
        cluster.start("worker", "-c", "64")
        return {f"FLUSHALL, {RUNS} runs": run_through_flushall(cluster, RUNS)}


def run_through_flushall(cluster: Cluster, count: int) -> Tally:
    """Start so many runs, empty Redis, and wait for all of them."""
    cluster.start_runs(count)
    with redis.Redis.from_url(cluster.redis_url) as client:
        client.flushall()
    since = time.time()
    cluster.wait_until_all_succeeded(count, seconds=TIMEOUT)
    tally, wrong = cluster.tally(count)
    assert not wrong, "\n".join(wrong)
    with cluster.database.transaction() as tx:
        tally.stall = float(tx.scalar(NEXT_MOVES, tenant_id=cluster.tenant_id, since=since))
    return tally
