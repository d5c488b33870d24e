"""Redis forgets, and messages come twice and in any order: it costs seconds, never a run or a second result."""

import random

import pytest
import redis
from sqlalchemy import text

from scheduler.messaging.celery_app import EXECUTE, NODES
from tests.faults.cluster import ACTIVATIONS, LONG_LEASES, Cluster

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUNS = 12
PROMISED = 90.0  # seconds within which all runs end by themselves
ALL = text("select a.run_id, a.id from activations a join runs r on r.id = a.run_id where r.tenant_id = :tenant_id")


@pytest.mark.parametrize("rides_along", [True, False])
def test_runs_end_when_redis_has_forgotten_everything(cluster: Cluster, rides_along: bool):
    processes = [cluster.start("worker", "-c", "3", EASEL_INLINE_ADVANCE=str(int(rides_along)), **LONG_LEASES)]
    if not rides_along:
        processes.append(cluster.start("scheduler"))
    cluster.begin(RUNS)
    cluster.wait_for(lambda: cluster.outside.requests > 3, 60)

    with redis.Redis.from_url(cluster.redis_url) as client:
        lost = client.llen(NODES)
        client.flushdb()
    cluster.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)

    assert lost > 0, "too late to show anything"
    cluster.assert_everything_happened_once(RUNS)
    assert {(row.attempt, row.strikes) for row in cluster.rows(ACTIVATIONS)} == {(1, 0)}
    for process in processes:
        cluster.kill(process)


def test_hints_that_come_twice_and_in_any_order_do_everything_once(cluster: Cluster):
    cluster.begin(RUNS)
    with redis.Redis.from_url(cluster.redis_url) as client:
        hints = [hint for hint in client.lrange(NODES, 0, -1) if "execute" in str(hint)] * 2
        random.Random(7).shuffle(hints)
        client.rpush(NODES, *hints)

    worker = cluster.start("worker", **LONG_LEASES)
    for requests in (1, RUNS, RUNS + RUNS // 2):
        cluster.wait_for(lambda requests=requests: cluster.outside.requests >= requests, 40)
        ring_for_everything(cluster)
    cluster.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)

    cluster.assert_everything_happened_once(RUNS)
    assert {(row.attempt, row.strikes) for row in cluster.rows(ACTIVATIONS)} == {(1, 0)}
    cluster.kill(worker)


def ring_for_everything(cluster: Cluster) -> None:
    """A hint for every activation there is, whatever its status."""
    for run_id, activation_id in cluster.rows(ALL):
        cluster.app.send_task(EXECUTE, args=(str(run_id), str(activation_id)), queue=NODES)
