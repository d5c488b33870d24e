"""Versions and agents that are deleted while a run of them is starting or active."""

from dataclasses import replace
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import text

from canvas.errors import NotAllowed, NotFound
from scheduler.coordinator.run_start import RunRequest
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle import lifecycle
from scheduler.lifecycle.lifecycle import RunNotFound
from scheduler.sweeper.sweeper import Sweeper
from store.agents import canvases, conversation_runs, conversations, versions
from store.primitives.ids import new_id
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run, until

REASON = "not there any more"


def delete_version_row(bench: Bench, run: Run) -> None:
    """Delete the row of the version, as an earlier release did, and empty the cache."""
    with bench.database.transaction() as tx:
        tx.execute(text("delete from versions where id = :id"), id=run.row["version_id"])
    empty_version_cache(bench)


def empty_version_cache(bench: Bench) -> None:
    bench.coordinator = replace(bench.coordinator, versions=VersionCache())
    bench.lifecycle = lifecycle.Lifecycle(bench.coordinator)


# -- a run whose version was deleted -----------------------------------------------------------------------------------
def test_run_with_a_deleted_version_fails_with_that_error(bench: Bench):
    run = bench.start("begin -> one, two -> say", say=content("never"))
    delete_version_row(bench, run)

    bench.play()

    assert run.status == "failed"
    assert REASON in run.row["error"]
    assert run.event_names[-1] == "run_failed"
    assert run.events[-1].body["code"] == "version_gone"
    assert set(run.statuses.values()) <= {"done", "closed"}


def test_queued_run_whose_version_is_deleted_while_it_starts_begins_with_what_was_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    bench.coordinator = replace(bench.coordinator, versions=VersionCache(max_versions=0))
    bench.lifecycle = lifecycle.Lifecycle(bench.coordinator)
    first = bench.start("begin -> form -> say", form=FORM, say=content("never"))
    drawn = first.row["canvas_id"], first.row["version_id"]
    queued = bench.start_run(bench.a_start(drawn=drawn, conversation_id=first.conversation_id, on_busy="enqueue"))
    occupy = conversation_runs.set_active_run

    def occupy_and_lose_version(*args: Any) -> None:
        occupy(*args)
        delete_version_row(bench, queued)

    monkeypatch.setattr(conversation_runs, "set_active_run", occupy_and_lose_version)
    bench.lifecycle.cancel_run(bench.tenant_id, first.id)
    bench.coordinator.advance_run(queued.id)

    assert queued.row["revision"] == 1
    assert "begin" in queued.statuses


def test_sweeper_fails_a_run_whose_version_was_deleted(bench: Bench):
    run = bench.start("begin -> work")
    bench.report(bench.claim(run, "begin"))
    bench.outbox.lose()
    delete_version_row(bench, run)
    sweeper = Sweeper(bench.coordinator)

    sweeper.tick()
    sweeper.tick()

    assert run.status == "failed"


@pytest.mark.parametrize("state", ["ready", "running", "waiting", "queued"])
def test_run_whose_version_was_deleted_can_be_cancelled(bench: Bench, state: str):
    run = bench.start("begin -> form -> say", form=FORM, say=content("never"))
    if state == "running":
        bench.claim(run, "begin")
    if state == "waiting":
        bench.play()
    if state == "queued":
        row = run.row
        drawn = row["canvas_id"], row["version_id"]
        run = bench.start_run(bench.a_start(drawn=drawn, conversation_id=run.conversation_id, on_busy="enqueue"))
    delete_version_row(bench, run)

    assert bench.lifecycle.cancel_run(bench.tenant_id, run.id) == "cancelled"

    assert run.status == "cancelled"
    assert run.event_names[-1] == "workflow_finished"


def test_cancel_of_an_unknown_or_foreign_run_is_refused(bench: Bench):
    run = bench.start("begin -> work")

    with pytest.raises(RunNotFound):
        bench.lifecycle.cancel_run(bench.a_tenant(), run.id)
    with pytest.raises(RunNotFound):
        bench.lifecycle.cancel_run(bench.tenant_id, new_id())


def test_answer_to_a_run_whose_version_was_deleted_fails_the_run(bench: Bench):
    run = bench.start("begin -> form -> say", form=FORM, say=content("never"))
    bench.play()
    delete_version_row(bench, run)

    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Ada", inputs={"name": "Ada"}))

    assert run.status == "failed"
    assert REASON in run.row["error"]


@pytest.mark.parametrize("why", ["its form has expired", "its time is up"])
def test_waiting_run_whose_version_was_deleted_fails_when_its_time_is_over(bench: Bench, why: str):
    run = bench.start("begin -> form -> say", form=FORM, say=content("never"))
    bench.play()
    delete_version_row(bench, run)

    if why == "its time is up":
        bench.lifecycle.fail_on_time_budget(run.id, 1000)
    else:
        with bench.database.transaction() as tx:
            tx.execute(text("update runs set expires_at = now() - interval '1 s' where id = :id"), id=run.id)
        bench.lifecycle.expire_form(run.id, "nobody")

    assert run.status == "failed"


def test_queued_run_starts_after_the_run_before_it_failed_for_its_deleted_version(bench: Bench):
    first = bench.start("begin -> work")
    row = first.row
    drawn = row["canvas_id"], row["version_id"]
    second = bench.start_run(bench.a_start(drawn=drawn, conversation_id=first.conversation_id, on_busy="enqueue"))
    with bench.database.transaction() as tx:
        gone = new_id()
        tx.execute(text("update runs set version_id = :gone where id = :id"), gone=gone, id=first.id)

    bench.play()

    assert (first.status, second.status) == ("failed", "succeeded")


# -- starts during a deletion ------------------------------------------------------------------------------------------
def delete_version(bench: Bench, drawn: tuple[Any, Any], *, force: bool = True) -> None:
    with bench.database.transaction() as tx:
        versions.delete(tx, bench.tenant_id, *drawn, force=force)


def test_a_start_is_refused_when_its_version_was_deleted_after_it_was_chosen(bench: Bench):
    start = bench.a_start("begin -> work")
    bench.start(drawn=(start.canvas_id, start.version_id))  # the process has compiled it
    with bench.database.transaction() as tx:
        tx.execute(text("delete from versions where id = :id"), id=start.version_id)

    with pytest.raises(NotFound, match=REASON):
        bench.lifecycle.start_run(start)

    with bench.database.transaction() as tx:
        assert tx.scalar(text("select count(*) from runs where canvas_id = :id"), id=start.canvas_id) == 1


def test_a_start_is_refused_when_its_agent_was_deleted_after_it_was_chosen(bench: Bench):
    start = bench.a_start("begin -> work")
    run = bench.start(drawn=(start.canvas_id, start.version_id))
    bench.play()
    with bench.database.transaction() as tx:
        canvases.delete(tx, bench.tenant_id, start.canvas_id)

    with pytest.raises(NotFound, match=REASON):
        bench.lifecycle.start_run(start)

    assert run.status == "succeeded"
    with bench.database.transaction() as tx:
        assert conversations.list_open_runs(tx, bench.tenant_id, start.canvas_id) == []


@pytest.mark.parametrize("what", ["version", "agent"])
def test_deletion_during_the_acceptance_of_a_run_finds_the_run(
    bench: Bench, what: str, monkeypatch: pytest.MonkeyPatch
):
    start = bench.a_start("begin -> work")
    results: list[Any] = []

    def delete() -> None:
        try:
            if what == "version":
                delete_version(bench, (start.canvas_id, start.version_id))
            else:
                with bench.database.transaction() as tx:
                    canvases.delete(tx, bench.tenant_id, start.canvas_id)
            results.append("deleted")
        except NotAllowed as refused:
            results.append(refused.message)

    deleting = Thread(target=delete)
    accept = lifecycle.accept

    def accept_slowly(coordinator: Any, tx: Any, *args: Any, **more: Any) -> Any:
        accepted = accept(coordinator, tx, *args, **more)
        tx.wait()  # everything is written, and nothing committed
        deleting.start()
        until(lambda: a_transaction_waits(bench))
        return accepted

    monkeypatch.setattr(lifecycle, "accept", accept_slowly)
    run = bench.start_run(start)
    deleting.join()

    if what == "version":
        assert "not over" in results[0]
    else:
        assert results == ["deleted"]
        with bench.database.transaction() as tx:  # the caller cancels runs that were accepted meanwhile
            assert conversations.list_open_runs(tx, bench.tenant_id, start.canvas_id) == [run.id]
    empty_version_cache(bench)
    bench.play()
    assert run.status in ("succeeded", "cancelled")


def a_transaction_waits(bench: Bench) -> bool:
    with bench.database.transaction() as tx:
        return tx.scalar(
            text("""
                select exists (select from pg_stat_activity where wait_event_type = 'Lock'
                  and datname = current_database())
            """)
        )


def test_start_that_waits_for_the_deletion_of_its_agent_is_refused(bench: Bench):
    start = bench.a_start("begin -> work")
    raised: list[BaseException] = []

    def begin() -> None:
        try:
            bench.lifecycle.start_run(start)
        except NotFound as error:
            raised.append(error)

    starting = Thread(target=begin)
    with bench.database.transaction() as tx:
        canvases.delete(tx, bench.tenant_id, start.canvas_id)
        starting.start()
        until(lambda: a_transaction_waits(bench))
    starting.join()

    assert len(raised) == 1


# -- hidden versions ---------------------------------------------------------------------------------------------------
def test_session_continues_after_its_version_was_deleted_by_force(bench: Bench):
    run = bench.start("begin -> say", say=content("still here"))
    bench.play()
    row = run.row
    drawn = row["canvas_id"], row["version_id"]
    delete_version(bench, drawn)
    empty_version_cache(bench)

    again = bench.start_run(bench.a_start(drawn=drawn, conversation_id=run.conversation_id))
    bench.play(bench.a_worker())

    assert (again.status, again.text) == ("succeeded", "still here")


def test_a_version_that_was_deleted_by_force_is_not_deleted_twice(bench: Bench):
    run = bench.start("begin -> work")
    bench.play()
    drawn = run.row["canvas_id"], run.row["version_id"]
    delete_version(bench, drawn)

    with pytest.raises(NotFound):
        delete_version(bench, drawn)
