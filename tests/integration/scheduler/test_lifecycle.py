"""The verbs of people: start, resume, cancel. What they have promised is a committed row."""

import hashlib
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
import redis
from sqlalchemy import text

from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.outcome import Finished
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.run_start import RunRequest
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle.accept import Started
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_bus import Bus, cancel_keys
from scheduler.sweeper.sweeper import Sweeper
from store.agents import conversations
from store.db import database
from store.primitives.ids import new_id
from store.runs import run_rows
from store.tables.runs import activations
from tests.builders import says
from tests.integration.engine import FORM, REDIS_AWAY, Bench, Run, reporting, until

ASKS = "begin -> form -> say"
GREETS = says("Hello {form@name}")


# -- start -----------------------------------------------------------------------------------------------------------
def test_a_run_is_accepted_while_the_broker_is_away_and_the_sweeper_rings_when_it_is_back(bench: Bench):
    away = Coordinator(bench.database, Dispatch(make_app(REDIS_AWAY), Bus(REDIS_AWAY)), VersionCache())

    run = Run(bench, Lifecycle(away).start_run(bench.a_start("begin -> work")))

    assert run.status == "running"
    assert run.told == ["workflow_started", "node_started"]
    forget_hints(bench)
    Sweeper(bench.coordinator).tick()
    bench.play()
    assert run.status == "succeeded"


def test_a_start_does_not_notice_that_the_databases_connections_have_died_in_the_pool(bench: Bench):
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


def test_a_run_id_that_another_tenant_has_is_taken(bench: Bench):
    mine = bench.start("begin -> work")

    with pytest.raises(Conflict, match="already in use"):
        bench.start("begin -> work", tenant_id=bench.a_tenant(), run_id=mine.id)


def test_a_repeated_request_gets_the_first_reply(bench: Bench):
    drawn = bench.draw("begin -> work")
    start = bench.a_start(drawn=drawn, idempotency=key("order 7"))

    first, second = bench.begun(start), bench.begun(start)

    assert first.id == second.id
    assert second.started.repeated
    with pytest.raises(Conflict, match="another request"):
        bench.start(drawn=drawn, idempotency=key("order 7", "another body"))


def test_a_canvas_that_cannot_be_started_leaves_no_key_behind(bench: Bench):
    first = bench.start("begin -> work")
    again = {"drawn": bench.draw("begin -> work"), "conversation_id": first.conversation_id, "idempotency": key("k")}
    with pytest.raises(Conflict, match="already running"):
        bench.start(**again)

    bench.play()

    assert not bench.start(**again).started.repeated


def test_an_unknown_choice_for_a_busy_conversation_is_refused_by_name(bench: Bench):
    with pytest.raises(InvalidRequest, match="refuse, enqueue, interrupt"):
        bench.start("begin -> work", on_busy="shout")


# -- a busy conversation ---------------------------------------------------------------------------------------------
def test_a_busy_conversation_refuses_a_second_message(bench: Bench):
    first = bench.start("begin -> work")

    with pytest.raises(Conflict, match="already running"):
        following(bench, first)


def test_a_message_can_wait_for_the_one_before_it(bench: Bench):
    first = bench.start("begin -> work")
    second, third = following(bench, first, on_busy="enqueue"), following(bench, first, on_busy="enqueue")
    at_first = (second.started.queued, second.status, second.activations)

    bench.play()

    assert at_first == (True, "queued", [])
    assert [run.status for run in (first, second, third)] == ["succeeded"] * 3
    assert first.row["finished_at"] <= second.row["started_at"] <= second.row["finished_at"] <= third.row["started_at"]


def test_a_message_can_interrupt_the_one_before_it(bench: Bench):
    first = bench.start("begin -> work")
    bench.play(until=lambda: "work" in first.statuses)
    claimed = bench.claim(first, "work")

    second = following(bench, first, on_busy="interrupt")
    while_it_stops = (first.status, second.status)
    reporting(bench.coordinator, claimed).report(Finished(), None, {})
    bench.play()

    assert while_it_stops == ("stopping", "queued")
    assert (first.status, second.status) == ("cancelled", "succeeded")


def test_an_interrupt_takes_effect_at_once_where_nothing_is_in_flight(bench: Bench):
    first = bench.start("begin -> work")

    second = following(bench, first, on_busy="interrupt")

    assert (first.status, second.status) == ("cancelled", "running")


def test_a_repeated_interrupt_does_not_interrupt_the_run_that_it_started(bench: Bench):
    first = bench.start("begin -> work")
    drawn, again = bench.draw("begin -> work"), {"on_busy": "interrupt", "idempotency": key("k"), "run_id": new_id()}

    second = bench.start(drawn=drawn, conversation_id=first.conversation_id, **again)
    repeated = bench.start(drawn=drawn, conversation_id=first.conversation_id, **again)

    assert repeated.id == second.id
    assert repeated.started.repeated
    assert second.status == "running"


def test_the_conversation_of_another_tenant_does_not_exist(bench: Bench):
    mine = bench.start("begin -> work")
    theirs = bench.a_start("begin -> work", tenant_id=bench.a_tenant(), conversation_id=mine.conversation_id)

    with pytest.raises(NotFound):
        bench.lifecycle.start_run(theirs)


# -- forms -----------------------------------------------------------------------------------------------------------
def test_the_next_turn_answers_the_form_that_a_run_waits_with(bench: Bench):
    run = asking(bench)

    answered = following(bench, run, query="Ann")
    bench.play()

    assert answered.started.resumed
    assert answered.id == run.id
    assert (run.status, run.said) == ("succeeded", "Hello Ann")


def test_answers_by_name_reach_the_form(bench: Bench):
    run = asking(bench)

    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(inputs={"name": {"value": "Bo", "type": "line"}}))
    bench.play()

    assert run.said == "Hello Bo"


def test_an_empty_turn_shows_the_form_once_more(bench: Bench):
    run = asking(bench)

    following(bench, run, query="")

    assert run.status == "waiting"
    assert run.told.count("user_inputs") == 2


def test_only_one_of_two_answers_at_once_counts(bench: Bench):
    run = asking(bench)
    both = Barrier(2)

    def answer(name: str) -> bool:
        both.wait()
        try:
            bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query=name))
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        taken = [future.result() for future in [pool.submit(answer, name) for name in ("Ann", "Bo")]]
    bench.play()

    assert sorted(taken) == [False, True]
    assert run.said == f"Hello {'Ann' if taken[0] else 'Bo'}"


def test_a_run_that_does_not_ask_is_not_answered(bench: Bench):
    run = bench.start("begin -> work")

    with pytest.raises(Conflict, match="does not wait"):
        bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Ann"))


def test_a_repeated_request_does_not_answer_the_form_that_its_run_asks_next(bench: Bench):
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
    run = asking(bench)

    with pytest.raises(NotFound):
        bench.lifecycle.resume_run(bench.a_tenant(), run.id, RunRequest(query="Mallory"))

    assert run.status == "waiting"


def test_each_turn_of_a_run_that_waited_is_kept_in_its_conversation(bench: Bench):
    run = asking(bench)
    following(bench, run, query="Ann")
    bench.play()

    with bench.database.transaction() as tx:
        said = conversations.list_messages(tx, bench.tenant_id, run.conversation_id)

    assert [(message.role, message.run_id) for message in said] == [("user", run.id)] * 2 + [("assistant", run.id)]


# -- cancel ----------------------------------------------------------------------------------------------------------
def test_a_run_that_waits_for_a_person_is_cancelled_at_once(bench: Bench):
    run = asking(bench)

    status = bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert status == run.status == "cancelled"
    assert run.statuses["form"] == "closed"
    assert markers(bench, run) == 0


def test_cancel_of_a_queued_run_notifies_its_readers(bench: Bench):
    first = bench.start("begin -> work")
    second = following(bench, first, on_busy="enqueue")

    status = bench.lifecycle.cancel_run(bench.tenant_id, second.id)
    bench.play()

    assert status == second.status == "cancelled"
    assert second.told == ["workflow_finished"]
    assert (first.status, second.activations) == ("succeeded", [])


def test_a_cancelled_run_frees_its_conversation_for_the_next_message(bench: Bench):
    run = asking(bench)
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    after = following(bench, run)
    bench.play()

    assert after.id != run.id
    assert after.status == "succeeded"


def test_cancelling_a_run_that_is_over_changes_nothing_and_leaves_no_marker(bench: Bench):
    run = bench.start("begin -> work")
    bench.play()
    before = run.row

    status = bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert status == "succeeded"
    assert run.row == before
    assert markers(bench, run) == 0


def test_cancelling_an_unknown_run_or_one_of_another_tenant_finds_none_and_leaves_no_marker(bench: Bench):
    run = bench.start("begin -> work")

    for tenant_id, run_id in ((bench.tenant_id, uuid4()), (bench.a_tenant(), run.id)):
        with pytest.raises(NotFound):
            bench.lifecycle.cancel_run(tenant_id, run_id)

    assert (run.status, markers(bench, run)) == ("running", 0)


def test_a_marker_stands_while_a_run_stops_and_goes_when_it_has_ended(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    while_it_stops = (run.status, markers(bench, run))
    reporting(bench.coordinator, claimed).report(Finished(), None, {})

    assert while_it_stops == ("stopping", 1)
    assert (run.status, markers(bench, run)) == ("cancelled", 0)


def test_a_run_that_ends_while_it_is_cancelled_leaves_no_marker(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    bus = bench.coordinator.dispatch.bus
    call_off = bus.publish_cancel

    def ends_first(run_id: object) -> None:
        call_off(run.id)
        reporting(bench.coordinator, claimed).report(Finished(), None, {})

    monkeypatch.setattr(bus, "publish_cancel", ends_first)
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert (run.status, markers(bench, run)) == ("cancelled", 0)


def test_cancelling_twice_is_cancelling_once(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")

    statuses = [bench.lifecycle.cancel_run(bench.tenant_id, run.id) for _ in range(2)]
    reporting(bench.coordinator, claimed).report(Finished(), None, {})

    assert statuses == ["stopping", "stopping"]
    assert run.told.count("workflow_finished") == 1


def test_a_start_forgets_cancels_of_the_conversations_past(bench: Bench):
    first = bench.start("begin -> work")
    bench.play()
    mark(bench, f"{first.conversation_id}-cancel")

    second = following(bench, first)

    assert markers(bench, second) == 0
    assert second.status == "running"


def test_a_message_that_waits_does_not_forget_a_cancel_of_the_one_before_it(bench: Bench):
    first = bench.start("begin -> work")
    mark(bench, f"{first.conversation_id}-cancel")

    following(bench, first, on_busy="enqueue")

    assert markers(bench, first) == 1


# -- holding a run ---------------------------------------------------------------------------------------------------
def test_report_stored_during_a_refused_operation_is_applied(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    lock = run_rows.lock

    def and_meanwhile(tx: Any, run_id: Any) -> Any:
        row = lock(tx, run_id)
        reporting(bench.coordinator, claimed).report(Finished(), None, {})  # finds the run taken, twice
        return row

    monkeypatch.setattr(run_rows, "lock", and_meanwhile)
    with pytest.raises(Conflict):
        bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Ann"))

    assert run.statuses == {"begin": "done", "work": "ready"}


def test_operation_on_a_locked_run_waits_and_is_retried(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work")
    tries = impatient(monkeypatch)

    with ThreadPoolExecutor(1) as pool, held(bench, run) as release:
        cancelled = pool.submit(bench.lifecycle.cancel_run, bench.tenant_id, run.id)
        until(lambda: len(tries) > 1)
        release()
        assert cancelled.result() == "cancelled"


# -- in other words --------------------------------------------------------------------------------------------------
def key(name: str, body: str = "body") -> tuple[str, str, bytes]:
    return ("runs", name, hashlib.sha256(body.encode()).digest())


def asking(bench: Bench) -> Run:
    """A run that waits with its form."""
    run = bench.start(ASKS, form=FORM, say=GREETS)
    bench.play()
    assert run.status == "waiting"
    return run


def following(bench: Bench, run: Run, **options: Any) -> Run:
    """The conversation's next message, to a canvas of one node."""
    return bench.start("begin -> work", conversation_id=run.conversation_id, **options)


def markers(bench: Bench, run: Run) -> int:
    with redis.Redis.from_url(bench.redis_url) as client:
        return client.exists(*cancel_keys(run.id, run.conversation_id))


def mark(bench: Bench, name: str) -> None:
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(name, "x")


def forget_hints(bench: Bench) -> None:
    """As if the canaries had come back since."""
    with bench.database.transaction() as tx:
        tx.execute(activations.update().values(hinted_at=None))


@contextmanager
def held(bench: Bench, run: Run) -> Generator[Callable[[], None]]:
    """A run that somebody holds until it is released."""
    with bench.database.transaction() as tx:
        assert run_rows.try_lock(tx, run.id)()
        yield tx.commit


def impatient(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """People wait 30 ms for a run before they try again, as often as it takes; their tries."""
    lock, tries = run_rows.lock, list[object]()

    def quickly(tx: Any, run_id: Any) -> Any:
        tries.append(run_id)
        return lock(tx, run_id, timeout=timedelta(milliseconds=30))

    monkeypatch.setattr(run_rows, "lock", quickly)
    monkeypatch.setattr(database, "MAX_TRIES", 1000)
    return tries


# -- what stays ------------------------------------------------------------------------------------------------------
def test_the_inputs_of_begin_stay_for_the_next_turn_and_for_no_other_conversation(bench: Bench):
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
    """What PostgreSQL does to every connection when it is restarted; the pool learns of it when it uses one."""
    others = text(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where pid <> pg_backend_pid()"
        " and datname = current_database()"
    )
    beside = database.Database(bench.database.url, pool_size=1)
    with beside.statements() as tx:
        tx.rows(others)
    beside.close()
