"""Workers that are killed, and workers that are terminated."""

from collections import Counter

import pytest

from tests.faults.cluster import ACTIVATIONS, Cluster

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUNS = 20
RECOVERY_TIME = 90.0  # seconds within which all runs end


@pytest.mark.long
def test_runs_succeed_on_another_worker_after_theirs_is_killed(cluster: Cluster):
    victim = cluster.start("worker")
    cluster.start_runs(RUNS)
    cluster.wait_for(lambda: cluster.external.requests > RUNS and "succeeded" in cluster.statuses, 60)

    cluster.kill(victim)
    when_killed = cluster.statuses
    worker = cluster.start("worker")
    cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)

    assert when_killed["running"] > 0, "too late to show anything"
    cluster.assert_everything_happened_once(RUNS)
    assert any(row.crash_count for row in cluster.rows(ACTIVATIONS))
    cluster.kill(worker)


def test_terminated_worker_releases_its_attempts_without_lease_expiry(cluster: Cluster):
    cluster.external.answer_delay = 1.0
    old_worker = cluster.start("worker", EASEL_LEASE="10m")
    cluster.start_runs(RUNS)
    cluster.wait_for(lambda: cluster.external.requests >= 10, 60)

    new_worker = cluster.start("worker", EASEL_LEASE="10m")
    cluster.terminate(old_worker)
    old_worker.wait(timeout=30)
    cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)

    cluster.assert_everything_happened_once(RUNS)
    attempts = Counter(row.attempt for row in cluster.rows(ACTIVATIONS))
    assert attempts[2] > 0, "no attempt was released"
    assert {row.crash_count for row in cluster.rows(ACTIVATIONS)} == {0}
    cluster.kill(new_worker)
