"""Versions and agents that are deleted while somebody starts a run of them, or has one."""

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
from store.agents import canvases, conversations, versions
from store.primitives.ids import new_id
from tests.builders import says
from tests.integration.engine import FORM, Bench, Run, until

REASON = "not there any more"


def lose_version(bench: Bench, run: Run) -> None:
    """The row is gone, as an earlier release left it, and no process has the version in its cache."""
    with bench.database.transaction() as tx:
        tx.execute(text("delete from versions where id = :id"), id=run.row["version_id"])
    forget_versions(bench)


def forget_versions(bench: Bench) -> None:
    bench.coordinator = replace(bench.coordinator, versions=VersionCache())
    bench.lifecycle = lifecycle.Lifecycle(bench.coordinator)


# -- a run whose version is gone ---------------------------------------------------------------------------------------
def test_run_with_a_deleted_version_fails_with_that_error(bench: Bench):
    run = bench.start("begin -> one, two -> say", say=says("never"))
    lose_version(bench, run)

    bench.play()

    assert run.status == "failed"
    assert REASON in run.row["error"]
    assert run.told[-1] == "run_failed"
    assert run.events[-1].body["code"] == "version_gone"
    assert set(run.statuses.values()) <= {"done", "closed"}


def test_the_sweeper_has_nothing_to_repeat_about_a_run_whose_version_is_gone(bench: Bench):
    run = bench.start("begin -> work")
    bench.report(bench.claim(run, "begin"))
    bench.outbox.lose()
    lose_version(bench, run)
    sweeper = Sweeper(bench.coordinator)

    sweeper.tick()
    sweeper.tick()

    assert run.status == "failed"


@pytest.mark.parametrize("state", ["ready", "running", "waiting", "queued"])
def test_a_run_whose_version_is_gone_can_be_cancelled(bench: Bench, state: str):
    run = bench.start("begin -> form -> say", form=FORM, say=says("never"))
    if state == "running":
        bench.claim(run, "begin")
    if state == "waiting":
        bench.play()
    if state == "queued":
        row = run.row
        drawn = row["canvas_id"], row["version_id"]
        run = bench.begun(bench.a_start(drawn=drawn, conversation_id=run.conversation_id, on_busy="enqueue"))
    lose_version(bench, run)

    assert bench.lifecycle.cancel_run(bench.tenant_id, run.id) == "cancelled"

    assert run.status == "cancelled"
    assert run.told[-1] == "workflow_finished"


def test_only_an_unknown_run_cannot_be_cancelled(bench: Bench):
    run = bench.start("begin -> work")

    with pytest.raises(RunNotFound):
        bench.lifecycle.cancel_run(bench.a_tenant(), run.id)
    with pytest.raises(RunNotFound):
        bench.lifecycle.cancel_run(bench.tenant_id, new_id())


def test_a_form_of_a_run_whose_version_is_gone_is_answered_by_its_end(bench: Bench):
    run = bench.start("begin -> form -> say", form=FORM, say=says("never"))
    bench.play()
    lose_version(bench, run)

    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Ada", inputs={"name": "Ada"}))

    assert run.status == "failed"
    assert REASON in run.row["error"]


@pytest.mark.parametrize("why", ["its form has expired", "its time is up"])
def test_a_waiting_run_whose_version_is_gone_ends_in_time(bench: Bench, why: str):
    run = bench.start("begin -> form -> say", form=FORM, say=says("never"))
    bench.play()
    lose_version(bench, run)

    if why == "its time is up":
        bench.lifecycle.fail_on_time_budget(run.id, 1000)
    else:
        with bench.database.transaction() as tx:
            tx.execute(text("update runs set expires_at = now() - interval '1 s' where id = :id"), id=run.id)
        bench.lifecycle.expire_form(run.id, "nobody")

    assert run.status == "failed"


def test_a_session_goes_on_with_its_next_run_when_the_version_of_one_is_gone(bench: Bench):
    first = bench.start("begin -> work")
    row = first.row
    drawn = row["canvas_id"], row["version_id"]
    second = bench.begun(bench.a_start(drawn=drawn, conversation_id=first.conversation_id, on_busy="enqueue"))
    with bench.database.transaction() as tx:
        gone = new_id()
        tx.execute(text("update runs set version_id = :gone where id = :id"), gone=gone, id=first.id)

    bench.play()

    assert (first.status, second.status) == ("failed", "succeeded")


# -- starting while somebody deletes -----------------------------------------------------------------------------------
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

    def accepted_slowly(coordinator: Any, tx: Any, *given: Any, **more: Any) -> Any:
        accepted = accept(coordinator, tx, *given, **more)
        tx.wait()  # everything is written, and nothing committed
        deleting.start()
        until(lambda: somebody_waits(bench))
        return accepted

    monkeypatch.setattr(lifecycle, "accept", accepted_slowly)
    run = bench.begun(start)
    deleting.join()

    if what == "version":
        assert "not over" in results[0]
    else:
        assert results == ["deleted"]
        with bench.database.transaction() as tx:  # who deletes an agent cancels what was accepted meanwhile
            assert conversations.list_open_runs(tx, bench.tenant_id, start.canvas_id) == [run.id]
    forget_versions(bench)
    bench.play()
    assert run.status in ("succeeded", "cancelled")


def somebody_waits(bench: Bench) -> bool:
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
        until(lambda: somebody_waits(bench))
    starting.join()

    assert len(raised) == 1


# -- versions that are hidden ------------------------------------------------------------------------------------------
def test_a_session_goes_on_after_its_version_was_deleted_by_force(bench: Bench):
    run = bench.start("begin -> say", say=says("still here"))
    bench.play()
    row = run.row
    drawn = row["canvas_id"], row["version_id"]
    delete_version(bench, drawn)
    forget_versions(bench)

    again = bench.begun(bench.a_start(drawn=drawn, conversation_id=run.conversation_id))
    bench.play(bench.a_worker())

    assert (again.status, again.said) == ("succeeded", "still here")


def test_a_version_that_was_deleted_by_force_is_not_deleted_twice(bench: Bench):
    run = bench.start("begin -> work")
    bench.play()
    drawn = run.row["canvas_id"], run.row["version_id"]
    delete_version(bench, drawn)

    with pytest.raises(NotFound):
        delete_version(bench, drawn)
