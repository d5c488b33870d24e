"""Files of large values go with the week of their runs, and not before."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import insert, select, text

from scheduler.sweeper.maintenance import Retention, run_maintenance
from store.agents import conversations
from store.db.database import Database
from store.files.blobs import LocalBlobs
from store.files.large_values import LargeValues
from store.maintenance import partitions
from store.primitives.ids import first_id_at, new_id
from store.tables.runs import node_values
from store.tables.tenants import conversation_messages, tenants
from tests.integration.store.rows import add_run
from tests.integration.store.slow_storage import SlowStorage

NOW = datetime.now(UTC)
OLD, KEPT = NOW - timedelta(days=60), timedelta(days=30)
TENANT, CANVAS, VERSION = new_id(), new_id(), new_id()
TEXT = "It was a dark and stormy night; " * 40_000
TOUCHED = text("update conversations set updated_at = :at, last_run = :last, active_run = null where id = :id")


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


def a_run(database: Database, *, status: str = "succeeded", touched: datetime = OLD) -> tuple[UUID, UUID]:
    """A run of two months ago with a large answer in its conversation; both."""
    run_id = UUID(int=first_id_at(OLD).int | new_id().int & (1 << 60) - 1)
    row = {
        "run_id": run_id, "activation_id": new_id(), "node_id": "Message:0", "pass_of": "", "item": 0, "place": b"",
        "region": b"", "outputs": {"content": TEXT}, "inputs": {}, "names": ["content"],
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
        tx.execute(TOUCHED, id=made, at=touched, last=None)
    return run_id, made


def test_files_go_with_their_week_also_those_that_no_row_has_ever_named(database: Database, tmp_path: Path):
    run_id, _ = a_run(database)
    died = {"run_id": run_id, "outputs": {"never": f"reported {TEXT}"}, "inputs": {}}
    database.large.values_row(TENANT, died)  # its worker was killed before it could report
    young = database.large.values_row(TENANT, {**died, "run_id": new_id()})
    assert len(files_in(tmp_path)) == 3

    run_maintenance(database, NOW, Retention(KEPT, database.large.blobs))

    assert len(files_in(tmp_path)) == 1
    assert database.large.outputs("work", young["outputs"], young["large"]) == died["outputs"]


def test_files_of_tenants_that_only_another_database_knows_stay(database: Database, tmp_path: Path):
    run_id, _ = a_run(database)
    database.large.values_row(new_id(), {"run_id": run_id, "outputs": {"theirs": TEXT}, "inputs": {}})

    run_maintenance(database, NOW, Retention(KEPT, database.large.blobs))

    assert len(files_in(tmp_path)) == 1


def test_a_run_that_is_not_over_keeps_the_files_of_its_week(database: Database, tmp_path: Path):
    a_run(database, status="waiting")

    run_maintenance(database, NOW, Retention(KEPT, database.large.blobs))

    assert len(files_in(tmp_path)) == 1


def test_without_a_retention_every_file_stays(database: Database, tmp_path: Path):
    a_run(database)

    run_maintenance(database, NOW)

    assert len(files_in(tmp_path)) == 1


def test_a_conversation_that_goes_on_keeps_its_long_answers_when_their_files_go(database: Database, tmp_path: Path):
    run_id, conversation = a_run(database, touched=NOW)

    run_maintenance(database, NOW, Retention(KEPT, database.large.blobs))

    assert files_in(tmp_path) == []
    with database.transaction() as tx:
        assert not tx.rows(select(node_values.c.run_id).where(node_values.c.run_id == run_id))
        assert conversations.load_history(tx, conversation, 1, 1) == [
            {"role": "assistant", "content": {"content": TEXT}}
        ]


def test_long_answers_are_moved_while_no_transaction_is_open(database_url: str, database: Database, tmp_path: Path):
    _, conversation = a_run(database, touched=NOW)
    a_run(database)  # of a conversation that goes: nobody reads its answer
    bucket = SlowStorage(LocalBlobs(tmp_path), database_url)
    slow = Database(database_url, large=LargeValues(bucket, stores_new=True))

    run_maintenance(slow, NOW, Retention(KEPT, bucket))

    slow.close()
    assert files_in(tmp_path) == []
    assert (bucket.record.calls.count("get"), bucket.record.open) == (1, [])
    with database.transaction() as tx:
        assert conversations.load_history(tx, conversation, 1, 1)[0]["content"] == {"content": TEXT}


def test_a_sweeper_that_does_not_see_the_storage_lets_no_long_answer_go(database: Database, tmp_path: Path):
    _, conversation = a_run(database, touched=NOW)
    blind = Database(database.url, large=LargeValues(LocalBlobs(tmp_path / "elsewhere"), stores_new=True))

    run_maintenance(blind, NOW, Retention(KEPT, blind.large.blobs))

    blind.close()
    assert len(files_in(tmp_path)) == 1
    with database.transaction() as tx:
        assert conversations.load_history(tx, conversation, 1, 1)[0]["content"] == {"content": TEXT}
