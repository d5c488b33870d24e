"""Old runs leave by themselves: a week at a time, with what hangs on them, and without harm to what goes on."""

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

from scheduler.sweeper.maintenance import Retention, apply_retention, run_maintenance
from store.agents import conversations
from store.db.database import Database
from store.db.transaction import Transaction
from store.files.blobs import LocalBlobs
from store.maintenance import partitions
from store.primitives.ids import first_id_at, new_id
from store.primitives.weeks import Week
from store.runs import run_rows
from store.tenants import uploads
from tests.integration.store.rows import add_outputs, add_run

NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=60)
KEPT = timedelta(days=30)
TENANT, CANVAS, VERSION = new_id(), new_id(), new_id()

TOUCHED = text("update conversations set updated_at = :at, created_at = :at, last_run = :last where id = :id")
SAID = text("""
    insert into conversation_messages (conversation_id, number, run_id, role, content, activation_id, node_id)
    values (:id, :number, :run_id, :role, to_json(cast(:content as text)), :activation, :node)
""")
COUNT_FILES = text("select count(*) from files")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for one test alone: partitions belong to nobody."""
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

    run_maintenance(database, NOW, Retention(KEPT))

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is None
        assert conversations.page(tx, TENANT, CANVAS, conversations.ConversationFilter()) == ([], 0)
        assert conversations.list_messages(tx, TENANT, conversation) == []
        assert not any(name.startswith("runs_p") for name in _partitions_before(tx, NOW - KEPT))


def test_week_is_dropped_during_other_work_without_a_loss(database: Database):
    with database.transaction() as tx:
        _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
    ending, made, failures = Event(), list[UUID](), list[Exception]()

    def work() -> None:
        own = Database(database.url, pool_size=1)
        while not ending.is_set():
            try:
                with own.transaction() as tx:  # the tables in another order than ours
                    run_id = new_id()
                    add_outputs(tx, run_id, "Message:0", {"content": "Hi"})
                    add_run(tx, TENANT, run_id=run_id)
                    tx.scalar(text("select count(*) from runs where version_id = :id"), id=VERSION)
                made.append(run_id)
            except Exception as error:  # whatever it is, it must not be
                failures.append(error)
        own.close()

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while _left(database) and time.monotonic() < deadline:
        with suppress(OperationalError):  # somebody did not come to an end: it is tried again
            _let_go(database)
    ending.set()
    for thread in threads:
        thread.join()

    assert _left(database) == []
    assert failures == []
    with database.transaction() as tx:
        assert made
        assert all(run_rows.read(tx, TENANT, run_id) is not None for run_id in made)


def test_without_a_retention_everything_stays(database: Database):
    with database.transaction() as tx:
        _, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)

    run_maintenance(database, NOW)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is not None


def test_a_conversation_that_goes_on_keeps_what_was_said(database: Database):
    with database.transaction() as tx:
        conversation, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        latest = add_run(tx, TENANT, conversation_id=conversation)
        tx.execute(TOUCHED, id=conversation, at=NOW, last=latest)
        before = conversations.load_history(tx, conversation, 2, 2)

    _let_go(database)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is None
        assert run_rows.read(tx, TENANT, latest) is not None
        assert conversations.load_history(tx, conversation, 2, 2) == before
        assert before[1]["content"] == {"content": "Hi"}


def test_a_run_that_the_next_turn_begins_from_keeps_its_week(database: Database):
    with database.transaction() as tx:
        conversation, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        tx.execute(TOUCHED, id=conversation, at=NOW, last=run_id)  # its form was answered just now, say

    _let_go(database)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is not None
        assert conversations.get(tx, TENANT, conversation).last_run == run_id


def test_a_run_that_is_not_over_keeps_its_week_and_its_conversation(database: Database):
    with database.transaction() as tx:
        conversation, _ = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        waiting = add_run(tx, TENANT, run_id=_id_at(OLD), conversation_id=conversation, status="waiting")

    _let_go(database)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, waiting) is not None
        assert conversations.get(tx, TENANT, conversation).id == conversation


def test_runs_that_no_week_covers_go_by_the_same_rules(database: Database):
    ages_ago = OLD - timedelta(days=300)
    with database.transaction() as tx:
        _, gone = _conversation(tx, "Hello", {"content": "Hi"}, at=ages_ago)
        going_on, needed = _conversation(tx, "Hello", {"content": "Hi"}, at=ages_ago)
        tx.execute(TOUCHED, id=going_on, at=NOW, last=needed)

    _let_go(database)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, gone) is None
        assert run_rows.read(tx, TENANT, needed) is not None


def test_files_of_runs_go_with_them_unless_others_have_the_same_content(database: Database, blobs: LocalBlobs):
    with database.transaction() as tx:
        _, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        made = uploads.register(
            tx, TENANT, uploads.store_content(blobs, "report.pdf", "application/pdf", b"made"), run_id=run_id
        )
        uploads.register(tx, TENANT, uploads.store_content(blobs, "logo.png", "image/png", b"shared"), run_id=run_id)
        upload = uploads.register(tx, TENANT, uploads.store_content(blobs, "logo.png", "image/png", b"shared"))
    _age(blobs, made.sha256, upload.sha256)

    _let_go(database, blobs)

    with database.transaction() as tx:
        assert tx.scalar(COUNT_FILES) == 1
        assert blobs.get(uploads.get(tx, TENANT, upload.id).sha256) == b"shared"
    assert [path.name for path in blobs.folder.glob("*/*")] == [upload.sha256.hex()]


def test_a_file_stays_as_long_as_its_conversation(database: Database, blobs: LocalBlobs):
    with database.transaction() as tx:
        conversation, run_id = _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
        tx.execute(TOUCHED, id=conversation, at=NOW, last=None)
        made = uploads.register(
            tx, TENANT, uploads.store_content(blobs, "report.pdf", "application/pdf", b"made"), run_id=run_id
        )
    _age(blobs, made.sha256)

    _let_go(database, blobs)

    with database.transaction() as tx:
        assert run_rows.read(tx, TENANT, run_id) is None
        assert blobs.get(uploads.get(tx, TENANT, made.id).sha256) == b"made"


def test_bytes_that_were_put_again_a_moment_ago_are_not_deleted(blobs: LocalBlobs):
    sha256 = blobs.store(b"content")
    _age(blobs, sha256)
    blobs.store(b"content")  # its row is still to come

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

    _let_go(database, LocalBlobs(tmp_path / "elsewhere"))

    with database.transaction() as tx:
        assert tx.scalar(COUNT_FILES) == 1


def test_a_conversation_that_was_never_used_goes_in_its_time(database: Database):
    with database.transaction() as tx:
        old, young = (conversations.create(tx, TENANT, CANVAS, VERSION) for _ in range(2))
        tx.execute(TOUCHED, id=old, at=OLD, last=None)

    _let_go(database)

    with database.transaction() as tx:
        found, _ = conversations.page(tx, TENANT, CANVAS, conversations.ConversationFilter())
        assert [conversation.id for conversation in found] == [young]


def test_a_drop_that_was_broken_off_is_finished_the_next_time(database: Database):
    with database.transaction() as tx:
        _conversation(tx, "Hello", {"content": "Hi"}, at=OLD)
    with database.transaction() as tx:
        assert partitions.drop(tx, "runs", Week.of(OLD)) is not None

    _let_go(database)

    with database.transaction() as tx:
        assert _partitions_before(tx, NOW - KEPT) == []


def _conversation(tx: Transaction, query: str, answer: dict[str, str], *, at: datetime) -> tuple[UUID, UUID]:
    """A conversation of one turn, a while ago; it and its run."""
    conversation = conversations.create(tx, TENANT, CANVAS, VERSION)
    run_id = add_run(tx, TENANT, run_id=_id_at(at), conversation_id=conversation)
    activation = add_outputs(tx, run_id, "Message:0", answer)
    tx.execute(SAID, id=conversation, number=1, run_id=run_id, role="user", content=query, activation=None, node=None)
    tx.execute(
        SAID, id=conversation, number=2, run_id=run_id, role="assistant", content=None, activation=activation,
        node="Message:0",
    )  # fmt: skip
    tx.execute(TOUCHED, id=conversation, at=at, last=run_id)
    return conversation, run_id


def _id_at(moment: datetime) -> UUID:
    """An id as runs of that time have them."""
    return UUID(int=first_id_at(moment).int | new_id().int & (1 << 60) - 1)


def _let_go(database: Database, blobs: LocalBlobs | None = None) -> None:
    apply_retention(database, NOW - KEPT, blobs)


def _left(database: Database) -> list[str]:
    with database.transaction() as tx:
        return _partitions_before(tx, NOW - KEPT)


def _partitions_before(tx: Transaction, moment: datetime) -> list[str]:
    return [week.partition("runs") for week in partitions.weeks_ended_by(tx, moment)]


def _age(blobs: LocalBlobs, *hashes: bytes) -> None:
    """As if these bytes had been put two hours ago."""
    for sha256 in hashes:
        long_ago = time.time() - 7200
        os.utime(blobs.folder / sha256.hex()[:2] / sha256.hex(), (long_ago, long_ago))
