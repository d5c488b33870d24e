"""Retention of large values: their files are deleted with the week of their runs, and not before."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import delete, insert, select, text, update

from scheduler.sweeper.maintenance import Retention, run_maintenance
from store.agents import conversations
from store.db.database import Database
from store.files.blobs import LocalBlobs
from store.files.large_values import LargeValues
from store.maintenance import partitions
from store.primitives.ids import first_id_at, new_id
from store.primitives.weeks import Week
from store.tables.runs import node_values, runs
from store.tables.tenants import conversation_messages, tenants
from tests.integration.store.rows import add_run
from tests.integration.store.slow_storage import SlowStorage

NOW = datetime.now(UTC)
OLD, RETENTION_TIME = NOW - timedelta(days=60), timedelta(days=30)
TENANT, CANVAS, VERSION = new_id(), new_id(), new_id()
TEXT = "It was a dark and stormy night; " * 40_000
SET_LAST_USE = text("update conversations set updated_at = :at, last_run = :last, active_run = null where id = :id")


@pytest.fixture
def database(database_url: str, tmp_path: Path) -> Iterator[Database]:
    """A database for one test alone, with a storage beside it."""
    database = Database(database_url, large=LargeValues(LocalBlobs(tmp_path), stores_new=True))
    with database.transaction() as tx:
        tx.execute(insert(tenants), id=TENANT, name="ours")
        partitions.ensure(tx, OLD, weeks=0)
    yield database
    database.close()


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def a_run(
    database: Database,
    *,
    status: str = "succeeded",
    accepted_at: datetime = OLD,
    last_used: datetime = OLD,
    answer: str = TEXT,
) -> tuple[UUID, UUID]:
    """Create a run, by default of two months ago, with a large answer in its conversation; return the ids of both."""
    run_id = UUID(int=first_id_at(accepted_at).int | new_id().int & (1 << 60) - 1)
    row = {
        "run_id": run_id, "activation_id": new_id(), "node_id": "Message:0", "container_entry": "", "item": 0,
        "order_key": b"", "region": b"", "outputs": {"content": answer}, "inputs": {}, "names": ["content"],
    }  # fmt: skip
    with database.transaction() as tx:
        made = conversations.create(tx, TENANT, CANVAS, VERSION)
        add_run(tx, TENANT, run_id=run_id, conversation_id=made, status=status)
        tx.execute(insert(node_values), **database.large.values_row(TENANT, row))
        tx.execute(
            insert(conversation_messages),
            conversation_id=made,
            number=1,
            run_id=run_id,
            role="assistant",
            activation_id=row["activation_id"],
            node_id="Message:0",
        )
        tx.execute(SET_LAST_USE, id=made, at=last_used, last=None)
    return run_id, made


def test_files_of_a_week_are_deleted_with_it_including_files_without_a_row(database: Database, tmp_path: Path):
    run_id, _ = a_run(database)
    unreported = {"run_id": run_id, "outputs": {"never": f"reported {TEXT}"}, "inputs": {}}
    database.large.values_row(TENANT, unreported)  # its worker was killed before it could report
    young = database.large.values_row(TENANT, {**unreported, "run_id": new_id()})
    assert len(files_in(tmp_path)) == 3

    run_maintenance(database, NOW, Retention(RETENTION_TIME, database.large.blobs))

    assert len(files_in(tmp_path)) == 1
    assert database.large.outputs("work", young["outputs"], young["large"]) == unreported["outputs"]


def test_files_of_tenants_of_another_database_are_not_deleted(database: Database, tmp_path: Path):
    run_id, _ = a_run(database)
    database.large.values_row(new_id(), {"run_id": run_id, "outputs": {"theirs": TEXT}, "inputs": {}})

    run_maintenance(database, NOW, Retention(RETENTION_TIME, database.large.blobs))

    assert len(files_in(tmp_path)) == 1


def test_files_of_the_week_of_an_unfinished_run_are_not_deleted(database: Database, tmp_path: Path):
    a_run(database, status="waiting")

    run_maintenance(database, NOW, Retention(RETENTION_TIME, database.large.blobs))

    assert len(files_in(tmp_path)) == 1


@pytest.mark.parametrize(("status", "weeks_kept"), [("running", True), ("succeeded", False)])
def test_rows_of_a_source_stay_until_its_forks_are_over(database: Database, status: str, weeks_kept: bool):
    source, _ = a_run(database)
    a_fork(database, source, status)

    run_maintenance(database, NOW, Retention(RETENTION_TIME, database.large.blobs))

    with database.transaction() as tx:
        assert bool(tx.rows(select(node_values.c.run_id).where(node_values.c.run_id == source))) is weeks_kept


def test_files_of_a_source_stay_as_long_as_a_fork_shows_them(database: Database, tmp_path: Path):
    source, _ = a_run(database)
    copy = a_fork(database, source, "succeeded")

    run_maintenance(database, NOW, Retention(RETENTION_TIME, database.large.blobs))
    assert len(files_in(tmp_path)) == 1
    with database.transaction() as tx:
        tx.execute(delete(runs).where(runs.c.id == copy))
    run_maintenance(database, NOW, Retention(RETENTION_TIME, database.large.blobs))

    assert files_in(tmp_path) == []


def a_fork(database: Database, source: UUID, status: str) -> UUID:
    """Create a fork of today, which refers to the files of its source's week."""
    origin = {"kind": "fork", "run_id": source.hex, "weeks": [Week.of_run(source).name]}
    with database.transaction() as tx:
        copy = add_run(tx, TENANT, status=status)
        tx.execute(update(runs).where(runs.c.id == copy).values(source_run=source, origin=origin))
    return copy


def test_no_file_is_deleted_without_a_retention_time(database: Database, tmp_path: Path):
    a_run(database)

    run_maintenance(database, NOW)

    assert len(files_in(tmp_path)) == 1


def test_active_conversation_keeps_its_large_answers_when_their_files_are_deleted(database: Database, tmp_path: Path):
    run_id, conversation = a_run(database, last_used=NOW)

    run_maintenance(database, NOW, Retention(RETENTION_TIME, database.large.blobs))

    assert files_in(tmp_path) == []
    with database.transaction() as tx:
        assert not tx.rows(select(node_values.c.run_id).where(node_values.c.run_id == run_id))
        assert conversations.load_history(tx, conversation, 1, 1) == [
            {"role": "assistant", "content": {"content": TEXT}}
        ]


def test_large_answer_is_copied_into_its_own_message_only(database: Database):
    _, conversation = a_run(database, last_used=NOW)
    _, other = a_run(database, accepted_at=NOW, last_used=NOW, answer="It rained.")

    run_maintenance(database, NOW, Retention(RETENTION_TIME, database.large.blobs))

    with database.transaction() as tx:
        contents = [conversations.load_history(tx, each, 1, 1)[0]["content"] for each in (conversation, other)]
    assert contents == [{"content": TEXT}, {"content": "It rained."}]


def test_large_answers_are_read_from_storage_while_no_transaction_is_open(
    database_url: str, database: Database, tmp_path: Path
):
    _, conversation = a_run(database, last_used=NOW)
    a_run(database)  # of an unused conversation, whose answer is not read
    bucket = SlowStorage(LocalBlobs(tmp_path), database_url)
    slow = Database(database_url, large=LargeValues(bucket, stores_new=True))

    run_maintenance(slow, NOW, Retention(RETENTION_TIME, bucket))

    slow.close()
    assert files_in(tmp_path) == []
    assert (bucket.record.calls.count("get"), bucket.record.open) == (1, [])
    with database.transaction() as tx:
        assert conversations.load_history(tx, conversation, 1, 1)[0]["content"] == {"content": TEXT}


def test_large_answer_is_not_deleted_if_the_storage_is_unreachable(database: Database, tmp_path: Path):
    _, conversation = a_run(database, last_used=NOW)
    disconnected = Database(database.url, large=LargeValues(LocalBlobs(tmp_path / "elsewhere"), stores_new=True))

    run_maintenance(disconnected, NOW, Retention(RETENTION_TIME, disconnected.large.blobs))

    disconnected.close()
    assert len(files_in(tmp_path)) == 1
    with database.transaction() as tx:
        assert conversations.load_history(tx, conversation, 1, 1)[0]["content"] == {"content": TEXT}
