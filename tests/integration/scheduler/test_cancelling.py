"""Stop means stop: whatever state a run is in, and whatever is wrong with it."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from sqlalchemy import text

from canvas.outcome import Finished
from scheduler.messaging.celery_app import ADVANCE
from scheduler.messaging.redis_bus import Bus
from scheduler.sweeper import sweeper
from scheduler.sweeper.sweeper import Sweeper
from store.monitoring import sweep_queries
from store.primitives.ids import new_id
from tests.builders import says
from tests.integration.engine import FORM, Bench, Run, reporting

GONE = timedelta(milliseconds=-1)  # a lease that has run out


def following(bench: Bench, run: Run, **options: Any) -> Run:
    """The next turn of a run's conversation."""
    row = run.row
    drawn = (row["canvas_id"], row["version_id"])
    return bench.begun(bench.a_start(drawn=drawn, conversation_id=run.conversation_id, **options))


def spoil(bench: Bench, run: Run, what: str = "state") -> None:
    """What is stored of the run makes no sense any more."""
    rubbish = {
        "state": text("update runs set state = cast('{}' as json) where id = :run_id"),
        "scopes": text("update scopes set state = cast('{}' as json) where run_id = :run_id"),
    }
    with bench.database.transaction() as tx:
        tx.execute(rubbish[what], run_id=run.id)


def called(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The runs that workers are told to stop, as it happens."""
    told: list[UUID] = []
    monkeypatch.setattr(bench.coordinator.dispatch.bus, "publish_cancel", told.append)
    return told


# -- a run in any state ----------------------------------------------------------------------------------------------
def test_a_cancel_holds_while_no_worker_is_there(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 0.0)
    run = bench.start("begin -> one, two -> join -> say", say=says("never"))
    bench.play(until=lambda: "one" in run.statuses)
    bench.claim(run, "one", lease=GONE)  # its worker was killed
    bench.outbox.lose()

    status = bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    assert (status, run.statuses["two"]) == ("stopping", "closed")
    Sweeper(bench.coordinator).tick()
    bench.play()

    assert run.status == "cancelled"
    assert run.statuses == {"begin": "done", "one": "done", "two": "closed"}


def test_a_run_between_two_attempts_of_a_node_is_over_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 0.0)
    run = bench.start("begin -> work")
    bench.play(until=lambda: "work" in run.statuses)
    bench.claim(run, "work", lease=GONE)
    Sweeper(bench.coordinator).tick()

    status = bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    bench.play()

    assert status == run.status == "cancelled"
    assert run.activation("work").attempt == 1


def test_a_session_is_stopped_with_what_is_queued_in_it_and_nothing_of_that_begins(bench: Bench):
    first = bench.start("begin -> form -> say", form=FORM, say=says("never"))
    claimed = bench.claim(first, "begin")
    queued = [following(bench, first, on_busy="enqueue") for _ in range(3)]

    bench.lifecycle.cancel_session(bench.tenant_id, first.conversation_id)
    reporting(bench.coordinator, claimed).report(Finished(), None, {})
    bench.play()

    assert [run.status for run in (first, *queued)] == ["cancelled"] * 4
    assert [run.activations for run in queued] == [[]] * 3


@pytest.mark.parametrize("spelled", [str, lambda session: session.hex])
def test_a_sessions_key_stops_what_is_queued_in_it_too(bench: Bench, spelled: Callable[[UUID], str]):
    first = bench.start("begin -> work")
    queued = following(bench, first, on_busy="enqueue")
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{spelled(first.conversation_id)}-cancel", "x")

        bench.lifecycle.cancel_by_key(first.id)
        bench.play()

        assert (first.status, queued.status, queued.activations) == ("cancelled", "cancelled", [])
        assert client.keys("*-cancel") == []


def test_a_runs_own_key_leaves_what_is_queued_behind_it(bench: Bench):
    first = bench.start("begin -> work")
    queued = following(bench, first, on_busy="enqueue")
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{first.id}-cancel", "x")

        bench.lifecycle.cancel_by_key(first.id)
        bench.play()

    assert (first.status, queued.status) == ("cancelled", "succeeded")


def test_a_turn_clears_the_keys_of_before_and_a_new_session_has_none(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    cleared: list[UUID] = []
    clear = Bus.clear_cancel_keys

    def clearing(bus: Bus, run_id: UUID, session: UUID) -> None:
        cleared.append(session)
        clear(bus, run_id, session)

    monkeypatch.setattr(Bus, "clear_cancel_keys", clearing)
    first = bench.start("begin -> work")
    assert cleared == []
    bench.play()
    cleared.clear()
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{first.conversation_id}-cancel", "x")
        second = following(bench, first)
        assert client.keys("*-cancel") == []
    named = bench.begun(replace(bench.a_start("begin -> work"), run_id=new_id()))

    assert cleared == [second.conversation_id, named.conversation_id]


def test_keys_of_many_open_runs_are_looked_for_a_part_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("scheduler.messaging.redis_bus.RUNS_PER_QUERY", 2)
    open_runs = [bench.start("begin -> work") for _ in range(5)]
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{open_runs[4].id}-cancel", "x")

        Sweeper(bench.coordinator).tick()

    assert [run.status for run in open_runs] == ["running"] * 4 + ["cancelled"]


# -- calling off -----------------------------------------------------------------------------------------------------
def test_cancel_requests_are_sent_before_event_notifications(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> one, two")
    bench.play(until=lambda: "one" in run.statuses)
    bench.claim(run, "one")
    bus, order = bench.coordinator.dispatch.bus, list[str]()
    for name in ("publish_cancel", "notify_event", "set_cancel_key"):
        monkeypatch.setattr(bus, name, lambda *_, name=name, **__: order.append(name))

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert order[0] == "publish_cancel"
    assert order[-1] == "set_cancel_key"


def test_cancel_of_a_run_without_attempts_sends_no_request(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run, told = bench.start("begin -> work"), called(bench, monkeypatch)

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert (run.status, told) == ("cancelled", [])


def test_second_cancel_sends_the_cancel_request_again(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work")
    bench.claim(run, "begin")
    told = called(bench, monkeypatch)

    for _ in range(2):
        bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert told == [run.id, run.id]


# -- a run that is broken --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("what", ["state", "scopes"])
def test_run_with_an_invalid_state_can_be_cancelled_and_its_attempts_stop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, what: str
):
    run = bench.start("begin -> one, two -> join")
    bench.play(until=lambda: "one" in run.statuses)
    claimed = bench.claim(run, "one")
    spoil(bench, run, what)
    told = called(bench, monkeypatch)

    status = bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert status == run.status == "cancelled"
    assert told == [run.id]
    assert run.events[-1].body == {"outputs": "Task has been canceled"}
    assert not bench.report(claimed)
    assert {row.status for row in run.activations} == {"done", "closed"}


def test_what_a_broken_run_was_saying_ends_with_it(bench: Bench):
    run = bench.start("begin -> say", say=says("never"))
    bench.play(until=lambda: "say" in run.statuses)
    spoken = run.row["turn"]
    spoil(bench, run)

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    (turn,) = run.turns
    assert (turn.id, turn.closed_at) == (spoken, run.row["last_event"])


def test_a_run_that_breaks_while_it_is_being_stopped_is_ended_all_the_same(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    spoil(bench, run)

    reporting(bench.coordinator, claimed).report(Finished(), None, {})
    bench.play()

    assert run.status == "cancelled"
    assert [event.number for event in run.events] == list(range(1, run.row["last_event"] + 1))


def test_broken_run_that_was_not_cancelled_is_unchanged_and_logged(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    spoil(bench, run)
    bench.report(claimed)

    with pytest.raises(KeyError):
        bench.coordinator.advance_run(run.id)

    assert (run.status, run.statuses["begin"]) == ("running", "reported")


def test_a_broken_run_frees_its_conversation_when_it_is_cancelled(bench: Bench):
    run = bench.start("begin -> work")
    queued = following(bench, run, on_busy="enqueue")
    spoil(bench, run)

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    bench.play()

    assert (run.status, queued.status) == ("cancelled", "succeeded")


def test_a_run_whose_canvas_cannot_be_read_any_more_can_be_cancelled(bench: Bench):
    run = bench.start("begin -> work")
    with bench.database.transaction() as tx:
        tx.execute(
            text("update versions set dsl = cast(:dsl as json) where id = :id"),
            dsl=json.dumps({"components": 7}),
            id=run.row["version_id"],
        )
    fresh = bench.a_coordinator()

    status = type(bench.lifecycle)(fresh).cancel_run(bench.tenant_id, run.id)

    assert status == run.status == "cancelled"


# -- what a cancel leaves --------------------------------------------------------------------------------------------
def test_a_run_that_was_cancelled_is_no_business_of_the_sweepers(bench: Bench):
    run = bench.start("begin -> one, two")
    bench.play(until=lambda: "one" in run.statuses)
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    bench.outbox.lose()

    with bench.database.transaction() as tx:
        left = {run.id} & {*sweep_queries.runs_with_unapplied_reports(tx), *sweep_queries.open_runs(tx)}

    assert left == set()
    assert bench.outbox.of(ADVANCE) == []


def test_the_next_turn_after_a_cancel_answers(bench: Bench):
    run = bench.start("begin -> form -> say", form=FORM, say=says("Hello"))
    bench.play()
    bench.lifecycle.cancel_session(bench.tenant_id, run.conversation_id)

    after = bench.begun(
        bench.a_start(
            drawn=bench.draw("begin -> say", say=says("Hello")),
            conversation_id=run.conversation_id,
        )
    )
    bench.play()

    assert (after.status, after.said) == ("succeeded", "Hello")
