"""Drafts, their versions, and which of them may be deleted."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from canvas.errors import Conflict, NotAllowed, NotFound
from store.agents import canvases, conversations, versions
from store.agents.versions import MAX_UNRELEASED, Version, digest_of
from store.db.database import Database
from store.primitives.ids import new_id
from tests.integration.store.rows import add_run


def dsl(text: str = "Hi") -> dict[str, Any]:
    return {"components": {"begin": {"obj": {"component_name": "Begin", "params": {"prologue": text}}}}, "path": []}


def create(database: Database, tenant_id: UUID, title: str = "Support", **options: Any) -> UUID:
    with database.transaction() as tx:
        return canvases.create(tx, tenant_id, title, options.pop("dsl", dsl()), **options)


def update(database: Database, tenant_id: UUID, canvas_id: UUID, **changes: Any) -> None:
    with database.transaction() as tx:
        canvases.update(tx, tenant_id, canvas_id, **changes)


def all_versions(database: Database, tenant_id: UUID, canvas_id: UUID) -> list[Version]:
    with database.transaction() as tx:
        return versions.list_versions(tx, tenant_id, canvas_id)


# -- drafts -----------------------------------------------------------------------------------------------------------
def test_canvas_is_read_as_it_was_stored_including_the_order_of_keys(database: Database, tenant_id: UUID):
    document = {"z": 1, "components": {"b": {}, "a": {}}, "a": [2**70, 1.5, "é", None]}

    canvas_id = create(database, tenant_id, "  Support ", dsl=document, description="answers", avatar="data:…")

    with database.transaction() as tx:
        canvas = canvases.get(tx, tenant_id, canvas_id)
    assert (canvas.title, canvas.description, canvas.avatar) == ("Support", "answers", "data:…")
    assert list(canvas.draft) == ["z", "components", "a"]
    assert list(canvas.draft["components"]) == ["b", "a"]
    assert canvas.draft == document
    assert canvas.published_at is None


@pytest.mark.parametrize("title", ["Support", "SUPPORT", "  support  "])
def test_title_is_unique_per_tenant_and_category_regardless_of_case(
    database: Database, tenant_id: UUID, other_tenant_id: UUID, title: str
):
    create(database, tenant_id, "Support")

    with pytest.raises(Conflict, match=f"^{title.strip()} already exists.$"):
        create(database, tenant_id, title)

    create(database, tenant_id, title, canvas_category="dataflow_canvas")
    create(database, other_tenant_id, title)


def test_titles_that_differ_only_in_the_case_of_non_ascii_letters_are_refused(database: Database, tenant_id: UUID):
    create(database, tenant_id, "ärger")

    with pytest.raises(Conflict, match="ÄRGER already exists"):
        create(database, tenant_id, "ÄRGER")


def test_rename_to_an_existing_title_is_refused_and_changes_nothing(database: Database, tenant_id: UUID):
    create(database, tenant_id, "Support")
    canvas_id = create(database, tenant_id, "Sales")

    with database.transaction() as tx:
        with pytest.raises(Conflict, match="support already exists"):
            canvases.update(tx, tenant_id, canvas_id, title="support", dsl=dsl("changed"))
        canvas = canvases.get(tx, tenant_id, canvas_id)

    assert canvas.title == "Sales"
    assert canvas.draft == dsl()


def test_update_changes_only_the_given_fields(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id, description="answers", permission="team")

    update(database, tenant_id, canvas_id, title=" Sales ", avatar="data:…")

    with database.transaction() as tx:
        canvas = canvases.get(tx, tenant_id, canvas_id)
    assert (canvas.title, canvas.description, canvas.avatar, canvas.permission) == (
        "Sales",
        "answers",
        "data:…",
        "team",
    )
    assert canvas.draft == dsl()
    assert canvas.updated_at > canvas.created_at


def test_canvas_of_another_tenant_is_indistinguishable_from_a_missing_one(
    database: Database, tenant_id: UUID, other_tenant_id: UUID
):
    canvas_id = create(database, tenant_id)
    (version,) = all_versions(database, tenant_id, canvas_id)

    with database.transaction() as tx:
        for canvas in (canvas_id, new_id()):
            with pytest.raises(NotFound, match="canvas not found"):
                canvases.get(tx, other_tenant_id, canvas)
            with pytest.raises(NotFound, match="canvas not found"):
                canvases.update(tx, other_tenant_id, canvas, dsl=dsl("mine now"))
            with pytest.raises(NotFound, match="canvas not found"):
                canvases.publish(tx, other_tenant_id, canvas)
            with pytest.raises(NotFound, match="canvas not found"):
                canvases.delete(tx, other_tenant_id, canvas)
            with pytest.raises(NotFound, match="canvas not found"):
                versions.lock_draft_version(tx, other_tenant_id, canvas)
            with pytest.raises(NotFound, match="Version not found"):
                versions.lock_by_id(tx, other_tenant_id, canvas, version.id)
            with pytest.raises(NotFound, match="Version not found"):
                versions.delete(tx, other_tenant_id, canvas, version.id, force=True)
            assert versions.list_versions(tx, other_tenant_id, canvas) == []


# -- versions ---------------------------------------------------------------------------------------------------------
def test_a_new_canvas_has_one_unreleased_version_named_after_tenant_title_and_time(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id, "Support")

    (version,) = all_versions(database, tenant_id, canvas_id)

    with database.transaction() as tx:
        owner = canvases.get(tx, tenant_id, canvas_id).owner
    assert version.title.startswith(f"{owner}_Support_20")
    assert not version.released
    assert version.digest == digest_of(dsl())


def test_saving_the_same_document_again_keeps_the_version_and_its_title(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id)
    (first,) = all_versions(database, tenant_id, canvas_id)

    update(database, tenant_id, canvas_id, dsl=dsl(), title="Renamed")

    (again,) = all_versions(database, tenant_id, canvas_id)
    assert (again.id, again.title, again.created_at) == (first.id, first.title, first.created_at)
    assert again.updated_at > first.updated_at


def test_saving_another_document_makes_a_version_and_leaves_the_first_as_it_was(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id)
    (first,) = all_versions(database, tenant_id, canvas_id)

    update(database, tenant_id, canvas_id, dsl=dsl("Hello"))

    newest, oldest = all_versions(database, tenant_id, canvas_id)
    assert oldest == first
    with database.transaction() as tx:
        assert versions.get(tx, newest.id).dsl == dsl("Hello")
        assert versions.get(tx, oldest.id).dsl == dsl()


def test_changing_only_a_title_makes_no_version(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id)
    before = all_versions(database, tenant_id, canvas_id)

    update(database, tenant_id, canvas_id, title="Renamed")

    assert all_versions(database, tenant_id, canvas_id) == before


def test_a_release_is_never_changed_by_a_save_that_does_not_release(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id, release=True)
    (released,) = all_versions(database, tenant_id, canvas_id)

    update(database, tenant_id, canvas_id, dsl=dsl())
    update(database, tenant_id, canvas_id, dsl=dsl())

    saved, untouched = all_versions(database, tenant_id, canvas_id)
    assert untouched == released
    assert not saved.released


def test_publishing_releases_the_version_of_the_draft(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id)
    (saved,) = all_versions(database, tenant_id, canvas_id)

    with database.transaction() as tx:
        published = canvases.publish(tx, tenant_id, canvas_id, title="Spring", description="first")

    assert (published.id, published.title, published.description) == (saved.id, "Spring", "first")
    assert published.released
    with database.transaction() as tx:
        canvas = canvases.get(tx, tenant_id, canvas_id)
        assert versions.lock_latest_released(tx, tenant_id, canvas_id) == published
    assert canvas.release
    assert canvas.published_at == published.updated_at


def test_publishing_a_document_makes_it_the_draft_and_keeps_the_old_draft_as_a_version(
    database: Database, tenant_id: UUID
):
    canvas_id = create(database, tenant_id)

    with database.transaction() as tx:
        published = canvases.publish(tx, tenant_id, canvas_id, dsl=dsl("from elsewhere"))

    with database.transaction() as tx:
        assert canvases.get(tx, tenant_id, canvas_id).draft == published.dsl == dsl("from elsewhere")
    digests = [version.digest for version in all_versions(database, tenant_id, canvas_id)]
    assert digests == [digest_of(dsl("from elsewhere")), digest_of(dsl())]


def test_update_without_release_clears_the_release_flag_but_not_the_release(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id, release=True)

    update(database, tenant_id, canvas_id, dsl=dsl("next"))

    with database.transaction() as tx:
        canvas = canvases.get(tx, tenant_id, canvas_id)
        assert versions.lock_latest_released(tx, tenant_id, canvas_id).dsl == dsl()
    assert not canvas.release
    assert canvas.published_at is not None


def test_without_a_release_there_is_no_published_version(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id)

    with pytest.raises(NotFound, match="No available published version"), database.transaction() as tx:
        versions.lock_latest_released(tx, tenant_id, canvas_id)


def test_a_draft_runs_as_the_version_that_equals_it_even_if_that_one_is_old(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id, dsl=dsl("one"))
    (one,) = all_versions(database, tenant_id, canvas_id)
    update(database, tenant_id, canvas_id, dsl=dsl("two"))
    with database.transaction() as tx:
        tx.execute(text("update canvases set draft = (select dsl from versions where id = :one)"), one=one.id)

    with database.transaction() as tx:
        snapshot = versions.lock_draft_version(tx, tenant_id, canvas_id)

    assert snapshot.id == one.id
    assert snapshot.dsl == dsl("one")


def test_concurrent_runs_of_a_draft_without_a_version_create_one_version(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id)
    (version,) = all_versions(database, tenant_id, canvas_id)
    with database.transaction() as tx:
        versions.delete(tx, tenant_id, canvas_id, version.id)

    with ThreadPoolExecutor(1) as elsewhere, database.transaction() as tx:
        snapshot = versions.lock_draft_version(tx, tenant_id, canvas_id)
        another = elsewhere.submit(_snapshot, database, tenant_id, canvas_id)
        _wait_until(lambda: another.done() or _a_transaction_waits(database))

    assert another.result() == snapshot.id
    assert [version.id for version in all_versions(database, tenant_id, canvas_id)] == [snapshot.id]


def test_latest_version_may_be_unreleased(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id, release=True)
    update(database, tenant_id, canvas_id, dsl=dsl("next"))

    with database.transaction() as tx:
        latest = versions.lock_latest(tx, tenant_id, canvas_id)

    assert latest.dsl == dsl("next")


def test_a_version_of_another_canvas_is_not_found(database: Database, tenant_id: UUID):
    canvas_id, other_id = create(database, tenant_id, "one"), create(database, tenant_id, "other")
    (version,) = all_versions(database, tenant_id, other_id)

    with pytest.raises(NotFound, match="Version not found"), database.transaction() as tx:
        versions.lock_by_id(tx, tenant_id, canvas_id, version.id)


# -- retained versions ------------------------------------------------------------------------------------------------
def test_newest_20_unreleased_versions_and_all_referenced_ones_are_retained(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id, dsl=dsl("released"), release=True)
    for number in range(3):
        update(database, tenant_id, canvas_id, dsl=dsl(f"early {number}"))
    *_, unused, in_session, in_run, released = _by_age(database, tenant_id, canvas_id)
    with database.transaction() as tx:
        add_run(tx, tenant_id, version_id=in_run.id)
        conversations.create(tx, tenant_id, canvas_id, in_session.id)

    for number in range(MAX_UNRELEASED):
        update(database, tenant_id, canvas_id, dsl=dsl(f"late {number}"))

    retained = [version.id for version in _by_age(database, tenant_id, canvas_id)]
    assert unused.id not in retained
    assert retained[MAX_UNRELEASED:] == [in_session.id, in_run.id, released.id]


def test_version_of_a_run_that_is_starting_is_not_deleted(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id, dsl=dsl("old"))
    (old,) = all_versions(database, tenant_id, canvas_id)

    with database.transaction() as starting:
        versions.lock_by_id(starting, tenant_id, canvas_id, old.id)
        for number in range(MAX_UNRELEASED + 1):
            update(database, tenant_id, canvas_id, dsl=dsl(f"new {number}"))
        add_run(starting, tenant_id, version_id=old.id)

    update(database, tenant_id, canvas_id, dsl=dsl("one more"))
    assert old.id in [version.id for version in all_versions(database, tenant_id, canvas_id)]


def test_deletion_of_a_canvas_waits_for_a_run_that_is_starting(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id)

    with database.transaction() as starting:
        versions.lock_draft_version(starting, tenant_id, canvas_id)
        with database.transaction() as deleting:
            deleting.execute(text("set local lock_timeout = '50ms'"))
            with pytest.raises(OperationalError, match="lock timeout"), deleting.savepoint():
                canvases.delete(deleting, tenant_id, canvas_id)


def test_deletion_of_a_canvas_deletes_its_sessions_and_versions_except_those_of_runs(
    database: Database, tenant_id: UUID
):
    canvas_id = create(database, tenant_id, release=True)
    update(database, tenant_id, canvas_id, dsl=dsl("next"))
    newest, released = all_versions(database, tenant_id, canvas_id)
    with database.transaction() as tx:
        conversation_id = conversations.create(tx, tenant_id, canvas_id, newest.id)
        add_run(tx, tenant_id, version_id=released.id)

    with database.transaction() as tx:
        canvases.delete(tx, tenant_id, canvas_id)

    with database.transaction() as tx:
        with pytest.raises(NotFound):
            conversations.get(tx, tenant_id, conversation_id)
        with pytest.raises(NotFound):
            canvases.get(tx, tenant_id, canvas_id)
        assert versions.get(tx, released.id).dsl == dsl()
        with pytest.raises(NotFound):
            versions.get(tx, newest.id)


def test_versions_of_a_deleted_canvas_are_deleted_after_their_last_run(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id)
    (version,) = all_versions(database, tenant_id, canvas_id)
    with database.transaction() as tx:
        run_id = add_run(tx, tenant_id, version_id=version.id)
        canvases.delete(tx, tenant_id, canvas_id)

    with database.transaction() as tx:
        versions.delete_orphans(tx)
        assert versions.get(tx, version.id)
        tx.execute(text("delete from runs where id = :id"), id=run_id)
        assert versions.delete_orphans(tx) == 1

    with pytest.raises(NotFound), database.transaction() as tx:
        versions.get(tx, version.id)


@pytest.mark.parametrize("use", ["latest release", "run", "session"])
def test_a_version_in_use_is_deleted_only_by_force(database: Database, tenant_id: UUID, use: str):
    canvas_id = create(database, tenant_id, release=use == "latest release")
    (version,) = all_versions(database, tenant_id, canvas_id)
    with database.transaction() as tx:
        if use == "run":
            add_run(tx, tenant_id, version_id=version.id)
        if use == "session":
            conversations.create(tx, tenant_id, canvas_id, version.id)

    with pytest.raises(NotAllowed), database.transaction() as tx:
        versions.delete(tx, tenant_id, canvas_id, version.id)
    with database.transaction() as tx:
        versions.delete(tx, tenant_id, canvas_id, version.id, force=True)

    assert all_versions(database, tenant_id, canvas_id) == []


@pytest.mark.parametrize("use", ["run", "session"])
def test_version_deleted_by_force_is_hidden_but_readable_while_it_is_referenced(
    database: Database, tenant_id: UUID, use: str
):
    canvas_id = create(database, tenant_id, dsl=dsl("secret"), release=True)
    (version,) = all_versions(database, tenant_id, canvas_id)
    with database.transaction() as tx:
        if use == "run":
            user_id = add_run(tx, tenant_id, version_id=version.id)
        else:
            user_id = conversations.create(tx, tenant_id, canvas_id, version.id)
    with database.transaction() as tx:
        versions.delete(tx, tenant_id, canvas_id, version.id, force=True)

    with database.transaction() as tx:
        assert versions.get(tx, version.id).dsl == dsl("secret")
        assert versions.delete_orphans(tx) == 0
        with pytest.raises(NotFound):
            versions.lock_by_id(tx, tenant_id, canvas_id, version.id)
        with pytest.raises(NotFound):
            versions.lock_latest_released(tx, tenant_id, canvas_id)
        fresh = versions.lock_draft_version(tx, tenant_id, canvas_id)
        assert fresh.id != version.id
    with database.transaction() as tx:
        tx.execute(text("delete from runs where id = :id"), id=user_id)
        tx.execute(text("delete from conversations where id = :id"), id=user_id)
        assert versions.delete_orphans(tx) == 1
        assert [version.id for version in versions.list_versions(tx, tenant_id, canvas_id)] == [fresh.id]


def test_an_earlier_release_may_be_deleted(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id, release=True)
    update(database, tenant_id, canvas_id, dsl=dsl("next"), release=True)
    newest, earlier = all_versions(database, tenant_id, canvas_id)

    with database.transaction() as tx:
        versions.delete(tx, tenant_id, canvas_id, earlier.id)

    assert all_versions(database, tenant_id, canvas_id) == [newest]


def test_version_of_an_unfinished_run_cannot_be_deleted_even_by_force(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id)
    (version,) = all_versions(database, tenant_id, canvas_id)
    with database.transaction() as tx:
        add_run(tx, tenant_id, version_id=version.id, status="waiting")

    with pytest.raises(NotAllowed, match="not over"), database.transaction() as tx:
        versions.delete(tx, tenant_id, canvas_id, version.id, force=True)


def _snapshot(database: Database, tenant_id: UUID, canvas_id: UUID) -> UUID:
    with database.transaction() as tx:
        return versions.lock_draft_version(tx, tenant_id, canvas_id).id


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _a_transaction_waits(database: Database) -> bool:
    waiting = (
        "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())"
    )
    with database.transaction() as tx:
        return tx.scalar(text(waiting))


def _by_age(database: Database, tenant_id: UUID, canvas_id: UUID) -> list[Version]:
    retained = all_versions(database, tenant_id, canvas_id)
    return sorted(retained, key=lambda version: version.created_at, reverse=True)
