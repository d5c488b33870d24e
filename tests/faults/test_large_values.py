"""A worker that is killed between writing the file of a large value and its row."""

from pathlib import Path

import pytest
from sqlalchemy import text

from store.agents import canvases, versions
from store.files.blobs import LocalBlobs
from store.files.large_values import LargeValues
from store.runs import run_rows
from tests.builders import content
from tests.faults.cluster import ACTIVATIONS, Cluster
from tests.integration.engine import dsl_of

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

MERGED = {"component": "StringTransform", "method": "merge", "delimiters": [","]}
ROW = text("select large from node_values where run_id = :run_id and node_id = 'write'")


def test_worker_killed_between_file_and_row_leaves_no_row_without_file(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    document = dsl_of(
        "begin -> write -> say", write={**MERGED, "script": "{sys.query}" * 1200}, say=content("{write@result}")
    )
    with cluster.database.transaction() as tx:
        cluster.canvas_id = canvases.create(tx, cluster.tenant_id, "large", document)
        cluster.version_id = versions.lock_draft_version(tx, cluster.tenant_id, cluster.canvas_id).id
    query = "x" * 1024
    monkeypatch.setattr(cluster, "question", lambda number: query)

    victim = cluster.start(
        "worker", EASEL_FILES_DIR=str(tmp_path), FAULT_STOP="before the commit of a report, 2, SIGKILL"
    )
    (run_id,) = cluster.start_runs(1)
    victim.wait(timeout=60)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    with cluster.database.transaction() as tx:
        named = tx.rows(ROW, run_id=run_id)
    worker = cluster.start("worker", EASEL_FILES_DIR=str(tmp_path))
    cluster.wait_until_all_succeeded(1, seconds=90)

    assert (len(files), named) == (1, [])
    with cluster.database.transaction() as tx:
        (large,) = tx.rows(ROW, run_id=run_id)[0]
        assert run_rows.read(tx, cluster.tenant_id, run_id) is not None
    read = LargeValues(LocalBlobs(tmp_path)).outputs("write", {"result": None}, large)
    assert read == {"result": query * 1200}
    attempts = {row.node_id: row.attempt for row in cluster.rows(ACTIVATIONS)}
    assert attempts["write"] == 1  # the lost attempt had not written its claim
    cluster.kill(worker)
