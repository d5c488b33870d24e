"""Retention: old runs are deleted week by week, with their data and without harm to other work."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from canvas.ids import RunId
from scheduler.sweeper.maintenance import Retention, apply_retention, run_maintenance
from store.agents import conversations
from store.db.database import Database
from store.db.transaction import Transaction
from store.files.blobs import LocalBlobs
from store.maintenance import partitions
from store.primitives.ids import first_id_at, new_id
from store.primitives.weeks import Week
from store.runs import model_calls, run_rows
from store.runs.model_calls import CallBatch, CallRow
from store.tables.runs import PARTITIONED
from store.tenants import uploads
from tests.integration.store.rows import add_outputs, add_run

NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=60)
RETENTION_TIME = timedelta(days=30)
TENANT, CANVAS, VERSION = new_id(), new_id(), new_id()

SET_LAST_USE = text("update conversations set updated_at = :at, created_at = :at, last_run = :last where id = :id")
ADD_MESSAGE = text("""
    insert into conversation_messages (conversation_id, number, run_id, role, content, activation_id, node_id)
    values (:id, :number, :run_id, :role, to_json(cast(:content as text)), :activation, :node)
""")
COUNT_FILES = text("select count(*) from files")
SET_CREATION_TIME = text("update files set created_at = :created_at where id = :id")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for one test alone, since all runs share its partitions."""
    database = Database(database_url)
    with database.transaction() as tx:
        partitions.ensure(tx, OLD, weeks=0)
    yield database
    database.close()


@pytest.fixture
def blobs(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path)


def test_unused_conversation_is_deleted_with_its_runs(database: Database):
    with database.transaction() as tx:
        conversation, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)

    run_maintenance(database, NOW, Retention(RETENTION_TIME))

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is None
        assert conversations.page(tx, TENANT, CANVAS, conversations.ConversationFilter()) == ([], 0)
        assert conversations.list_messages(tx, TENANT, conversation) == []
        assert not any(name.startswith("runs_p") for name in _partitions_before(tx, NOW - RETENTION_TIME))


def test_week_is_dropped_during_other_work_without_a_loss(database: Database):
    with database.transaction() as tx:
        _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
    ending, made, failures = Event(), list[UUID](), list[Exception]()

    def work() -> None:
        own = Database(database.url, pool_size=1)
        while not ending.is_set():
            try:
                with own.transaction() as tx:  # in another order of tables than retention
                    run_id = new_id()
                    add_outputs(tx, run_id, "Message:0", {"content": "Hi"})
                    add_run(tx, TENANT, run_id=run_id)
                    tx.scalar(text("select count(*) from runs where version_id = :id"), id=VERSION)
                made.append(run_id)
            except Exception as error:  # any error fails the test
                failures.append(error)
        own.close()

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while _remaining_partitions(database) and time.monotonic() < deadline:
        with suppress(OperationalError):  # a transaction was open for too long: try again
            _apply_retention(database)
    ending.set()
    for thread in threads:
        thread.join()

    assert _remaining_partitions(database) == []
    assert failures == []
    with database.transaction() as tx:
        assert made
        assert all(run_rows.read(tx, TENANT, run_id) is not None for run_id in made)


def test_nothing_is_deleted_without_a_retention_time(database: Database):
    with database.transaction() as tx:
        _, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)

    run_maintenance(database, NOW)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is not None


def test_active_conversation_keeps_its_messages_when_its_old_runs_are_deleted(database: Database):
    with database.transaction() as tx:
        conversation, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        latest = add_run(tx, TENANT, conversation_id=conversation)
        tx.execute(SET_LAST_USE, id=conversation, at=NOW, last=latest)
        before = conversations.load_history(tx, conversation, 2, 2)

    _apply_retention(database)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is None
        assert run_rows.read(tx, TENANT, latest) is not None
        assert conversations.load_history(tx, conversation, 2, 2) == before
        assert before[1]["content"] == {"content": "Hi"}


def test_week_of_the_last_run_of_an_active_conversation_is_not_dropped(database: Database):
    with database.transaction() as tx:
        conversation, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        tx.execute(SET_LAST_USE, id=conversation, at=NOW, last=run_id)  # for example, its form was answered just now

    _apply_retention(database)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is not None
        assert conversations.get(tx, TENANT, conversation).last_run == run_id


def test_week_and_conversation_of_an_unfinished_run_are_not_deleted(database: Database):
    with database.transaction() as tx:
        conversation, _ = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        waiting = add_run(tx, TENANT, run_id=_id_at(OLD), conversation_id=conversation, status="waiting")

    _apply_retention(database)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, waiting) is not None
        assert conversations.get(tx, TENANT, conversation).id == conversation


def test_runs_outside_of_any_weekly_partition_are_deleted_by_the_same_rules(database: Database):
    ages_ago = OLD - timedelta(days=300)
    with database.transaction() as tx:
        _, gone = _conversation(tx, "Hello", {"content": "Hi"}, at=ages_ago)
        active, needed = _conversation(tx, "Hello", {"content": "Hi"}, at=ages_ago)
        tx.execute(SET_LAST_USE, id=active, at=NOW, last=needed)

    _apply_retention(database)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, gone) is None
        assert run_rows.read(tx, TENANT, needed) is not None


def test_files_of_deleted_runs_are_deleted_unless_other_files_have_the_same_content(
    database: Database, blobs: LocalBlobs
):
    with database.transaction() as tx:
        _, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        made = uploads.register(
            tx, TENANT, uploads.store_content(blobs, "report.pdf", "application/pdf", b"made"), run_id=run_id
        )
        uploads.register(tx, TENANT, uploads.store_content(blobs, "logo.png", "image/png", b"shared"), run_id=run_id)
        upload = uploads.register(tx, TENANT, uploads.store_content(blobs, "logo.png", "image/png", b"shared"))
    _age(blobs, made.sha256, upload.sha256)

    _apply_retention(database, blobs)

    with database.transaction() as tx:
        assert tx.scalar(COUNT_FILES) == 1
        assert blobs.get(uploads.get(tx, TENANT, upload.id).sha256) == b"shared"
    assert [path.name for path in blobs.folder.glob("*/*")] == [upload.sha256.hex()]


@pytest.mark.parametrize(("id_time", "is_deleted"), [(NOW, False), (NOW + timedelta(days=30), True)])
def test_old_file_of_a_missing_run_is_deleted_only_if_the_id_of_the_run_has_a_time_in_the_far_future(
    database: Database, blobs: LocalBlobs, id_time: datetime, is_deleted: bool
):
    content = uploads.store_content(blobs, "a.pdf", "application/pdf", b"made")
    with database.transaction() as tx:
        made = uploads.register(tx, TENANT, content, run_id=_id_at(id_time))
        tx.execute(SET_CREATION_TIME, id=made.id, created_at=OLD)
    _age(blobs, made.sha256)

    _apply_retention(database, blobs)

    with database.transaction() as tx:
        assert tx.scalar(COUNT_FILES) == (0 if is_deleted else 1)


def test_log_line_of_a_retention_names_the_dropped_partitions(database: Database):
    with database.transaction() as tx:
        _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)

    with capture_logs() as logs:
        _apply_retention(database)

    (applied,) = [line for line in logs if line["event"] == "retention_applied"]
    assert applied["partitions"] == [Week.of(OLD).partition(table) for table in PARTITIONED]


def test_file_is_not_deleted_before_its_conversation(database: Database, blobs: LocalBlobs):
    with database.transaction() as tx:
        conversation, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        tx.execute(SET_LAST_USE, id=conversation, at=NOW, last=None)
        made = uploads.register(
            tx, TENANT, uploads.store_content(blobs, "report.pdf", "application/pdf", b"made"), run_id=run_id
        )
    _age(blobs, made.sha256)

    _apply_retention(database, blobs)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is None
        assert blobs.get(uploads.get(tx, TENANT, made.id).sha256) == b"made"


def test_blob_that_was_stored_again_recently_is_not_deleted(blobs: LocalBlobs):
    sha256 = blobs.store(b"content")
    _age(blobs, sha256)
    blobs.store(b"content")  # its row is not written yet

    assert not blobs.discard(sha256)

    assert blobs.get(sha256) == b"content"


def test_rows_of_files_remain_if_the_storage_is_unreachable(database: Database, tmp_path: Path):
    with database.transaction() as tx:
        _, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        uploads.register(
            tx,
            TENANT,
            uploads.store_content(LocalBlobs(tmp_path), "report.pdf", "application/pdf", b"made"),
            run_id=run_id,
        )

    _apply_retention(database, LocalBlobs(tmp_path / "elsewhere"))

    with database.transaction() as tx:
        assert tx.scalar(COUNT_FILES) == 1


def test_old_conversation_without_runs_is_deleted(database: Database):
    with database.transaction() as tx:
        old, young = (conversations.create(tx, TENANT, CANVAS, VERSION) for _ in range(2))
        tx.execute(SET_LAST_USE, id=old, at=OLD, last=None)

    _apply_retention(database)

    with database.transaction() as tx:
        found, _ = conversations.page(tx, TENANT, CANVAS, conversations.ConversationFilter())
        assert [conversation.id for conversation in found] == [young]


def test_interrupted_drop_of_a_week_is_completed_by_the_next_retention(database: Database):
    with database.transaction() as tx:
        _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
    with database.transaction() as tx:
        assert partitions.drop(tx, "runs", Week.of(OLD)) is not None

    _apply_retention(database)

    with database.transaction() as tx:
        assert _partitions_before(tx, NOW - RETENTION_TIME) == []


def _conversation(tx: Transaction, query: str, answer: dict[str, str], *, at: datetime) -> tuple[UUID, UUID]:
    """Create a conversation of one turn at that time; return its id and the id of its run."""
    conversation = conversations.create(tx, TENANT, CANVAS, VERSION)
    run_id = add_run(tx, TENANT, run_id=_id_at(at), conversation_id=conversation)
    activation = add_outputs(tx, run_id, "Message:0", answer)
    tx.execute(
        ADD_MESSAGE, id=conversation, number=1, run_id=run_id, role="user", content=query, activation=None, node=None
    )
    tx.execute(
        ADD_MESSAGE, id=conversation, number=2, run_id=run_id, role="assistant", content=None, activation=activation,
        node="Message:0",
    )  # fmt: skip
    tx.execute(SET_LAST_USE, id=conversation, at=at, last=run_id)
    return conversation, run_id


def _id_at(moment: datetime) -> UUID:
    """Return an id of a run of that time."""
    return UUID(int=first_id_at(moment).int | new_id().int & (1 << 60) - 1)


def _apply_retention(database: Database, blobs: LocalBlobs | None = None) -> None:
    apply_retention(database, NOW - RETENTION_TIME, blobs)


def _remaining_partitions(database: Database) -> list[str]:
    with database.transaction() as tx:
        return _partitions_before(tx, NOW - RETENTION_TIME)


def _partitions_before(tx: Transaction, moment: datetime) -> list[str]:
    return [week.partition("runs") for week in partitions.weeks_ended_by(tx, moment)]


def _age(blobs: LocalBlobs, *hashes: bytes) -> None:
    """Set the times of these blobs to two hours ago."""
    for sha256 in hashes:
        long_ago = time.time() - 7200
        os.utime(blobs.folder / sha256.hex()[:2] / sha256.hex(), (long_ago, long_ago))


# -- model calls -----------------------------------------------------------------------------------------------------
CALLS_LEFT = text("select count(*) from model_calls")
PARTS_LEFT = text("select count(*) from call_parts")


def test_model_calls_are_deleted_after_their_own_retention_while_their_runs_stay(database: Database):  # T144
    with database.transaction() as tx:
        run_id = add_run(tx, TENANT, run_id=first_id_at(OLD))
        open_run = add_run(tx, TENANT, run_id=first_id_at(OLD + timedelta(seconds=1)), status="waiting")
        recent = add_run(tx, TENANT, run_id=first_id_at(NOW))
        for each in (run_id, open_run, recent):
            _add_call(tx, each, first_id_at(OLD if each != recent else NOW))

    run_maintenance(database, NOW, None, timedelta(days=30))

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is not None
        assert (tx.scalar(CALLS_LEFT), tx.scalar(PARTS_LEFT)) == (1, 1)
        left = [
            name for name in _partitions_before(tx, NOW - timedelta(days=30)) if name.startswith(("model_", "call_"))
        ]
        assert left == []


def test_call_of_an_old_run_is_deleted_by_its_own_age(database: Database):
    """A run that waited for weeks goes on after its week of calls was dropped."""
    with database.transaction() as tx:
        run_id = add_run(tx, TENANT, run_id=first_id_at(OLD), status="running")
        _add_call(tx, run_id, first_id_at(OLD))
    run_maintenance(database, NOW, None, timedelta(days=30))
    with database.transaction() as tx:
        _add_call(tx, run_id, first_id_at(NOW))

    run_maintenance(database, NOW, None, timedelta(days=30))
    with database.transaction() as tx:
        assert (tx.scalar(CALLS_LEFT), tx.scalar(PARTS_LEFT)) == (1, 1)

    run_maintenance(database, NOW + timedelta(days=31), None, timedelta(days=30))
    with database.transaction() as tx:
        assert (tx.scalar(CALLS_LEFT), tx.scalar(PARTS_LEFT)) == (0, 0)


def test_statements_about_old_runs_name_their_week_after_its_calls_were_deleted(database: Database):
    with database.transaction() as tx:
        run_id = add_run(tx, TENANT, run_id=first_id_at(OLD))
        _add_call(tx, run_id, first_id_at(OLD))
    run_maintenance(database, NOW, None, timedelta(days=30))
    database.pruning.invalidate()

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is not None
        assert model_calls.list_calls(tx, TENANT, run_id) == []
    assert database.pruning.partition_of(run_id) == f"p{Week.of(OLD).name}"


def _add_call(tx: Transaction, run_id: UUID, call_id: UUID) -> None:
    row = CallRow(
        call_id, new_id(), 1, None, "chat", "m", "a", 0.0, None, 0.0, "ok", None, 1, 0, {}, '{"messages": []}', None
    )
    model_calls.write(tx, RunId(run_id), [CallBatch((), [row], {new_id(): "{}"})])
