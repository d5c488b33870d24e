"""Cancel of runs in every state, including runs whose stored state is invalid."""

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
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run, new_reporter

EXPIRED = timedelta(milliseconds=-1)  # the length of a lease that has expired already


def start_next(bench: Bench, run: Run, **options: Any) -> Run:
    """Start a run with the next message of the same conversation."""
    row = run.row
    drawn = (row["canvas_id"], row["version_id"])
    return bench.start_run(bench.a_start(drawn=drawn, conversation_id=run.conversation_id, **options))


def corrupt(bench: Bench, run: Run, what: str = "state") -> None:
    """Make the stored state of the run invalid."""
    statements = {
        "state": text("update runs set state = cast('{}' as json) where id = :run_id"),
        "scopes": text("update scopes set state = cast('{}' as json) where run_id = :run_id"),
    }
    with bench.database.transaction() as tx:
        tx.execute(statements[what], run_id=run.id)


def record_cancel_requests(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Return a list to which the id of each run is added when its cancel is published to the workers."""
    requested: list[UUID] = []
    monkeypatch.setattr(bench.coordinator.dispatch.bus, "publish_cancel", requested.append)
    return requested


# -- a run in any state ----------------------------------------------------------------------------------------------
def test_cancel_without_a_live_worker_ends_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 0.0)
    run = bench.start("begin -> one, two -> join -> say", say=content("never"))
    bench.play(until=lambda: "one" in run.statuses)
    bench.claim(run, "one", lease=EXPIRED)  # its worker was killed
    bench.outbox.lose()

    status = bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    assert (status, run.statuses["two"]) == ("stopping", "closed")
    Sweeper(bench.coordinator).tick()
    bench.play()

    assert run.status == "cancelled"
    assert run.statuses == {"begin": "done", "one": "done", "two": "closed"}


def test_cancel_between_two_attempts_of_a_node_ends_the_run_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 0.0)
    run = bench.start("begin -> work")
    bench.play(until=lambda: "work" in run.statuses)
    bench.claim(run, "work", lease=EXPIRED)
    Sweeper(bench.coordinator).tick()

    status = bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    bench.play()

    assert status == run.status == "cancelled"
    assert run.activation("work").attempt == 1


def test_cancel_of_a_conversation_cancels_its_queued_runs_before_they_start(bench: Bench):
    first = bench.start("begin -> form -> say", form=FORM, say=content("never"))
    claimed = bench.claim(first, "begin")
    queued = [start_next(bench, first, on_busy="enqueue") for _ in range(3)]

    bench.lifecycle.cancel_session(bench.tenant_id, first.conversation_id)
    new_reporter(bench.coordinator, claimed).report(Finished(), None, {})
    bench.play()

    assert [run.status for run in (first, *queued)] == ["cancelled"] * 4
    assert [run.activations for run in queued] == [[]] * 3


@pytest.mark.parametrize("spelled", [str, lambda session: session.hex])
def test_cancel_key_of_a_conversation_cancels_its_queued_runs_too(bench: Bench, spelled: Callable[[UUID], str]):
    first = bench.start("begin -> work")
    queued = start_next(bench, first, on_busy="enqueue")
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{spelled(first.conversation_id)}-cancel", "x")

        bench.lifecycle.cancel_by_key(first.id)
        bench.play()

        assert (first.status, queued.status, queued.activations) == ("cancelled", "cancelled", [])
        assert client.keys("*-cancel") == []


def test_cancel_key_of_a_run_does_not_cancel_runs_queued_behind_it(bench: Bench):
    first = bench.start("begin -> work")
    queued = start_next(bench, first, on_busy="enqueue")
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{first.id}-cancel", "x")

        bench.lifecycle.cancel_by_key(first.id)
        bench.play()

    assert (first.status, queued.status) == ("cancelled", "succeeded")


def test_start_deletes_old_cancel_keys_unless_all_its_ids_are_new(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    cleared: list[UUID] = []
    clear = Bus.clear_cancel_keys

    def record_and_clear(bus: Bus, run_id: UUID, session: UUID) -> None:
        cleared.append(session)
        clear(bus, run_id, session)

    monkeypatch.setattr(Bus, "clear_cancel_keys", record_and_clear)
    first = bench.start("begin -> work")
    assert cleared == []
    bench.play()
    cleared.clear()
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{first.conversation_id}-cancel", "x")
        second = start_next(bench, first)
        assert client.keys("*-cancel") == []
    named = bench.start_run(replace(bench.a_start("begin -> work"), run_id=new_id()))

    assert cleared == [second.conversation_id, named.conversation_id]


def test_cancel_keys_of_many_open_runs_are_queried_in_batches(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("scheduler.messaging.redis_bus.RUNS_PER_QUERY", 2)
    open_runs = [bench.start("begin -> work") for _ in range(5)]
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{open_runs[4].id}-cancel", "x")

        Sweeper(bench.coordinator).tick()

    assert [run.status for run in open_runs] == ["running"] * 4 + ["cancelled"]


# -- cancel requests -------------------------------------------------------------------------------------------------
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
    run, requested = bench.start("begin -> work"), record_cancel_requests(bench, monkeypatch)

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert (run.status, requested) == ("cancelled", [])


def test_second_cancel_sends_the_cancel_request_again(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work")
    bench.claim(run, "begin")
    requested = record_cancel_requests(bench, monkeypatch)

    for _ in range(2):
        bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert requested == [run.id, run.id]


# -- runs with an invalid state --------------------------------------------------------------------------------------
@pytest.mark.parametrize("what", ["state", "scopes"])
def test_run_with_an_invalid_state_can_be_cancelled_and_its_attempts_stop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, what: str
):
    run = bench.start("begin -> one, two -> join")
    bench.play(until=lambda: "one" in run.statuses)
    claimed = bench.claim(run, "one")
    corrupt(bench, run, what)
    requested = record_cancel_requests(bench, monkeypatch)

    status = bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert status == run.status == "cancelled"
    assert requested == [run.id]
    assert run.events[-1].body == {"outputs": "Task has been canceled"}
    assert not bench.report(claimed)
    assert {row.status for row in run.activations} == {"done", "closed"}


def test_cancel_of_a_run_with_an_invalid_state_closes_its_open_stream(bench: Bench):
    run = bench.start("begin -> say", say=content("never"))
    bench.play(until=lambda: "say" in run.statuses)
    open_stream = run.row["open_stream"]
    corrupt(bench, run)

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    (stream,) = run.streams
    assert (stream.id, stream.closed_at) == (open_stream, run.row["last_event"])


def test_stopping_run_whose_state_becomes_invalid_is_cancelled(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    corrupt(bench, run)

    new_reporter(bench.coordinator, claimed).report(Finished(), None, {})
    bench.play()

    assert run.status == "cancelled"
    assert [event.number for event in run.events] == list(range(1, run.row["last_event"] + 1))


def test_advance_of_a_run_with_an_invalid_state_raises_and_changes_nothing(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    corrupt(bench, run)
    bench.report(claimed)

    with pytest.raises(KeyError):
        bench.coordinator.advance_run(run.id)

    assert (run.status, run.statuses["begin"]) == ("running", "reported")


def test_cancel_of_a_run_with_an_invalid_state_starts_the_next_queued_run(bench: Bench):
    run = bench.start("begin -> work")
    queued = start_next(bench, run, on_busy="enqueue")
    corrupt(bench, run)

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    bench.play()

    assert (run.status, queued.status) == ("cancelled", "succeeded")


def test_run_whose_canvas_cannot_be_parsed_can_be_cancelled(bench: Bench):
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


# -- after a cancel --------------------------------------------------------------------------------------------------
def test_cancelled_run_is_not_selected_by_the_sweeper(bench: Bench):
    run = bench.start("begin -> one, two")
    bench.play(until=lambda: "one" in run.statuses)
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    bench.outbox.lose()

    with bench.database.transaction() as tx:
        left = {run.id} & {*sweep_queries.runs_with_unapplied_reports(tx), *sweep_queries.open_runs(tx)}

    assert left == set()
    assert bench.outbox.of(ADVANCE) == []


def test_next_message_after_a_cancel_starts_a_new_run(bench: Bench):
    run = bench.start("begin -> form -> say", form=FORM, say=content("Hello"))
    bench.play()
    bench.lifecycle.cancel_session(bench.tenant_id, run.conversation_id)

    after = bench.start_run(
        bench.a_start(
            drawn=bench.draw("begin -> say", say=content("Hello")),
            conversation_id=run.conversation_id,
        )
    )
    bench.play()

    assert (after.status, after.text) == ("succeeded", "Hello")
