"""A turn as one object, put together from its envelopes."""

from typing import Any

import pytest

from api.events.event_stream import Envelope
from api.runs.turn import TurnResult, compact_envelope
from canvas.events.stream_sequencer import Position


def envelope_of(name: str, data: Any, **body: Any) -> Envelope:
    envelope = {"event": name, "data": data, **body}
    return Envelope(Position(1), envelope, name)


def text_delta(text: str, offset: int, stream: str = "t") -> Envelope:
    return envelope_of("message", {"content": text}, turn=stream, offset=offset)


def turn_result(*envelopes: Envelope) -> TurnResult:
    result = TurnResult()
    for envelope in envelopes:
        result.add(envelope)
    return result


@pytest.mark.parametrize(("keep", "expected"), [(0, "new"), (3, "abcnew"), (5, "abcdenew"), (9, "abcdefnew")])
def test_text_removed_by_a_reset_is_not_part_of_the_answer(keep: int, expected: str) -> None:
    result = turn_result(
        text_delta("abcd", 0),
        text_delta("ef", 4),
        envelope_of("message_reset", {"turn": "t", "epoch": 1, "keep": keep}),
        text_delta("new", keep),
    )

    assert result.content == expected


def test_reset_changes_only_its_own_stream() -> None:
    result = turn_result(
        text_delta("one", 0, "a"),
        text_delta("two", 0, "b"),
        envelope_of("message_reset", {"turn": "b", "epoch": 1, "keep": 0}),
    )

    assert result.content == "one"


def test_thinking_is_part_of_the_answer_in_tags() -> None:
    result = turn_result(
        envelope_of("message", {"content": "", "start_to_think": True}, turn="t", offset=0),
        text_delta("hm", 1),
        envelope_of("message", {"content": "", "end_to_think": True}, turn="t", offset=3),
        text_delta("so", 4),
    )

    assert result.content == "<think>hm</think>so"


def test_reset_keeps_think_tags_whole() -> None:
    result = turn_result(
        envelope_of("message", {"content": "", "start_to_think": True}, turn="t", offset=0),
        text_delta("hm", 1),
        envelope_of("message", {"content": "", "end_to_think": True}, turn="t", offset=3),
        text_delta("wrong", 4),
        envelope_of("message_reset", {"turn": "t", "epoch": 1, "keep": 4}),
    )

    assert result.content == "<think>hm</think>"


def test_audio_is_not_part_of_the_answer() -> None:
    result = turn_result(
        text_delta("One.", 0), envelope_of("message", {"content": "", "audio": "0" * 32}, turn="t", offset=4)
    )

    assert result.content == "One."


def test_references_and_structured_outputs_are_merged() -> None:
    result = turn_result(
        envelope_of("message_end", {"reference": {"chunks": {"1": "a"}, "doc_aggs": {}}}),
        envelope_of("message_end", {"reference": {"chunks": {"2": "b"}}}),
        envelope_of("node_finished", {"component_id": "LLM:0", "outputs": {"structured": {"x": 1}}}),
        envelope_of("node_finished", {"component_id": "LLM:0", "outputs": {}}),
        envelope_of("workflow_finished", {"outputs": {}}),
    )

    data = result.body(return_trace=True)["data"]
    assert data["reference"] == {"chunks": {"1": "a", "2": "b"}, "doc_aggs": {}}
    assert data["structured"] == {"LLM:0": {"x": 1}}
    assert [len(entry["trace"]) for entry in data["trace"]] == [2]
    assert "trace" not in result.body(return_trace=False)["data"]


def test_compact_envelope_can_contain_the_trace_so_far() -> None:
    finished = envelope_of("node_finished", {"component_id": "LLM:0", "outputs": {}})
    trace = turn_result(finished).trace

    with_trace = compact_envelope(finished, trace)
    without = compact_envelope(finished, None)

    assert with_trace is not None
    assert with_trace.body["data"]["trace"] == trace
    assert without == finished
    assert compact_envelope(envelope_of("node_started", {}), None) is None
