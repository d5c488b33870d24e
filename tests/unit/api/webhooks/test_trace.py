"""The trace of a webhook test, and the pages that a poller reads."""

from datetime import UTC, datetime, timedelta
from typing import Any

from api.events.event_stream import Envelope
from api.webhooks.trace import build_trace, find_start_after, find_test, start_of, trace_page, webhook_id
from canvas.events.stream_sequencer import Position
from store.agents.webhook_runs import WebhookTest
from store.primitives.ids import new_id

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
START = NOON.timestamp()


def envelope_of(number: int, name: str, **data: Any) -> Envelope:
    body = (
        {"event": name, "data": data} if name != "run_failed" else {"code": 500, "message": "It broke.", "data": False}
    )
    return Envelope(Position(number), body, name)


def message_envelope(number: int, text: str) -> Envelope:
    return envelope_of(number, "message", content=text)


def at(*seconds: float) -> list[tuple[int, datetime]]:
    """Return the times of the events 1, 2, ..., given in seconds after noon."""
    return [(number, NOON + timedelta(seconds=after)) for number, after in enumerate(seconds, start=1)]


def names(events: Any) -> list[str]:
    return [event["event"] for event in events]


ALL = [
    envelope_of(1, "workflow_started"),
    envelope_of(2, "node_started"),
    message_envelope(2, "Hel"),
    message_envelope(2, "lo"),
    envelope_of(3, "message_end"),
    envelope_of(4, "workflow_finished", outputs={}),
]


def test_trace_of_an_ended_run_ends_with_its_result() -> None:
    trace = build_trace(ALL, at(0, 1, 2, 3), START)

    assert trace.is_finished
    assert names(trace.events[-2:]) == ["workflow_finished", "finished"]
    assert trace.events[-1] == {"ts": START + 3, "event": "finished", "elapsed_time": 3.0, "success": True}


def test_failed_and_cancelled_runs_are_not_successful_in_the_trace() -> None:
    failed = build_trace([envelope_of(1, "workflow_started"), envelope_of(2, "run_failed")], at(0, 1), START)
    cancelled = build_trace([envelope_of(1, "workflow_finished", outputs="Task has been canceled")], at(1), START)

    assert names(failed.events) == ["workflow_started", "error", "finished"]
    assert failed.events[1]["message"] == "It broke."
    assert [trace.events[-1]["success"] for trace in (failed, cancelled)] == [False, False]


def test_text_is_shown_once_its_stream_is_closed() -> None:
    open_stream = build_trace(ALL[:4], at(0, 1), START)
    closed = build_trace(ALL[:5], at(0, 1, 2), START)

    assert names(open_stream.events) == ["workflow_started", "node_started"]
    assert names(closed.events[2:]) == ["message", "message", "message_end"]
    assert {event["ts"] for event in closed.events[2:]} == {START + 2}
    assert not closed.is_finished


def test_successive_polls_return_every_event_once() -> None:
    times = at(0, 0, 2, 1)  # two stored together, and a later advance whose transaction began earlier
    since, seen = START - 1, list[Any]()

    for stored in range(1, len(ALL) + 1):
        shown = ALL[:stored]
        page = trace_page(build_trace(shown, times[: shown[-1].position.event], START), "id", since)
        seen += page["events"]
        since = page["next_since_ts"]

    assert names(seen) == [*(one.body["event"] for one in ALL), "finished"]
    assert trace_page(build_trace(ALL, times, START), "id", since) == {
        "webhook_id": "id",
        "events": [],
        "next_since_ts": since,
        "finished": True,
    }


def test_an_event_that_was_stored_after_the_times_were_read_waits_for_the_next_poll() -> None:
    assert names(build_trace(ALL, at(0, 1, 2), START).events)[-1] == "message_end"


def test_poll_returns_the_first_test_after_its_time() -> None:
    trials = [WebhookTest(new_id(), NOON + timedelta(seconds=seconds)) for seconds in (0, 5, 9)]

    assert find_start_after(trials, START - 1) == START
    assert find_start_after(trials, START) == START + 5
    assert find_start_after(trials, START + 9) is None


def test_id_with_a_wrong_signature_finds_no_test() -> None:
    trials = [WebhookTest(new_id(), NOON), WebhookTest(new_id(), NOON + timedelta(microseconds=1))]
    ids = [webhook_id("secret", start_of(trial)) for trial in trials]

    assert [find_test(trials, "secret", each) for each in ids] == trials
    for wrong in ("", "x", "ä\ud800", str(START), webhook_id("another", START), ids[0][:-2]):
        assert find_test(trials, "secret", wrong) is None
