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


def delta_chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


def call(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    return delta_chunk(tool_calls=[{"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}])


def read(*chunks: Any) -> list[Delta]:
    async def read_all() -> list[Delta]:
        return [delta async for delta in deltas_of_stream(Stream(*chunks))]

    return asyncio.run(read_all())


def answer(content: str | None = None, finish: str = "stop", **message: Any) -> list[Delta]:
    return deltas_of_answer({"choices": [{"message": {"content": content, **message}, "finish_reason": finish}]})


def test_stream_yields_reasoning_text_and_usage():
    deltas = read(
        delta_chunk(role="assistant", content=""),
        delta_chunk(reasoning_content="a"),
        delta_chunk(reasoning="b"),
        delta_chunk(content="c"),
        delta_chunk("stop"),
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
    )

    assert deltas == [ReasoningDelta("a"), ReasoningDelta("b"), ContentDelta("c"), UsageDelta(Usage(3, 2, 5))]


def test_last_of_several_usages_is_used():
    first = {**delta_chunk(content="a"), "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    last = {**delta_chunk("stop"), "usage": {"prompt_tokens": 3, "completion_tokens": 2}}

    assert read(first, last)[-1] == UsageDelta(Usage(3, 2, 5))


def test_usage_inside_a_choice_is_found():
    chunk = {"choices": [{"delta": {"content": "a"}, "usage": {"prompt_tokens": 1, "completion_tokens": 1}}]}

    assert read(chunk)[-1] == UsageDelta(Usage(1, 1, 2))


def test_inconsistent_token_split_is_dropped_and_the_total_is_used():
    chunk = {**delta_chunk(content="a"), "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 5}}

    assert read(chunk)[-1] == UsageDelta(Usage(0, 0, 5))


def test_usage_of_zero_counts_as_missing():
    assert read({**delta_chunk(content="a"), "usage": {"total_tokens": 0}}) == [ContentDelta("a")]


def test_tool_calls_are_assembled_from_their_deltas():
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
def test_chunks_without_content_are_ignored(chunk: Any):
    assert read(chunk, delta_chunk(content="a"), chunk) == [ContentDelta("a")]


def test_truncated_answer_ends_with_a_notice_in_its_language():
    english, chinese = (
        read(delta_chunk("length", content="It was")),
        read(delta_chunk("length", content="从前有一个人")),
    )

    assert "truncated by your chosen LLM" in english[-1].text
    assert "回答已经被大模型截断" in chinese[-1].text


def test_empty_stream_is_a_server_error():
    with pytest.raises(ProviderError) as raised:
        read()

    assert raised.value.code is ErrorCode.SERVER_ERROR


def test_answer_blocked_by_a_content_filter_is_a_failure():
    with pytest.raises(ProviderError) as raised:
        read(delta_chunk("content_filter"))

    assert raised.value.code is ErrorCode.CONTENT_FILTERED


def test_empty_answer_is_not_a_failure():
    assert read(delta_chunk("stop", content="")) == []
    assert answer("") == []


def test_refusal_is_returned_as_text():
    assert answer(None, refusal="I cannot.") == [ContentDelta("I cannot.")]


def test_a_stream_is_closed_when_it_has_been_read():
    stream = Stream(delta_chunk(content="a"))

    async def exhaust() -> None:
        async for _ in deltas_of_stream(stream):
            pass

    asyncio.run(exhaust())

    assert stream.closed == 1


def test_complete_answer_is_read_like_a_stream():
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
def test_error_message_is_found_in_every_known_form(body: Any, message: str | None):
    assert message_in(body) == message
