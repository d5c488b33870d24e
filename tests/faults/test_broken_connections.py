"""Connections that fail in critical ways: half open, or during a commit."""

import pytest

from tests.faults.cluster import Cluster
from tests.faults.proxy import proxy

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUNS = 10
RECOVERY_TIME = 90.0  # seconds within which all runs end


def test_report_is_stored_once_when_a_commit_or_its_answer_is_lost(cluster: Cluster):
    cluster.ensure_stopped("worker")
    with proxy(cluster.database.url) as wire:
        worker = cluster.start("worker", DATABASE_URL=wire.through(cluster.database.url))
        cluster.start_runs(RUNS)
        for requests in range(2, 2 * RUNS, 3):
            cluster.wait_for(lambda requests=requests: cluster.external.requests >= requests, 40)
            wire.lose_answers(1)
            wire.drop_commits(1)
        cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)
        cluster.kill(worker)

    assert wire.answers_lost > 2
    assert wire.commits_dropped > 2
    cluster.assert_everything_happened_once(RUNS)


@pytest.mark.long
@pytest.mark.parametrize("server", ["postgres", "redis"])
def test_worker_with_half_open_connections_does_not_block_other_workers(cluster: Cluster, server: str):
    cluster.ensure_stopped("worker")
    database_url, redis_url = cluster.database.url, cluster.redis_url
    with proxy(database_url) as database_proxy, proxy(redis_url) as redis_proxy:
        cut_off_worker = cluster.start(
            "worker", DATABASE_URL=database_proxy.through(database_url), REDIS_URL=redis_proxy.through(redis_url)
        )
        cluster.start_runs(RUNS)
        cluster.wait_for(lambda: cluster.external.requests > RUNS // 2, 60)

        (redis_proxy if server == "redis" else database_proxy).hang()
        cluster.ensure_running("worker")
        cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)
        redis_proxy.resume()
        database_proxy.resume()
        cluster.terminate(cut_off_worker)  # its pending reports are refused
        cut_off_worker.wait(timeout=30)

    cluster.assert_everything_happened_once(RUNS)
