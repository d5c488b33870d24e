"""A turn as one object, put together from its envelopes."""

from typing import Any

import pytest

from api.runs.event_stream import Envelope
from api.runs.turn import TurnResult, compact_envelope
from canvas.events.stream_sequencer import Position


def wired(name: str, data: Any, **body: Any) -> Envelope:
    envelope = {"event": name, "data": data, **body}
    return Envelope(Position(1), envelope, name)


def said(text: str, offset: int, turn: str = "t") -> Envelope:
    return wired("message", {"content": text}, turn=turn, offset=offset)


def told(*envelopes: Envelope) -> TurnResult:
    whole = TurnResult()
    for envelope in envelopes:
        whole.add(envelope)
    return whole


@pytest.mark.parametrize(("keep", "expected"), [(0, "new"), (3, "abcnew"), (5, "abcdenew"), (9, "abcdefnew")])
def test_text_removed_by_a_reset_is_not_part_of_the_answer(keep: int, expected: str) -> None:
    whole = told(
        said("abcd", 0),
        said("ef", 4),
        wired("message_reset", {"turn": "t", "epoch": 1, "keep": keep}),
        said("new", keep),
    )

    assert whole.content == expected


def test_reset_changes_only_its_own_stream() -> None:
    whole = told(said("one", 0, "a"), said("two", 0, "b"), wired("message_reset", {"turn": "b", "epoch": 1, "keep": 0}))

    assert whole.content == "one"


def test_thinking_is_part_of_the_answer_in_tags() -> None:
    whole = told(
        wired("message", {"content": "", "start_to_think": True}, turn="t", offset=0),
        said("hm", 1),
        wired("message", {"content": "", "end_to_think": True}, turn="t", offset=3),
        said("so", 4),
    )

    assert whole.content == "<think>hm</think>so"


def test_reset_keeps_think_tags_whole() -> None:
    whole = told(
        wired("message", {"content": "", "start_to_think": True}, turn="t", offset=0),
        said("hm", 1),
        wired("message", {"content": "", "end_to_think": True}, turn="t", offset=3),
        said("wrong", 4),
        wired("message_reset", {"turn": "t", "epoch": 1, "keep": 4}),
    )

    assert whole.content == "<think>hm</think>"


def test_audio_is_not_part_of_the_answer() -> None:
    whole = told(said("One.", 0), wired("message", {"content": "", "audio": "0" * 32}, turn="t", offset=4))

    assert whole.content == "One."


def test_references_and_structured_outputs_are_merged() -> None:
    whole = told(
        wired("message_end", {"reference": {"chunks": {"1": "a"}, "doc_aggs": {}}}),
        wired("message_end", {"reference": {"chunks": {"2": "b"}}}),
        wired("node_finished", {"component_id": "LLM:0", "outputs": {"structured": {"x": 1}}}),
        wired("node_finished", {"component_id": "LLM:0", "outputs": {}}),
        wired("workflow_finished", {"outputs": {}}),
    )

    data = whole.body(return_trace=True)["data"]
    assert data["reference"] == {"chunks": {"1": "a", "2": "b"}, "doc_aggs": {}}
    assert data["structured"] == {"LLM:0": {"x": 1}}
    assert [len(entry["trace"]) for entry in data["trace"]] == [2]
    assert "trace" not in whole.body(return_trace=False)["data"]


def test_the_compact_list_may_carry_the_trace_so_far() -> None:
    finished = wired("node_finished", {"component_id": "LLM:0", "outputs": {}})
    trace = told(finished).trace

    with_trace = compact_envelope(finished, trace)
    without = compact_envelope(finished, None)

    assert with_trace is not None
    assert with_trace.body["data"]["trace"] == trace
    assert without == finished
    assert compact_envelope(wired("node_started", {}), None) is None
