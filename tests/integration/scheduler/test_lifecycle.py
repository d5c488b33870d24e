"""Start, resume and cancel: each call returns only after its rows are committed."""

import hashlib
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
import redis
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.outcome import Finished
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.run_start import RunRequest
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle import lifecycle
from scheduler.lifecycle.accept import Started
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_bus import Bus, cancel_keys
from scheduler.sweeper.sweeper import Sweeper
from store.agents import conversations
from store.db import database
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.runs import external_ids, run_rows
from store.runs.external_ids import ExternalId
from store.tables.runs import activations
from tests.builders import content
from tests.integration.engine import FORM, REDIS_AWAY, Bench, Run, new_reporter, until

FORM_CANVAS = "begin -> form -> say"
GREETING = content("Hello {form@name}")


# -- start -----------------------------------------------------------------------------------------------------------
def test_run_accepted_without_a_broker_is_enqueued_by_the_sweeper_later(bench: Bench):
    away = Coordinator(bench.database, Dispatch(make_app(REDIS_AWAY), Bus(REDIS_AWAY)), VersionCache())

    run = Run(bench, Lifecycle(away).start_run(bench.a_start("begin -> work")))

    assert run.status == "running"
    assert run.event_names == ["workflow_started", "node_started"]
    mark_task_messages_lost(bench)
    Sweeper(bench.coordinator).tick()
    bench.play()
    assert run.status == "succeeded"


def test_start_succeeds_although_all_pooled_connections_were_closed(bench: Bench):
    drawn = bench.draw("begin -> work")
    bench.start(drawn=drawn)
    again = bench.a_start(drawn=drawn)
    cut_connections(bench)

    run = Run(bench, bench.lifecycle.start_run(again))

    assert run.status == "running"


def test_a_start_that_is_sent_twice_with_one_id_starts_one_run(bench: Bench):
    start = bench.a_start("begin -> work", run_id=new_id())

    first, second = bench.lifecycle.start_run(start), bench.lifecycle.start_run(start)

    assert not first.repeated
    assert second.repeated
    assert (first.run_id, first.conversation_id) == (second.run_id, second.conversation_id)
    assert len(Run(bench, first).activations) == 1


def test_a_start_that_is_sent_twice_at_once_starts_one_run(bench: Bench):
    start = bench.a_start("begin -> work", run_id=new_id())
    both = Barrier(2)

    def begin() -> Started:
        both.wait()
        return bench.lifecycle.start_run(start)

    with ThreadPoolExecutor(2) as pool:
        replies = [future.result() for future in [pool.submit(begin) for _ in range(2)]]

    assert sorted(reply.repeated for reply in replies) == [False, True]
    assert {reply.run_id for reply in replies} == {start.run_id}


def test_start_whose_run_is_stored_meanwhile_gets_that_run(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    start = bench.a_start("begin -> work", run_id=new_id())
    firsts = list[Started]()
    tenant_of = run_rows.tenant_of

    def tenant_of_before_the_first_start_commits(tx: Any, run_id: Any) -> Any:
        tenant_id = tenant_of(tx, run_id)
        monkeypatch.undo()
        firsts.append(bench.lifecycle.start_run(start))
        return tenant_id

    monkeypatch.setattr(run_rows, "tenant_of", tenant_of_before_the_first_start_commits)
    second = bench.lifecycle.start_run(start)

    assert (second.run_id, second.conversation_id) == (firsts[0].run_id, firsts[0].conversation_id)
    assert (firsts[0].repeated, second.repeated) == (False, True)
    assert len(Run(bench, second).activations) == 1


def test_start_with_a_lost_commit_response_gets_the_run_that_was_stored(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    start = bench.a_start("begin -> work", run_id=new_id())
    accept, commit = lifecycle.accept, Transaction.commit

    def commit_and_lose_the_response(tx: Transaction) -> None:
        monkeypatch.undo()
        commit(tx)
        raise OperationalError("commit", {}, Exception("connection lost"), connection_invalidated=True)

    def accept_before_a_broken_commit(*args: Any, **options: Any) -> Any:
        accepted = accept(*args, **options)
        monkeypatch.setattr(Transaction, "commit", commit_and_lose_the_response)
        return accepted

    monkeypatch.setattr(lifecycle, "accept", accept_before_a_broken_commit)
    started = bench.lifecycle.start_run(start)

    assert (started.run_id, started.repeated) == (start.run_id, True)
    assert len(Run(bench, started).activations) == 1


def test_external_id_of_a_start_with_the_idempotency_key_of_another_start_names_its_run(bench: Bench):
    def start_as(written: str) -> Started:
        external = ExternalId(written, b"digest", drawn.canvas_id, {})
        return bench.lifecycle.start_run(replace(drawn, external=external, idempotency=key("once"), run_id=new_id()))

    drawn = bench.a_start("begin -> work")
    first, second = start_as("order-1"), start_as("order-2")

    assert (second.run_id, second.repeated) == (first.run_id, True)
    with bench.database.transaction() as tx:
        assert [external_ids.find_run(tx, bench.tenant_id, each) for each in ("order-1", "order-2")] == [
            first.run_id
        ] * 2


def test_run_id_of_another_tenant_is_refused_as_in_use(bench: Bench):
    mine = bench.start("begin -> work")

    with pytest.raises(Conflict, match="already in use"):
        bench.start("begin -> work", tenant_id=bench.a_tenant(), run_id=mine.id)


def test_a_repeated_request_gets_the_first_reply(bench: Bench):
    drawn = bench.draw("begin -> work")
    start = bench.a_start(drawn=drawn, idempotency=key("order 7"))

    first, second = bench.start_run(start), bench.start_run(start)

    assert second.started == replace(first.started, repeated=True)
    assert not second.started.queued
    with pytest.raises(Conflict, match="another request"):
        bench.start(drawn=drawn, idempotency=key("order 7", "another body"))


def test_refused_start_stores_no_idempotency_key(bench: Bench):
    first = bench.start("begin -> work")
    again = {"drawn": bench.draw("begin -> work"), "conversation_id": first.conversation_id, "idempotency": key("k")}
    with pytest.raises(Conflict, match="already running"):
        bench.start(**again)

    bench.play()

    assert not bench.start(**again).started.repeated


def test_unknown_value_of_on_busy_is_refused_with_the_valid_values(bench: Bench):
    with pytest.raises(InvalidRequest, match="refuse, enqueue, interrupt"):
        bench.start("begin -> work", on_busy="shout")


# -- a busy conversation ---------------------------------------------------------------------------------------------
def test_a_busy_conversation_refuses_a_second_message(bench: Bench):
    first = bench.start("begin -> work")

    with pytest.raises(Conflict, match="already running"):
        start_next(bench, first)


def test_enqueued_messages_run_one_after_another(bench: Bench):
    first = bench.start("begin -> work")
    second, third = start_next(bench, first, on_busy="enqueue"), start_next(bench, first, on_busy="enqueue")
    at_first = (second.started.queued, second.status, second.activations)

    bench.play()

    assert at_first == (True, "queued", [])
    assert [run.status for run in (first, second, third)] == ["succeeded"] * 3
    assert first.row["finished_at"] <= second.row["started_at"] <= second.row["finished_at"] <= third.row["started_at"]


def test_interrupting_message_cancels_the_run_before_it_and_then_runs(bench: Bench):
    first = bench.start("begin -> work")
    bench.play(until=lambda: "work" in first.statuses)
    claimed = bench.claim(first, "work")

    second = start_next(bench, first, on_busy="interrupt")
    while_it_stops = (first.status, second.status)
    new_reporter(bench.coordinator, claimed).report(Finished(), None, {})
    bench.play()

    assert while_it_stops == ("stopping", "queued")
    assert (first.status, second.status) == ("cancelled", "succeeded")


def test_interrupt_takes_effect_at_once_if_no_attempt_is_running(bench: Bench):
    first = bench.start("begin -> work")

    second = start_next(bench, first, on_busy="interrupt")

    assert (first.status, second.status) == ("cancelled", "running")


def test_a_repeated_interrupt_does_not_interrupt_the_run_that_it_started(bench: Bench):
    first = bench.start("begin -> work")
    drawn, again = bench.draw("begin -> work"), {"on_busy": "interrupt", "idempotency": key("k"), "run_id": new_id()}

    second = bench.start(drawn=drawn, conversation_id=first.conversation_id, **again)
    repeated = bench.start(drawn=drawn, conversation_id=first.conversation_id, **again)

    assert repeated.id == second.id
    assert repeated.started.repeated
    assert second.status == "running"


def test_conversation_of_another_tenant_is_not_found(bench: Bench):
    mine = bench.start("begin -> work")
    theirs = bench.a_start("begin -> work", tenant_id=bench.a_tenant(), conversation_id=mine.conversation_id)

    with pytest.raises(NotFound):
        bench.lifecycle.start_run(theirs)


# -- forms -----------------------------------------------------------------------------------------------------------
def test_next_message_answers_the_form_of_the_waiting_run(bench: Bench):
    run = waiting_run(bench)

    answered = start_next(bench, run, query="Ann")
    bench.play()

    assert answered.started.resumed
    assert answered.id == run.id
    assert (run.status, run.text) == ("succeeded", "Hello Ann")


def test_answers_by_name_reach_the_form(bench: Bench):
    run = waiting_run(bench)

    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(inputs={"name": {"value": "Bo", "type": "line"}}))
    bench.play()

    assert run.text == "Hello Bo"


def test_empty_message_shows_the_form_again(bench: Bench):
    run = waiting_run(bench)

    start_next(bench, run, query="")

    assert run.status == "waiting"
    assert run.event_names.count("user_inputs") == 2


def test_only_one_of_two_concurrent_answers_is_accepted(bench: Bench):
    run = waiting_run(bench)
    both = Barrier(2)

    def answer(name: str) -> bool:
        both.wait()
        try:
            bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query=name))
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        accepted = [future.result() for future in [pool.submit(answer, name) for name in ("Ann", "Bo")]]
    bench.play()

    assert sorted(accepted) == [False, True]
    assert run.text == f"Hello {'Ann' if accepted[0] else 'Bo'}"


def test_answer_to_a_run_that_does_not_wait_is_refused(bench: Bench):
    run = bench.start("begin -> work")

    with pytest.raises(Conflict, match="does not wait"):
        bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Ann"))


def test_repeated_answer_does_not_answer_the_next_form_of_the_run(bench: Bench):
    drawn = bench.draw("begin -> form -> form2 -> say", form=FORM, form2=FORM)
    first = bench.start(drawn=drawn)
    bench.play()
    answer = bench.a_start(drawn=drawn, conversation_id=first.conversation_id, query="Ann", idempotency=key("answer"))
    bench.lifecycle.start_run(answer)
    bench.play()
    assert first.statuses["form2"] == "waiting"

    again = bench.lifecycle.start_run(answer)

    assert again.repeated
    assert (first.status, first.statuses["form2"]) == ("waiting", "waiting")


def test_the_form_of_another_tenant_cannot_be_answered(bench: Bench):
    run = waiting_run(bench)

    with pytest.raises(NotFound):
        bench.lifecycle.resume_run(bench.a_tenant(), run.id, RunRequest(query="Mallory"))

    assert run.status == "waiting"


def test_each_message_of_a_run_with_a_form_is_stored_in_its_conversation(bench: Bench):
    run = waiting_run(bench)
    start_next(bench, run, query="Ann")
    bench.play()

    with bench.database.transaction() as tx:
        messages = conversations.list_messages(tx, bench.tenant_id, run.conversation_id)

    assert [(message.role, message.run_id) for message in messages] == [("user", run.id)] * 2 + [("assistant", run.id)]


# -- cancel ----------------------------------------------------------------------------------------------------------
def test_a_run_that_waits_for_a_person_is_cancelled_at_once(bench: Bench):
    run = waiting_run(bench)

    status = bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert status == run.status == "cancelled"
    assert run.statuses["form"] == "closed"
    assert count_cancel_keys(bench, run) == 0


def test_cancel_of_a_queued_run_notifies_its_readers(bench: Bench):
    first = bench.start("begin -> work")
    second = start_next(bench, first, on_busy="enqueue")

    status = bench.lifecycle.cancel_run(bench.tenant_id, second.id)
    bench.play()

    assert status == second.status == "cancelled"
    assert second.event_names == ["workflow_finished"]
    assert (first.status, second.activations) == ("succeeded", [])


def test_a_cancelled_run_frees_its_conversation_for_the_next_message(bench: Bench):
    run = waiting_run(bench)
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    after = start_next(bench, run)
    bench.play()

    assert after.id != run.id
    assert after.status == "succeeded"


def test_cancel_of_a_run_that_is_over_changes_nothing_and_leaves_no_cancel_key(bench: Bench):
    run = bench.start("begin -> work")
    bench.play()
    before = run.row

    status = bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert status == "succeeded"
    assert run.row == before
    assert count_cancel_keys(bench, run) == 0


def test_cancel_of_an_unknown_or_foreign_run_is_not_found_and_leaves_no_cancel_key(bench: Bench):
    run = bench.start("begin -> work")

    for tenant_id, run_id in ((bench.tenant_id, uuid4()), (bench.a_tenant(), run.id)):
        with pytest.raises(NotFound):
            bench.lifecycle.cancel_run(tenant_id, run_id)

    assert (run.status, count_cancel_keys(bench, run)) == ("running", 0)


def test_cancel_key_exists_while_a_run_is_stopping_and_is_deleted_at_its_end(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    while_it_stops = (run.status, count_cancel_keys(bench, run))
    new_reporter(bench.coordinator, claimed).report(Finished(), None, {})

    assert while_it_stops == ("stopping", 1)
    assert (run.status, count_cancel_keys(bench, run)) == ("cancelled", 0)


def test_run_that_ends_during_its_cancel_leaves_no_cancel_key(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    bus = bench.coordinator.dispatch.bus
    publish_cancel = bus.publish_cancel

    def publish_and_end(run_id: object) -> None:
        publish_cancel(run.id)
        new_reporter(bench.coordinator, claimed).report(Finished(), None, {})

    monkeypatch.setattr(bus, "publish_cancel", publish_and_end)
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert (run.status, count_cancel_keys(bench, run)) == ("cancelled", 0)


def test_second_cancel_of_a_stopping_run_has_no_effect(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")

    statuses = [bench.lifecycle.cancel_run(bench.tenant_id, run.id) for _ in range(2)]
    new_reporter(bench.coordinator, claimed).report(Finished(), None, {})

    assert statuses == ["stopping", "stopping"]
    assert run.event_names.count("workflow_finished") == 1


def test_start_deletes_an_old_cancel_key_of_its_conversation(bench: Bench):
    first = bench.start("begin -> work")
    bench.play()
    set_key(bench, f"{first.conversation_id}-cancel")

    second = start_next(bench, first)

    assert count_cancel_keys(bench, second) == 0
    assert second.status == "running"


def test_enqueued_message_does_not_delete_the_cancel_key_of_the_active_run(bench: Bench):
    first = bench.start("begin -> work")
    set_key(bench, f"{first.conversation_id}-cancel")

    start_next(bench, first, on_busy="enqueue")

    assert count_cancel_keys(bench, first) == 1


# -- the lock of a run -----------------------------------------------------------------------------------------------
def test_report_stored_during_a_refused_operation_is_applied(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    lock = run_rows.lock

    def lock_while_a_report_is_stored(tx: Any, run_id: Any) -> Any:
        row = lock(tx, run_id)
        new_reporter(bench.coordinator, claimed).report(Finished(), None, {})  # finds the run locked, twice
        return row

    monkeypatch.setattr(run_rows, "lock", lock_while_a_report_is_stored)
    with pytest.raises(Conflict):
        bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Ann"))

    assert run.statuses == {"begin": "done", "work": "ready"}


def test_operation_on_a_locked_run_waits_and_is_retried(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work")
    tries = shorten_lock_timeout(monkeypatch)

    with ThreadPoolExecutor(1) as pool, locked(bench, run) as release:
        cancelled = pool.submit(bench.lifecycle.cancel_run, bench.tenant_id, run.id)
        until(lambda: len(tries) > 1)
        release()
        assert cancelled.result() == "cancelled"


# -- helpers ---------------------------------------------------------------------------------------------------------
def key(name: str, body: str = "body") -> tuple[str, str, bytes]:
    return ("runs", name, hashlib.sha256(body.encode()).digest())


def waiting_run(bench: Bench) -> Run:
    """Return a run that waits for its form."""
    run = bench.start(FORM_CANVAS, form=FORM, say=GREETING)
    bench.play()
    assert run.status == "waiting"
    return run


def start_next(bench: Bench, run: Run, **options: Any) -> Run:
    """Start a run of a one-node canvas with the next message of the conversation."""
    return bench.start("begin -> work", conversation_id=run.conversation_id, **options)


def count_cancel_keys(bench: Bench, run: Run) -> int:
    with redis.Redis.from_url(bench.redis_url) as client:
        return client.exists(*cancel_keys(run.id, run.conversation_id))


def set_key(bench: Bench, name: str) -> None:
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(name, "x")


def mark_task_messages_lost(bench: Bench) -> None:
    """Mark all task messages as lost, as if later queue probes had returned."""
    with bench.database.transaction() as tx:
        tx.execute(activations.update().values(enqueued_at=None))


@contextmanager
def locked(bench: Bench, run: Run) -> Generator[Callable[[], None]]:
    """Lock a run until the yielded function is called."""
    with bench.database.transaction() as tx:
        assert run_rows.try_lock(tx, run.id)()
        yield tx.commit


def shorten_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Let operations wait 30 ms for the lock of a run and try again; return the list of tries."""
    lock, tries = run_rows.lock, list[object]()

    def lock_briefly(tx: Any, run_id: Any) -> Any:
        tries.append(run_id)
        return lock(tx, run_id, timeout=timedelta(milliseconds=30))

    monkeypatch.setattr(run_rows, "lock", lock_briefly)
    monkeypatch.setattr(database, "MAX_TRIES", 1000)
    return tries


# -- the inputs of Begin ---------------------------------------------------------------------------------------------
def test_inputs_of_begin_are_remembered_within_their_conversation_only(bench: Bench):
    drawn = bench.draw("begin -> compute", begin={"inputs": {"a": {"type": "line"}, "b": {"type": "line"}}})
    first = bench.start(drawn=drawn, query="", inputs={"a": 1, "more": 2})
    bench.play()

    second = bench.start(drawn=drawn, query="", inputs={"b": 3}, conversation_id=first.conversation_id)
    other = bench.start(drawn=drawn, query="")
    bench.play()

    assert inputs_of_begin(first) == {"a": 1, "b": None, "more": 2}
    assert inputs_of_begin(second) == {"a": 1, "b": 3, "more": 2}
    assert inputs_of_begin(other) == {"a": None, "b": None}


def inputs_of_begin(run: Run) -> dict[str, Any]:
    finished = next(event for event in run.events if event.name == "node_finished" and event.node_id == "begin")
    return dict(finished.inputs or {})


def cut_connections(bench: Bench) -> None:
    """Close all other connections, as a restart of PostgreSQL does; the pool notices at the next use."""
    others = text(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where pid <> pg_backend_pid()"
        " and datname = current_database()"
    )
    beside = database.Database(bench.database.url, pool_size=1)
    with beside.statements() as tx:
        tx.rows(others)
    beside.close()
