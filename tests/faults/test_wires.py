"""Connections that fail in the worst way: half open, or in the very moment of a commit."""

import pytest

from tests.faults.cluster import Cluster
from tests.faults.proxy import proxy

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUNS = 10
PROMISED = 90.0  # seconds within which all runs end by themselves


def test_a_report_whose_answer_got_lost_is_stored_once_and_one_that_never_came_is_sent_again(cluster: Cluster):
    cluster.have_no("worker")
    with proxy(cluster.database.url) as wire:
        worker = cluster.start("worker", DATABASE_URL=wire.through(cluster.database.url))
        cluster.begin(RUNS)
        for requests in range(2, 2 * RUNS, 3):
            cluster.wait_for(lambda requests=requests: cluster.outside.requests >= requests, 40)
            wire.lose_answers(1)
            wire.drop_commits(1)
        cluster.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)
        cluster.kill(worker)

    assert wire.answers_lost > 2
    assert wire.commits_dropped > 2
    cluster.assert_everything_happened_once(RUNS)


@pytest.mark.parametrize("server", ["redis", "postgres"])
def test_a_worker_whose_connections_are_half_open_keeps_nobody_from_going_on(cluster: Cluster, server: str):
    cluster.have_no("worker")
    database_url, redis_url = cluster.database.url, cluster.redis_url
    with proxy(database_url) as to_database, proxy(redis_url) as to_redis:
        cut_off = cluster.start(
            "worker", DATABASE_URL=to_database.through(database_url), REDIS_URL=to_redis.through(redis_url)
        )
        cluster.begin(RUNS)
        cluster.wait_for(lambda: cluster.outside.requests > RUNS // 2, 60)

        (to_redis if server == "redis" else to_database).hang()
        cluster.have("worker")
        cluster.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)
        to_redis.let_go()
        to_database.let_go()
        cluster.tell_to_go(cut_off)  # what it still has to say it says now, and nobody listens
        cut_off.wait(timeout=30)

    cluster.assert_everything_happened_once(RUNS)
