"""Files and large values in a slow file storage: no transaction is open during a call to it."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from store.db.database import Database
from store.files.blobs import LocalBlobs
from store.files.large_values import LargeValues
from store.tenants import uploads
from tests.integration.engine import Bench
from tests.integration.store.slow_storage import SlowStorage
from worker.context.attempt_storage import AttemptStorage
from worker.services.uploaded_files import UploadedFiles

TEXT = "It was a dark and stormy night; " * 40_000  # 1.28 MB


@pytest.fixture
def bucket(database: Database, tmp_path: Path) -> SlowStorage:
    return SlowStorage(LocalBlobs(tmp_path), database.url)


def test_slow_storage_records_a_transaction_that_is_open_during_a_call(database: Database, bucket: SlowStorage):
    with database.transaction() as tx:
        tx.scalar(text("select 'held'"))
        bucket.store(b"Hello")

    assert bucket.record.open == ["select 'held'"]


def test_upload_is_read_outside_of_a_transaction(bench: Bench, database: Database, bucket: SlowStorage):
    run = bench.start("begin -> work")
    stored = uploads.store_content(bucket.inner, "a.txt", "text/plain", b"Hello")
    with database.transaction() as tx:
        upload = uploads.register(tx, bench.tenant_id, stored)

    read = UploadedFiles(database, bucket).read(bench.tenant_id, run.id, {"id": str(upload.id), "name": "a.txt"}, "")

    assert read.data == b"Hello"
    assert (bucket.record.calls, bucket.record.open) == (["get"], [])


def test_component_saves_and_reads_a_file_outside_of_a_transaction(
    bench: Bench, database: Database, bucket: SlowStorage
):
    run = bench.start("begin -> work")
    storage = AttemptStorage(bench.claim(run, "begin"), database, bucket, bench.coordinator.dispatch.bus)

    async def save_and_read() -> bytes:
        saved = await storage.save("report.txt", b"made", "text/plain", "0")
        return await storage.read(saved)

    assert asyncio.run(save_and_read()) == b"made"
    assert (bucket.record.calls, bucket.record.open) == (["put", "get"], [])


@pytest.mark.parametrize("is_queued", [False, True])
def test_turn_loads_large_inputs_of_the_previous_turn_outside_of_a_transaction(
    bench: Bench, database: Database, bucket: SlowStorage, monkeypatch: pytest.MonkeyPatch, is_queued: bool
):
    monkeypatch.setattr(database, "large", LargeValues(bucket, stores_new=True))
    begin = {"inputs": {"name": {"name": "Name", "type": "line"}}}
    first = bench.start("begin -> work", begin=begin, inputs={"name": {"value": TEXT, "type": "line"}})
    row = first.row
    if not is_queued:
        bench.play()
    follow = bench.a_start(
        drawn=(row["canvas_id"], row["version_id"]), conversation_id=first.conversation_id, on_busy="enqueue"
    )

    second = bench.start_run(follow)
    bench.play()

    assert (first.status, second.status) == ("succeeded", "succeeded")
    assert second.row["baseline"]["inputs"]["name"] == TEXT
    assert "get" in bucket.record.calls
    assert bucket.record.open == []
