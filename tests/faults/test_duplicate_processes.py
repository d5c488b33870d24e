"""Several processes with the same task, early redelivery of messages, and clocks that differ."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging.dispatch import Dispatch
from store.db.database import Database
from tests.faults.cluster import ACTIVATIONS, LONG_LEASES, Cluster

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUNS = 8
RECOVERY_TIME = 90.0  # seconds within which all runs end
COORDINATORS = 10


@pytest.mark.long
def test_two_sweepers_repair_nothing_twice(cluster: Cluster):
    cluster.ensure_stopped("worker")
    second = cluster.start("sweeper")
    lost = cluster.start("worker")
    cluster.start_runs(RUNS)
    cluster.wait_for(lambda: cluster.external.requests > RUNS // 2, 60)

    cluster.kill(lost)
    with redis.Redis.from_url(cluster.redis_url) as client:
        client.flushdb()
    cluster.ensure_running("worker")
    cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)

    cluster.kill(second)
    cluster.assert_everything_happened_once(RUNS)
    rows = cluster.rows(ACTIVATIONS)
    assert any(row.crash_count for row in rows)
    assert all(row.crash_count < row.attempt for row in rows)


def test_ten_coordinators_of_one_run_apply_each_report_once(cluster: Cluster):
    cluster.ensure_running("worker", EASEL_INLINE_ADVANCE="0", **LONG_LEASES)
    database = Database(cluster.database.url, pool_size=COORDINATORS)
    coordinator = Coordinator(database, Dispatch(cluster.app, cluster.bus), VersionCache())
    stopping = threading.Event()

    def advance() -> int:
        advances = 0
        while not stopping.is_set():
            for run_id in runs:
                coordinator.advance_run(run_id)
                advances += 1
        return advances

    runs = cluster.start_runs(1)
    with ThreadPoolExecutor(COORDINATORS) as pool:
        futures = [pool.submit(advance) for _ in range(COORDINATORS)]
        try:
            cluster.wait_until_all_succeeded(1, seconds=RECOVERY_TIME)
        finally:
            stopping.set()
    database.close()
    cluster.ensure_stopped("worker")

    assert all(each.result() > 1 for each in futures)
    cluster.assert_everything_happened_once(1)


def test_message_redelivered_after_the_visibility_timeout_is_executed_once(cluster: Cluster):
    cluster.ensure_stopped("worker")
    cluster.external.answer_delay = 2.0
    workers = [cluster.start("worker", FAULT_VISIBILITY="1", **LONG_LEASES) for _ in range(2)]
    cluster.start_runs(RUNS)
    cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)
    for worker in workers:
        cluster.kill(worker)

    cluster.assert_everything_happened_once(RUNS)
    assert {(row.attempt, row.crash_count) for row in cluster.rows(ACTIVATIONS)} == {(1, 0)}


@pytest.mark.long
def test_clocks_a_minute_apart_expire_no_lease_and_hide_no_lost_message(cluster: Cluster):
    cluster.ensure_stopped("worker")
    cluster.ensure_stopped("sweeper")
    slow_clock = cluster.start("sweeper", FAULT_CLOCK="-60")
    fast_clock = cluster.start("worker", "-c", "3", FAULT_CLOCK="60", **LONG_LEASES)
    cluster.start_runs(RUNS)
    cluster.wait_for(lambda: cluster.external.requests > 3, 60)

    with redis.Redis.from_url(cluster.redis_url) as client:
        client.flushdb()
    cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)

    cluster.kill(slow_clock)
    cluster.kill(fast_clock)
    cluster.assert_everything_happened_once(RUNS)
    assert {(row.attempt, row.crash_count) for row in cluster.rows(ACTIVATIONS)} == {(1, 0)}
