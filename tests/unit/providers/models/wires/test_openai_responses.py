import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from providers.errors import ErrorCode, ProviderError
from providers.models.types.chat import CallsDelta, ContentDelta, Delta, ReasoningDelta, ToolCall, Usage, UsageDelta
from providers.models.wires.openai_responses import deltas_of_answer, deltas_of_stream, message_in


class Stream:
    """Chunks as a provider sends them."""

    def __init__(self, *chunks: Any) -> None:
        self._chunks = chunks
        self.closed = 0

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self._chunks:
            yield chunk

    async def close(self) -> None:
        self.closed += 1


def piece(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


def call(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    return piece(tool_calls=[{"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}])


def read(*chunks: Any) -> list[Delta]:
    async def all_of() -> list[Delta]:
        return [delta async for delta in deltas_of_stream(Stream(*chunks))]

    return asyncio.run(all_of())


def answer(content: str | None = None, finish: str = "stop", **message: Any) -> list[Delta]:
    return deltas_of_answer({"choices": [{"message": {"content": content, **message}, "finish_reason": finish}]})


def test_a_stream_is_text_reasoning_calls_and_usage():
    deltas = read(
        piece(role="assistant", content=""),
        piece(reasoning_content="a"),
        piece(reasoning="b"),
        piece(content="c"),
        piece("stop"),
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
    )

    assert deltas == [ReasoningDelta("a"), ReasoningDelta("b"), ContentDelta("c"), UsageDelta(Usage(3, 2, 5))]


def test_of_several_usages_the_last_counts():
    first = {**piece(content="a"), "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    last = {**piece("stop"), "usage": {"prompt_tokens": 3, "completion_tokens": 2}}

    assert read(first, last)[-1] == UsageDelta(Usage(3, 2, 5))


def test_usage_inside_a_choice_is_found():
    chunk = {"choices": [{"delta": {"content": "a"}, "usage": {"prompt_tokens": 1, "completion_tokens": 1}}]}

    assert read(chunk)[-1] == UsageDelta(Usage(1, 1, 2))


def test_a_split_that_does_not_add_up_is_dropped_and_the_total_kept():
    chunk = {**piece(content="a"), "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 5}}

    assert read(chunk)[-1] == UsageDelta(Usage(0, 0, 5))


def test_usage_of_zero_counts_as_missing():
    assert read({**piece(content="a"), "usage": {"total_tokens": 0}}) == [ContentDelta("a")]


def test_tool_calls_are_put_together_from_their_pieces():
    deltas = read(
        call(0, "c0", "search", ""),
        call(0, None, None, '{"q":'),
        call(1, "c1", "look", "{}"),
        call(0, None, None, ' "x"}'),
    )

    assert deltas == [CallsDelta((ToolCall("c0", "search", '{"q": "x"}'), ToolCall("c1", "look", "{}")))]


def test_calls_with_the_same_index_are_distinguished_by_id():
    deltas = read(call(0, "c0", "search", "{}"), call(0, "c1", "look", "{}"))

    assert deltas == [CallsDelta((ToolCall("c0", "search", "{}"), ToolCall("c1", "look", "{}")))]


def test_calls_without_id_index_or_text_get_defaults():
    deltas = read(call(None, None, "search", {"q": 1}), call(None, None, None, None))

    assert deltas == [CallsDelta((ToolCall("call_0", "search", '{"q": 1}'),))]


@pytest.mark.parametrize("chunk", [{}, {"choices": None}, {"choices": [{"delta": None}]}, {"choices": [3]}, "?"])
def test_chunks_that_say_nothing_are_passed_over(chunk: Any):
    assert read(chunk, piece(content="a"), chunk) == [ContentDelta("a")]


def test_truncated_answer_ends_with_a_notice_in_its_language():
    english, chinese = read(piece("length", content="It was")), read(piece("length", content="从前有一个人"))

    assert "truncated by your chosen LLM" in english[-1].text
    assert "回答已经被大模型截断" in chinese[-1].text


def test_a_stream_that_ends_before_it_begins_is_a_failure_that_may_pass():
    with pytest.raises(ProviderError) as raised:
        read()

    assert raised.value.code is ErrorCode.SERVER_ERROR


def test_an_answer_that_a_filter_withheld_is_a_failure():
    with pytest.raises(ProviderError) as raised:
        read(piece("content_filter"))

    assert raised.value.code is ErrorCode.CONTENT_FILTERED


def test_an_empty_answer_is_an_answer():
    assert read(piece("stop", content="")) == []
    assert answer("") == []


def test_refusal_is_returned_as_text():
    assert answer(None, refusal="I cannot.") == [ContentDelta("I cannot.")]


def test_a_stream_is_closed_when_it_has_been_read():
    stream = Stream(piece(content="a"))

    async def exhaust() -> None:
        async for _ in deltas_of_stream(stream):
            pass

    asyncio.run(exhaust())

    assert stream.closed == 1


def test_a_whole_answer_is_read_like_a_stream():
    calls = [{"id": "c0", "function": {"name": "search", "arguments": "{}"}}]

    assert answer("a", reasoning_content="hm", tool_calls=calls) == [
        ReasoningDelta("hm"),
        ContentDelta("a"),
        CallsDelta((ToolCall("c0", "search", "{}"),)),
    ]


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("<html>", ErrorCode.MODEL_ERROR),
        ({"choices": []}, ErrorCode.MODEL_ERROR),
        ({"error": {"message": "429 slow down"}}, ErrorCode.RATE_LIMIT_EXCEEDED),
    ],
)
def test_a_reply_without_an_answer_is_a_failure(reply: Any, code: ErrorCode):
    with pytest.raises(ProviderError) as raised:
        deltas_of_answer(reply)

    assert raised.value.code is code


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "a", "code": 1}}, "a"),
        ({"message": "a"}, "a"),
        ({"error": "a"}, "a"),
        ({"detail": [{"loc": ["x"]}]}, '[{"loc": ["x"]}]'),
        ("a", "a"),
        ({}, None),
        (None, None),
        ([1], None),
    ],
)
def test_the_message_of_an_error_is_found_in_all_its_places(body: Any, message: str | None):
    assert message_in(body) == message
