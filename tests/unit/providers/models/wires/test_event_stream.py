"""Parsing of server-sent events that are split at any byte."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import ErrorCode, ProviderError
from providers.models.wires import event_stream
from providers.models.wires.event_stream import Chunks, parse_json


class Body(httpx2.AsyncByteStream):
    """The body of a reply, in the parts in which it arrives."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


def reply(*parts: bytes, **headers: str) -> httpx2.Response:
    request = httpx2.Request("POST", "http://models.test/chat")
    return httpx2.Response(200, headers=headers, stream=Body(*parts), request=request)


def read(*parts: bytes, **headers: str) -> list[Any]:
    async def collect() -> list[Any]:
        return [chunk async for chunk in Chunks(reply(*parts, **headers))]

    return asyncio.run(collect())


@given(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.sets(st.integers(1, 60)))
def test_events_are_the_same_for_any_split_and_line_ending(end: bytes, cuts: set[int]):
    text = b': hello|data: 1||event: x|data:[2,|data: 3]|id: 7||data: "n\xc3\xa9"||'.replace(b"|", end)
    offsets = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})

    chunks = read(*(text[start:stop] for start, stop in pairwise(offsets)), **{"content-type": "text/event-stream"})

    assert chunks == [1, [2, 3], "n\u00e9"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/json; charset=latin-1", "text/event-stream"])
def test_reply_is_read_as_utf8_events_whatever_its_content_type(content_type: str):
    assert read(b'data: "\xc3\xa9"\n\n', **{"content-type": content_type}) == ["\u00e9"]


def test_incomplete_event_is_not_returned():
    assert read(b"data: 1\n\ndata: 2\n") == [1]


def test_events_without_data_are_ignored():
    assert read(b"event: ping\n\n\n\ndata:\n\ndata: 1\n\n") == [1]


def test_nothing_is_read_after_the_event_that_ends_the_stream():
    assert read(b"data: 1\n\ndata: [DONE]\n\ndata: 2\n\n") == [1]


def test_event_beyond_the_limit_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_stream, "MAX_EVENT_BYTES", 100)

    with pytest.raises(httpx2.RequestError, match="100 byte"):
        read(b'data: "', *[b"x" * 10] * 20)


@pytest.mark.parametrize(
    "text", [b"<html>", b'{"a": ', b'"\xff"', b"[" * 100_000], ids=["page", "half", "bytes", "deep"]
)
def test_event_that_is_not_json_is_a_server_error(text: bytes):
    with pytest.raises(ProviderError) as failed:
        parse_json(text)

    assert failed.value.code is ErrorCode.SERVER_ERROR


def test_surrogate_pair_may_be_split_over_two_events():
    assert parse_json(rb'"\ud83d"') + parse_json(rb'"\ude00"') == "\ud83d\ude00"
