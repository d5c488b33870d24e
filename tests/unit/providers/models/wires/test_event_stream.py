"""Parsing of server-sent events that are split at any byte."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import ErrorCode, ProviderError
from providers.models.wires.event_stream import SseParser, parse_json


def read(*chunks: bytes) -> list[bytes]:
    events = SseParser()
    return [data for chunk in chunks for data in events.feed(chunk)]


@given(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.sets(st.integers(1, 60)))
def test_events_are_the_same_for_any_split_and_line_ending(end: bytes, cuts: set[int]):
    text = b": hello|data: one||event: x|data:two|data: three|id: 7||data: n\xc3\xa9||".replace(b"|", end)
    offsets = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})

    events = read(*(text[start:stop] for start, stop in pairwise(offsets)))

    assert events == [b"one", b"two\nthree", b"n\xc3\xa9"]


def test_incomplete_event_is_not_returned():
    assert read(b"data: whole\n\ndata: half\n") == [b"whole"]


def test_events_without_data_are_ignored():
    assert read(b"event: ping\n\n\n\ndata:\n\ndata: x\n\n") == [b"x"]


@pytest.mark.parametrize(
    "text", [b"<html>", b'{"a": ', b'"\xff"', b"[" * 100_000], ids=["page", "half", "bytes", "deep"]
)
def test_event_that_is_not_json_is_a_server_error(text: bytes):
    with pytest.raises(ProviderError) as failed:
        parse_json(text)

    assert failed.value.code is ErrorCode.SERVER_ERROR


def test_surrogate_pair_may_be_split_over_two_events():
    assert parse_json(rb'"\ud83d"') + parse_json(rb'"\ude00"') == "\ud83d\ude00"
