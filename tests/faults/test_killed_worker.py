"""Workers that die, and workers that are told to go."""

from collections import Counter

import pytest

from tests.faults.cluster import ACTIVATIONS, Cluster

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUNS = 20
PROMISED = 90.0  # seconds within which all runs end by themselves


def test_runs_end_by_themselves_when_their_worker_is_killed_and_another_comes(cluster: Cluster):
    doomed = cluster.start("worker")
    cluster.begin(RUNS)
    cluster.wait_for(lambda: cluster.outside.requests > RUNS and "succeeded" in cluster.statuses, 60)

    cluster.kill(doomed)
    when_killed = cluster.statuses
    worker = cluster.start("worker")
    cluster.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)

    assert when_killed["running"] > 0, "too late to show anything"
    cluster.assert_everything_happened_once(RUNS)
    assert any(row.strikes for row in cluster.rows(ACTIVATIONS))
    cluster.kill(worker)


def test_a_worker_that_is_told_to_go_gives_back_what_it_has_and_no_lease_has_to_run_out(cluster: Cluster):
    cluster.outside.takes = 1.0
    leaving = cluster.start("worker", EASEL_LEASE="10m")
    cluster.begin(RUNS)
    cluster.wait_for(lambda: cluster.outside.requests >= 10, 60)

    staying = cluster.start("worker", EASEL_LEASE="10m")
    cluster.tell_to_go(leaving)
    leaving.wait(timeout=30)
    cluster.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)

    cluster.assert_everything_happened_once(RUNS)
    attempts = Counter(row.attempt for row in cluster.rows(ACTIVATIONS))
    assert attempts[2] > 0, "nothing was given back"
    assert {row.strikes for row in cluster.rows(ACTIVATIONS)} == {0}
    cluster.kill(staying)
