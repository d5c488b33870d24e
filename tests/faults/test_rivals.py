"""Several that do the same thing at once, messages that come back too early, and clocks that disagree."""

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
PROMISED = 90.0  # seconds within which all runs end by themselves
COORDINATORS = 10


def test_two_sweepers_repair_what_one_would(cluster: Cluster):
    cluster.have_no("worker")
    second = cluster.start("sweeper")
    lost = cluster.start("worker")
    cluster.begin(RUNS)
    cluster.wait_for(lambda: cluster.outside.requests > RUNS // 2, 60)

    cluster.kill(lost)
    with redis.Redis.from_url(cluster.redis_url) as client:
        client.flushdb()
    cluster.have("worker")
    cluster.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)

    cluster.kill(second)
    cluster.assert_everything_happened_once(RUNS)
    rows = cluster.rows(ACTIVATIONS)
    assert any(row.strikes for row in rows)
    assert all(row.strikes < row.attempt for row in rows)


def test_ten_coordinators_for_one_run_fold_each_report_once(cluster: Cluster):
    cluster.have("worker", EASEL_INLINE_ADVANCE="0", **LONG_LEASES)
    database = Database(cluster.database.url, pool_size=COORDINATORS)
    coordinator = Coordinator(database, Dispatch(cluster.app, cluster.bus), VersionCache())
    ending = threading.Event()

    def advance() -> int:
        folds = 0
        while not ending.is_set():
            for run_id in runs:
                coordinator.advance_run(run_id)
                folds += 1
        return folds

    runs = cluster.begin(1)
    with ThreadPoolExecutor(COORDINATORS) as pool:
        working = [pool.submit(advance) for _ in range(COORDINATORS)]
        try:
            cluster.wait_until_all_have_succeeded(1, seconds=PROMISED)
        finally:
            ending.set()
    database.close()
    cluster.have_no("worker")

    assert all(it.result() > 1 for it in working)
    cluster.assert_everything_happened_once(1)


def test_a_message_that_redis_gives_to_another_too_early_is_carried_out_once(cluster: Cluster):
    cluster.have_no("worker")
    cluster.outside.takes = 2.0
    impatient = [cluster.start("worker", FAULT_VISIBILITY="1", **LONG_LEASES) for _ in range(2)]
    cluster.begin(RUNS)
    cluster.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)
    for worker in impatient:
        cluster.kill(worker)

    cluster.assert_everything_happened_once(RUNS)
    assert {(row.attempt, row.strikes) for row in cluster.rows(ACTIVATIONS)} == {(1, 0)}


def test_clocks_that_are_a_minute_apart_cost_nobody_a_lease_and_hide_no_lost_message(cluster: Cluster):
    cluster.have_no("worker")
    cluster.have_no("sweeper")
    late = cluster.start("sweeper", FAULT_CLOCK="-60")
    ahead = cluster.start("worker", "-c", "3", FAULT_CLOCK="60", **LONG_LEASES)
    cluster.begin(RUNS)
    cluster.wait_for(lambda: cluster.outside.requests > 3, 60)

    with redis.Redis.from_url(cluster.redis_url) as client:
        client.flushdb()
    cluster.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)

    cluster.kill(late)
    cluster.kill(ahead)
    cluster.assert_everything_happened_once(RUNS)
    assert {(row.attempt, row.strikes) for row in cluster.rows(ACTIVATIONS)} == {(1, 0)}
