"""Retention while the file storage is slow, or fails in the middle: no transaction waits, and nothing is lost."""

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
OLD, KEPT = NOW - timedelta(days=60), timedelta(days=30)
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


def made(database: Database, folder: LocalBlobs, *contents: bytes, is_old: bool = True) -> list[bytes]:
    """Files of runs that are gone; their hashes."""
    hashes: list[bytes] = []
    for number, content in enumerate(contents):
        kept = uploads.store_content(folder, f"{number}.txt", "text/plain", content)
        run_id = UUID(int=first_id_at(OLD).int | new_id().int & (1 << 60) - 1)
        with database.transaction() as tx:
            uploads.register(tx, TENANT, kept, run_id=run_id)
        if is_old:
            aged(folder, kept.sha256)
        hashes.append(kept.sha256)
    return hashes


def aged(folder: LocalBlobs, sha256: bytes) -> None:
    """As if these bytes had been put two hours ago."""
    long_ago = time.time() - 7200
    os.utime(folder.folder / sha256.hex()[:2] / sha256.hex(), (long_ago, long_ago))


def named(database: Database) -> set[str]:
    with database.transaction() as tx:
        return {bytes(sha256).hex() for (sha256,) in tx.rows(ROWS)}


def lying(folder: LocalBlobs) -> set[str]:
    return {path.name for path in folder.folder.glob("*/*")}


def test_files_go_although_each_call_of_the_bucket_takes_longer_than_a_transaction_may_idle(
    database: Database, folder: LocalBlobs, bucket: SlowStorage
):
    made(database, folder, b"one", b"two")
    bucket.slowness = SLOWNESS

    apply_retention(database, NOW - KEPT, bucket)

    assert (named(database), lying(folder)) == (set(), set())
    assert bucket.record.calls.count("discard") == 2
    assert bucket.record.open == []


@pytest.mark.parametrize("answered", [1, 2, 3])
def test_where_the_bucket_fails_in_the_middle_each_row_keeps_its_bytes_and_the_rest_goes_the_next_time(
    database: Database, folder: LocalBlobs, bucket: SlowStorage, answered: int
):
    made(database, folder, b"one", b"two", b"three")
    bucket.breaks_at = answered  # the first call asks whether it is there

    with pytest.raises(StorageUnavailable):
        apply_retention(database, NOW - KEPT, bucket)
    assert named(database) == lying(folder)
    assert len(named(database)) == 4 - answered

    bucket.breaks_at = None
    apply_retention(database, NOW - KEPT, bucket)
    assert (named(database), lying(folder)) == (set(), set())


def test_a_process_that_dies_between_bytes_and_rows_leaves_rows_for_the_next_time(
    database: Database, folder: LocalBlobs, bucket: SlowStorage, monkeypatch: pytest.MonkeyPatch
):
    made(database, folder, b"one", b"two")

    def die(*given: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(retention, "delete_files", die)
        with pytest.raises(KeyboardInterrupt):
            apply_retention(database, NOW - KEPT, bucket)
    assert (len(named(database)), lying(folder)) == (2, set())

    apply_retention(database, NOW - KEPT, bucket)
    assert named(database) == set()


def test_a_file_whose_bytes_were_just_put_again_keeps_its_row_until_they_may_go(
    database: Database, folder: LocalBlobs, bucket: SlowStorage
):
    (sha256,) = made(database, folder, b"one", is_old=False)

    apply_retention(database, NOW - KEPT, bucket)
    assert named(database) == lying(folder) == {sha256.hex()}

    aged(folder, sha256)  # the row that was to come has not come
    apply_retention(database, NOW - KEPT, bucket)
    assert (named(database), lying(folder)) == (set(), set())


def test_the_last_two_rows_of_the_same_bytes_go_with_them_also_in_different_batches(
    database: Database, folder: LocalBlobs, bucket: SlowStorage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retention, "BATCH", 1)
    made(database, folder, b"same", b"same", b"other")

    apply_retention(database, NOW - KEPT, bucket)

    assert (named(database), lying(folder)) == (set(), set())


def test_a_row_stays_that_alone_names_its_bytes_since_another_was_deleted_meanwhile(
    database: Database, folder: LocalBlobs
):
    (sha256,) = made(database, folder, b"same")
    with database.transaction() as tx:
        upload = uploads.register(tx, TENANT, uploads.store_content(folder, "a.txt", "text/plain", b"same"))
        found = retention.find_unneeded_files(tx, (UUID(int=0), UUID(int=0)), first_id_at(NOW), NOW + KEPT)
        assert found.shared == {sha256}
        tx.execute(text("delete from files where id = :id"), id=upload.id)

        assert retention.delete_files(tx, found, []) == 0

    assert named(database) == {sha256.hex()}


def test_bytes_that_a_process_has_taken_aside_before_it_died_go_or_come_back(folder: LocalBlobs):
    old, young = folder.store(b"old"), folder.store(b"young")
    aged(folder, old)
    for sha256 in (old, young):
        place = folder.folder / sha256.hex()[:2] / sha256.hex()
        place.rename(place.with_name(f"{place.name}.0a1b2c3d"))

    assert (folder.discard(old), folder.discard(young)) == (True, False)

    assert lying(folder) == {young.hex()}
