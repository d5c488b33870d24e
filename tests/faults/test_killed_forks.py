"""Workers that are killed while forks of finished runs are executed."""

from collections import Counter

import pytest
from sqlalchemy import text

from scheduler.lifecycle import run_copies
from scheduler.lifecycle.run_copies import ForkOptions
from store.primitives.ids import new_id
from tests.faults.cluster import Cluster
from tests.integration.engine import secrets_of

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUNS = 12
RECOVERY_TIME = 90.0  # seconds within which all forks end
REUSED = text("""
    select a.node_id, count(*) from activations a join runs r on r.id = a.run_id
    where r.tenant_id = :tenant_id and r.source_run is not null and a.worker is null group by 1
""")
TEXTS = text("""
    select r.request ->> 'query' as query, r.source_run is not null as is_fork, string_agg(t.text, '') as said
    from runs r join turns t on t.run_id = r.id where r.tenant_id = :tenant_id group by 1, 2
""")


@pytest.mark.long
def test_forks_take_over_what_was_done_though_their_worker_is_killed(cluster: Cluster):  # T146
    worker = cluster.start("worker")
    sources = cluster.start_runs(RUNS)
    cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)
    before = Counter(cluster.external.prompts)
    effects_before = len(cluster.external.effects)

    for source in sources:
        with cluster.database.transaction() as tx:
            planned = run_copies.plan_fork(
                tx,
                cluster.lifecycle.coordinator.versions,
                cluster.tenant_id,
                source,
                ForkOptions(places=["model2"]),
                new_id(),
                secrets_of,
            )
        cluster.lifecycle.start_run(planned.start)
    cluster.wait_for(lambda: cluster.external.requests > before.total() + 2, 60)
    cluster.kill(worker)
    assert cluster.statuses.get("running", 0) > 0, "too late to show anything"
    cluster.start("worker")
    cluster.wait_until_all_succeeded(2 * RUNS, seconds=RECOVERY_TIME)

    called = Counter(cluster.external.prompts) - before
    assert {prompt.partition(" ")[0] for prompt in called} == {"then"}
    assert len(cluster.external.effects) == effects_before
    assert dict(tuple(row) for row in cluster.rows(REUSED)) == {"begin": RUNS, "model1": RUNS, "post": RUNS}
    said = {(row.query, row.is_fork): row.said for row in cluster.rows(TEXTS)}
    assert all(said[query, True] == said[query, False] for query, _ in said)
