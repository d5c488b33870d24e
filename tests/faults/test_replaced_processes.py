"""A deployment while runs continue: old and new processes run at the same time."""

import pytest

from tests.faults.cluster import ACTIVATIONS, Cluster

RUNS = 10
RECOVERY_TIME = 40.0  # seconds within which all runs end
LONG_LEASE = "10m"  # no test waits until a lease expires


@pytest.mark.long
def test_runs_succeed_without_crashes_while_every_process_is_replaced(cluster: Cluster):
    cluster.external.answer_delay = 0.5
    old = {program: cluster.start(program, EASEL_LEASE=LONG_LEASE) for program in ("worker", "scheduler", "sweeper")}
    cluster.start_runs(RUNS)
    cluster.wait_for(lambda: cluster.external.requests >= 3, 60)

    new = [cluster.start(program, EASEL_LEASE=LONG_LEASE) for program in old]
    for process in old.values():
        cluster.terminate(process)
        process.wait(timeout=60)
    when_replaced = cluster.statuses
    cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)

    assert when_replaced["running"] > 0, "too late to show anything"
    assert [process.poll() for process in new] == [None] * len(new)
    cluster.assert_everything_happened_once(RUNS)
    assert {row.crash_count for row in cluster.rows(ACTIVATIONS)} == {0}
