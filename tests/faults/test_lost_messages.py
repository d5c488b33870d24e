"""Redis is emptied, and task messages are duplicated and reordered: no run is lost or executed twice."""

import random

import pytest
import redis
from sqlalchemy import text

from scheduler.messaging.celery_app import EXECUTE, NODES
from tests.faults.cluster import ACTIVATIONS, LONG_LEASES, Cluster

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUNS = 12
RECOVERY_TIME = 90.0  # seconds within which all runs end
ALL = text("select a.run_id, a.id from activations a join runs r on r.id = a.run_id where r.tenant_id = :tenant_id")


@pytest.mark.parametrize("inline_advance", [False, pytest.param(True, marks=pytest.mark.long)])
def test_runs_succeed_after_redis_is_emptied(cluster: Cluster, inline_advance: bool):
    processes = [cluster.start("worker", "-c", "3", EASEL_INLINE_ADVANCE=str(int(inline_advance)), **LONG_LEASES)]
    if not inline_advance:
        processes.append(cluster.start("scheduler"))
    cluster.start_runs(RUNS)
    cluster.wait_for(lambda: cluster.external.requests > 3, 60)

    with redis.Redis.from_url(cluster.redis_url) as client:
        lost = client.llen(NODES)
        client.flushdb()
    cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)

    assert lost > 0, "too late to show anything"
    cluster.assert_everything_happened_once(RUNS)
    assert {(row.attempt, row.crash_count) for row in cluster.rows(ACTIVATIONS)} == {(1, 0)}
    for process in processes:
        cluster.kill(process)


def test_duplicate_and_reordered_task_messages_execute_each_activation_once(cluster: Cluster):
    cluster.start_runs(RUNS)
    with redis.Redis.from_url(cluster.redis_url) as client:
        messages = [message for message in client.lrange(NODES, 0, -1) if "execute" in str(message)] * 2
        random.Random(7).shuffle(messages)
        client.rpush(NODES, *messages)

    worker = cluster.start("worker", **LONG_LEASES)
    for requests in (1, RUNS, RUNS + RUNS // 2):
        cluster.wait_for(lambda requests=requests: cluster.external.requests >= requests, 40)
        send_message_for_every_activation(cluster)
    cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)

    cluster.assert_everything_happened_once(RUNS)
    assert {(row.attempt, row.crash_count) for row in cluster.rows(ACTIVATIONS)} == {(1, 0)}
    cluster.kill(worker)


def send_message_for_every_activation(cluster: Cluster) -> None:
    """Send a task message for every activation, whatever its status."""
    for run_id, activation_id in cluster.rows(ALL):
        cluster.app.send_task(EXECUTE, args=(str(run_id), str(activation_id)), queue=NODES)
