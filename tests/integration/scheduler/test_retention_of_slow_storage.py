"""Retention with a slow or failing file storage: no transaction is open during a call, and no file is lost."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

import store.db.database
from scheduler.sweeper.maintenance import apply_retention
from store.db.database import Database
from store.files.blobs import LocalBlobs, StorageUnavailable
from store.maintenance import retention
from store.primitives.ids import first_id_at, new_id
from store.tenants import uploads
from tests.integration.store.slow_storage import SlowStorage

NOW = datetime.now(UTC)
OLD, RETENTION_TIME = NOW - timedelta(days=60), timedelta(days=30)
TENANT = new_id()
IDLE_LIMIT, SLOWNESS = "2000", 2.2  # milliseconds; seconds of each call, which is longer
ROWS = text("select sha256 from files order by sha256")


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database that ends transactions which idle for two seconds."""
    limits = vars(store.db.database)["_SERVER_LIMITS"]
    monkeypatch.setitem(limits, "idle_in_transaction_session_timeout", IDLE_LIMIT)
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def folder(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path)


@pytest.fixture
def bucket(folder: LocalBlobs, database: Database) -> SlowStorage:
    return SlowStorage(folder, database.url)


def add_files(database: Database, folder: LocalBlobs, *contents: bytes, is_old: bool = True) -> list[bytes]:
    """Store files of runs that no longer exist; return their hashes."""
    hashes: list[bytes] = []
    for number, content in enumerate(contents):
        stored = uploads.store_content(folder, f"{number}.txt", "text/plain", content)
        run_id = UUID(int=first_id_at(OLD).int | new_id().int & (1 << 60) - 1)
        with database.transaction() as tx:
            uploads.register(tx, TENANT, stored, run_id=run_id)
        if is_old:
            age(folder, stored.sha256)
        hashes.append(stored.sha256)
    return hashes


def age(folder: LocalBlobs, sha256: bytes) -> None:
    """Set the time of this blob to two hours ago."""
    long_ago = time.time() - 7200
    os.utime(folder.folder / sha256.hex()[:2] / sha256.hex(), (long_ago, long_ago))


def hashes_in_rows(database: Database) -> set[str]:
    with database.transaction() as tx:
        return {bytes(sha256).hex() for (sha256,) in tx.rows(ROWS)}


def hashes_in_storage(folder: LocalBlobs) -> set[str]:
    return {path.name for path in folder.folder.glob("*/*")}


def test_files_are_deleted_although_each_storage_call_exceeds_the_idle_limit_of_transactions(
    database: Database, folder: LocalBlobs, bucket: SlowStorage
):
    add_files(database, folder, b"one", b"two")
    bucket.slowness = SLOWNESS

    apply_retention(database, NOW - RETENTION_TIME, bucket)

    assert (hashes_in_rows(database), hashes_in_storage(folder)) == (set(), set())
    assert bucket.record.calls.count("discard") == 2
    assert bucket.record.open == []


@pytest.mark.parametrize("answered", [1, 2, 3])
def test_retention_interrupted_by_a_storage_failure_is_completed_by_the_next_one(
    database: Database, folder: LocalBlobs, bucket: SlowStorage, answered: int
):
    add_files(database, folder, b"one", b"two", b"three")
    bucket.breaks_at = answered  # the first call is `is_reachable`

    with pytest.raises(StorageUnavailable):
        apply_retention(database, NOW - RETENTION_TIME, bucket)
    assert hashes_in_rows(database) == hashes_in_storage(folder)
    assert len(hashes_in_rows(database)) == 4 - answered

    bucket.breaks_at = None
    apply_retention(database, NOW - RETENTION_TIME, bucket)
    assert (hashes_in_rows(database), hashes_in_storage(folder)) == (set(), set())


def test_rows_of_deleted_blobs_are_deleted_by_the_next_retention_after_a_crash(
    database: Database, folder: LocalBlobs, bucket: SlowStorage, monkeypatch: pytest.MonkeyPatch
):
    add_files(database, folder, b"one", b"two")

    def die(*args: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(retention, "delete_files", die)
        with pytest.raises(KeyboardInterrupt):
            apply_retention(database, NOW - RETENTION_TIME, bucket)
    assert (len(hashes_in_rows(database)), hashes_in_storage(folder)) == (2, set())

    apply_retention(database, NOW - RETENTION_TIME, bucket)
    assert hashes_in_rows(database) == set()


def test_row_of_a_recently_stored_blob_is_deleted_together_with_the_blob_later(
    database: Database, folder: LocalBlobs, bucket: SlowStorage
):
    (sha256,) = add_files(database, folder, b"one", is_old=False)

    apply_retention(database, NOW - RETENTION_TIME, bucket)
    assert hashes_in_rows(database) == hashes_in_storage(folder) == {sha256.hex()}

    age(folder, sha256)  # no newer row was written
    apply_retention(database, NOW - RETENTION_TIME, bucket)
    assert (hashes_in_rows(database), hashes_in_storage(folder)) == (set(), set())


def test_blob_with_two_rows_in_different_batches_is_deleted_with_both_rows(
    database: Database, folder: LocalBlobs, bucket: SlowStorage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retention, "BATCH", 1)
    add_files(database, folder, b"same", b"same", b"other")

    apply_retention(database, NOW - RETENTION_TIME, bucket)

    assert (hashes_in_rows(database), hashes_in_storage(folder)) == (set(), set())


def test_row_whose_duplicate_was_deleted_meanwhile_is_not_deleted(database: Database, folder: LocalBlobs):
    (sha256,) = add_files(database, folder, b"same")
    with database.transaction() as tx:
        upload = uploads.register(tx, TENANT, uploads.store_content(folder, "a.txt", "text/plain", b"same"))
        found = retention.find_unneeded_files(tx, (UUID(int=0), UUID(int=0)), first_id_at(NOW), NOW + RETENTION_TIME)
        assert found.shared == {sha256}
        tx.execute(text("delete from files where id = :id"), id=upload.id)

        assert retention.delete_files(tx, found, []) == 0

    assert hashes_in_rows(database) == {sha256.hex()}


def test_blob_renamed_by_a_killed_process_is_deleted_if_old_and_restored_if_young(folder: LocalBlobs):
    old, young = folder.store(b"old"), folder.store(b"young")
    age(folder, old)
    for sha256 in (old, young):
        path = folder.folder / sha256.hex()[:2] / sha256.hex()
        path.rename(path.with_name(f"{path.name}.0a1b2c3d"))

    assert (folder.discard(old), folder.discard(young)) == (True, False)

    assert hashes_in_storage(folder) == {young.hex()}
