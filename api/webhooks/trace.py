"""The trace of a webhook test, for an editor that polls.

A poller first requests a start time, then the first test after it, then the events of that test that are newer than
the last one it got. Everything is read from the rows of the run. A `message` has the time at which its stream was
closed, and is not shown earlier, so that each poll gets whole messages.
"""

import base64
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.events.event_stream import Envelope
from canvas.events.run_events import CANCELLED_TEXT, MESSAGE, MESSAGE_END, RUN_FAILED, USER_INPUTS, WORKFLOW_FINISHED
from store.agents.webhook_runs import WebhookTest

TIME_STEP = 0.000001  # seconds added between events that were stored together, so that each has its own time

_PURPOSE = b"easel: ids of webhook tests"


@dataclass(frozen=True, slots=True)
class Trace:
    """The events of one test with their times, and whether more can follow."""

    events: Sequence[Mapping[str, Any]]
    is_finished: bool


def webhook_id(secret: str, start: float) -> str:
    """Return the id of the test that began at this time; it is signed, so clients cannot make one."""
    key = hmac.digest(secret.encode(), _PURPOSE, "sha256")
    return base64.urlsafe_b64encode(hmac.digest(key, f"{start:.6f}".encode(), "sha256")).decode()


def find_start_after(tests: Iterable[WebhookTest], since: float) -> float | None:
    """Return when the first test after a time began, or None."""
    return next((start for start in map(start_of, tests) if start > since), None)


def start_of(test: WebhookTest) -> float:
    """Return when a test began, in seconds since 1970."""
    return test.created_at.timestamp()


def find_test(tests: Iterable[WebhookTest], secret: str, test_id: str) -> WebhookTest | None:
    """Return the test of an id, or None."""
    requested = test_id.encode("utf-8", "replace")
    known = ((test, webhook_id(secret, start_of(test)).encode()) for test in tests)
    return next((test for test, known_id in known if hmac.compare_digest(known_id, requested)), None)


def build_trace(wired: Sequence[Envelope], times: Sequence[tuple[int, datetime]], start: float) -> Trace:
    """Return the trace of a run's envelopes. `times`: when the event of each number was stored."""
    moments = _rising_times(times)
    shown: list[dict[str, Any]] = []
    turn: list[dict[str, Any]] = []
    for one in wired:
        if one.name == MESSAGE:
            turn.append(one.body)
            continue
        moment = moments.get(one.position.event)
        if moment is None:
            break  # stored after the times were read: the next poll shows it
        if one.name in (MESSAGE_END, RUN_FAILED, WORKFLOW_FINISHED):
            shown += [{"ts": moment, **message} for message in turn]
            turn.clear()
        shown += _trace_events(one, moment, start)
    return Trace(shown, bool(shown) and shown[-1].get("event") == "finished")


def trace_page(trace: Trace, test_id: str, since: float) -> dict[str, Any]:
    """Return the part of a trace that is newer than a time, as the reply to a poll."""
    newer = [event for event in trace.events if event["ts"] > since]
    return {
        "webhook_id": test_id,
        "events": newer,
        "next_since_ts": newer[-1]["ts"] if newer else since,
        "finished": trace.is_finished,
    }


def _rising_times(times: Sequence[tuple[int, datetime]]) -> dict[int, float]:
    """Return the time of each event number, made to rise with the numbers: an earlier advance may commit later."""
    moments: dict[int, float] = {}
    last = 0.0
    for number, stored_at in times:
        moments[number] = last = max(stored_at.timestamp(), last + TIME_STEP)
    return moments


def _trace_events(one: Envelope, moment: float, start: float) -> list[dict[str, Any]]:
    """Return an event, followed by the result after the last event of a turn."""
    end = {"ts": moment, "event": "finished", "elapsed_time": max(0.0, moment - start)}
    if one.name == RUN_FAILED:
        error = {"ts": moment, "event": "error", "message": one.body["message"], "error_type": "RunFailed"}
        return [error, {**end, "success": False}]
    if one.name in (WORKFLOW_FINISHED, USER_INPUTS):
        is_cancelled = one.body["data"].get("outputs") == CANCELLED_TEXT
        return [{"ts": moment, **one.body}, {**end, "success": not is_cancelled}]
    return [{"ts": moment, **one.body}]
