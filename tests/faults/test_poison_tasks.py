"""A node that kills its worker process, among runs that do not."""

import subprocess
import sys

import pytest

from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Start
from store.agents import canvases, versions
from store.primitives.ids import new_id
from tests.faults.cluster import ROOT, Cluster
from tests.integration.engine import dsl_of

HEALTHY_RUNS = 12
SHORT_LEASE = {"EASEL_LEASE": "1s", "EASEL_RENEW_EVERY": "300ms"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("defers_claims", "kills"), [("false", 3), ("true", 4)], ids=["claimed first", "with a deferred claim"]
)
def test_node_that_kills_its_workers_fails_and_other_runs_succeed(cluster: Cluster, defers_claims: str, kills: int):
    """A node that only computes may kill one worker before its claim is written."""
    workers = [start_poisoned_worker(cluster, EASEL_DEFER_CLAIMS=defers_claims) for _ in range(kills + 1)]
    cluster.start_runs(HEALTHY_RUNS)

    with cluster.database.transaction() as tx:
        document = dsl_of("begin -> poison", poison={"component": "Poison"})
        canvas_id = canvases.create(tx, cluster.tenant_id, f"poisoned {new_id()}", document)
        version_id = versions.lock_draft_version(tx, cluster.tenant_id, canvas_id).id
    cluster.lifecycle.start_run(Start(cluster.tenant_id, canvas_id, version_id, RunRequest(query="x")))
    cluster.wait_for(lambda: cluster.statuses == {"succeeded": HEALTHY_RUNS, "failed": 1}, 60)

    assert sorted(worker.poll() is None for worker in workers) == [*([False] * kills), True]


def start_poisoned_worker(cluster: Cluster, **more: str) -> subprocess.Popen[bytes]:
    """Start a worker that has the component `Poison`; the cluster ends it with the others."""
    arguments = [sys.executable, "-m", "tests.faults.poisoned_worker"]
    with (cluster.home / f"poisoned-{len(cluster.processes)}.log").open("wb") as log:
        environment = {**cluster.environment, **SHORT_LEASE, **more}
        process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    cluster.processes.append(process)
    return process
