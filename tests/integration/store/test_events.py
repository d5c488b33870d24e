"""The events of a run: in order, without gaps, each with the values it shows."""

import pytest

from canvas.events.run_events import Event
from canvas.outcome import Finished
from store.primitives.ids import new_id
from store.runs import events
from tests.builders import content
from tests.integration.engine import Bench

LINE = "begin -> one, two -> say"


def test_events_are_numbered_without_gaps_and_the_run_has_the_last_number(bench: Bench):
    run = bench.start(LINE, say=content("done"))
    bench.play()

    assert [event.number for event in run.events] == list(range(1, run.row["last_event"] + 1))
    assert (run.event_names[0], run.event_names[-1]) == ("workflow_started", "workflow_finished")


def test_reader_gets_the_events_after_its_position(bench: Bench):
    run = bench.start(LINE, say=content("done"))
    bench.play()
    every = run.events

    with bench.database.transaction() as tx:
        assert events.read_after(tx, run.id, 3) == every[3:]
        assert events.read_after(tx, run.id, 3, upto=5) == every[3:5]
        assert events.read_after(tx, run.id, 3, most=1) == every[3:4]
        assert events.read_after(tx, run.id, every[-1].number) == []


@pytest.mark.parametrize("count", [1, 2, 4, 5, 9])
def test_any_number_of_events_is_stored_unchanged(bench: Bench, count: int):
    appended = [
        Event("node_started", {"at": number, "what": {"z": None, "a": "\N{PILE OF POO}"}}, new_id(), f"node {number}")
        if number % 2
        else Event("message", {"at": number})
        for number in range(count)
    ]
    run = new_id()

    with bench.database.transaction() as tx:
        events.append(tx, run, 7, appended)
    with bench.database.statements() as tx:
        stored = events.read_after(tx, run, 6)

    assert [event.number for event in stored] == list(range(7, 7 + count))
    assert [Event(event.name, event.body, event.activation, event.node_id) for event in stored] == appended


def test_more_events_than_one_statement_takes_are_all_stored(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "APPEND_BATCH", 5)
    run = new_id()

    with bench.database.transaction() as tx:
        events.append(tx, run, 1, [Event("message", {"at": number}) for number in range(13)])
    with bench.database.statements() as tx:
        assert [event.body["at"] for event in events.read_after(tx, run, 0)] == list(range(13))


def test_node_finished_event_shows_its_outputs(bench: Bench):
    bench.does(one=lambda ctx: Finished(outputs={"answer": [1, {"b": None}]}))
    run = bench.start(LINE, say=content("{one@answer}"))
    bench.play()

    shown = {event.node_id: event.outputs for event in run.events if event.name == "node_finished"}

    assert shown["one"] is not None
    assert shown["one"]["answer"] == [1, {"b": None}]
    assert shown["say"] is not None
    assert shown["say"]["content"] == run.text


def test_node_started_event_shows_no_outputs(bench: Bench):
    run = bench.start(LINE, say=content("done"))
    bench.play()

    assert {event.outputs is None for event in run.events if event.name == "node_started"} == {True}


def test_order_of_the_keys_of_a_value_is_preserved(bench: Bench):
    bench.does(one=lambda ctx: Finished(outputs={"z": 1, "a": {"y": 1, "b": 2}, "m": 3}))
    run = bench.start(LINE, say=content("done"))
    bench.play()

    assert list(run.outputs("one")) == ["z", "a", "m"]
    assert list(run.outputs("one")["a"]) == ["y", "b"]
