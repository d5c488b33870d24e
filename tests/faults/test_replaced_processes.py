"""A deployment in the middle of everything: processes of the old and of the new generation work side by side."""

from tests.faults.cluster import ACTIVATIONS, Cluster

RUNS = 10
PROMISED = 40.0  # seconds within which all runs end by themselves
LONG = "10m"  # a lease; nobody waits until one has run out


def test_every_process_is_replaced_while_runs_are_at_work_and_no_run_pays_for_it(cluster: Cluster):
    cluster.outside.takes = 0.5
    old = {program: cluster.start(program, EASEL_LEASE=LONG) for program in ("worker", "scheduler", "sweeper")}
    cluster.begin(RUNS)
    cluster.wait_for(lambda: cluster.outside.requests >= 3, 60)

    new = [cluster.start(program, EASEL_LEASE=LONG) for program in old]
    for process in old.values():
        cluster.tell_to_go(process)
        process.wait(timeout=60)
    when_replaced = cluster.statuses
    cluster.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)

    assert when_replaced["running"] > 0, "too late to show anything"
    assert [process.poll() for process in new] == [None] * len(new)
    cluster.assert_everything_happened_once(RUNS)
    assert {row.strikes for row in cluster.rows(ACTIVATIONS)} == {0}
