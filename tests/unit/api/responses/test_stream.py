"""The events of a streamed response: items, deltas, and what a withdrawn text leaves."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from types import SimpleNamespace
from typing import Any, cast

from api.events.event_stream import Envelope
from api.http.errors import TokenEnded
from api.responses.stream import response_lines
from api.responses.wire import ResponseHead
from api.runs.turn import ActiveTurn
from canvas.events.stream_sequencer import Position
from canvas.ids import RunId, SessionId
from store.primitives.ids import new_id

HEAD = ResponseHead(RunId(new_id()), SessionId(new_id()), 1, "agent", "ada")
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
STREAM = "5" * 32


def message(offset: int, stream: str = STREAM, **data: Any) -> Envelope:
    return Envelope(Position(1, offset), {"data": {"content": "", **data}, "turn": stream, "offset": offset}, "message")


def event(name: str, **data: Any) -> Envelope:
    return Envelope(Position(2), {"data": data}, name)


FINISHED = event("workflow_finished", outputs={}, usage=USAGE)


def events_of(*envelopes: Envelope | Exception) -> list[dict[str, Any]]:
    """Return the events of a turn with these envelopes; an exception ends them."""

    async def follow() -> AsyncGenerator[Envelope]:
        for each in envelopes:
            if isinstance(each, Exception):
                raise each
            yield each

    async def load() -> Mapping[str, Any]:
        return {"status": "completed", "output": []}

    async def collect() -> list[bytes]:
        talk = SimpleNamespace(envelopes=follow, started=SimpleNamespace(queued=False))
        return [line async for line in response_lines(cast(ActiveTurn, talk), HEAD, load)]

    written = b"".join(asyncio.run(collect())).decode().split("\n\n")
    return [json.loads(frame.partition("\ndata: ")[2]) for frame in written if frame]


def deltas(events: list[dict[str, Any]], name: str) -> str:
    return "".join(each["delta"] for each in events if each["type"] == f"response.{name}.delta")


def test_reasoning_and_text_are_two_items_of_one_message() -> None:
    events = events_of(
        message(1, start_to_think=True),
        message(3, content="Hm"),
        message(4, end_to_think=True),
        message(7, content="Yes"),
        event("message_end"),
        FINISHED,
    )

    reasoning, text = events[-1]["response"]["output"]
    assert (deltas(events, "reasoning_text"), deltas(events, "output_text")) == ("Hm", "Yes")
    assert (reasoning["id"], text["id"]) == (f"rs_{STREAM}", f"msg_{STREAM}")
    assert (reasoning["status"], text["status"]) == ("completed", "completed")
    assert events[-1]["response"]["usage"]["total_tokens"] == 3
    assert [each["output_index"] for each in events if each["type"] == "response.output_item.done"] == [0, 1]


def test_text_that_a_retry_has_withdrawn_is_missing_from_the_done_events() -> None:
    events = events_of(
        message(0, content="Wrong"),
        event("message_reset", turn=STREAM, epoch=1, keep=0),
        message(0, content="Right"),
        event("message_end"),
        FINISHED,
    )

    (done,) = (each for each in events if each["type"] == "response.output_text.done")
    assert deltas(events, "output_text") == "WrongRight"
    assert done["text"] == "Right"
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Right"


def test_each_message_has_an_item_of_its_own() -> None:
    other = "6" * 32
    events = events_of(
        message(0, content="one"),
        event("message_end"),
        message(0, other, content="two"),
        event("message_end"),
        FINISHED,
    )

    assert [item["id"] for item in events[-1]["response"]["output"]] == [f"msg_{STREAM}", f"msg_{other}"]


def test_cancelled_run_ends_an_open_item_as_incomplete() -> None:
    events = events_of(
        message(0, content="Begun"), event("workflow_finished", outputs="Task has been canceled", usage=USAGE)
    )

    response = events[-1]["response"]
    assert (events[-1]["type"], response["status"]) == ("response.incomplete", "cancelled")
    assert response["output"][0]["status"] == "incomplete"


def test_failed_model_is_a_failed_response() -> None:
    events = events_of(
        message(0, content="**ERROR**: x"),
        event("message_end"),
        event("workflow_finished", outputs={}, usage=USAGE, has_model_error=True),
    )

    response = events[-1]["response"]
    assert (events[-1]["type"], response["status"]) == ("response.failed", "failed")
    assert response["error"] == {"code": "model_error", "type": "model_error", "message": "**ERROR**: x"}


def test_stream_ends_with_an_error_when_its_token_ends() -> None:
    events = events_of(message(0, content="Begun"), TokenEnded())

    assert (events[-1]["type"], events[-1]["code"]) == ("error", "invalid_api_key")
    assert events[-1]["error"]["run_id"] == HEAD.run_id.hex
    assert events[-1]["sequence_number"] == len(events) - 1


def test_run_whose_events_were_deleted_ends_with_the_stored_response() -> None:
    events = events_of()

    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"] == {"status": "completed", "output": []}
