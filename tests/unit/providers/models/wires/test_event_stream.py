"""Server-sent events, cut anywhere."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import ErrorCode, ProviderError
from providers.models.wires.event_stream import SseParser, parse_json


def read(*pieces: bytes) -> list[bytes]:
    events = SseParser()
    return [data for piece in pieces for data in events.feed(piece)]


@given(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.sets(st.integers(1, 60)))
def test_events_are_the_same_however_they_are_cut_and_lines_end(end: bytes, cuts: set[int]):
    text = b": hello|data: one||event: x|data:two|data: three|id: 7||data: n\xc3\xa9||".replace(b"|", end)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})

    found = read(*(text[start:stop] for start, stop in pairwise(places)))

    assert found == [b"one", b"two\nthree", b"n\xc3\xa9"]


def test_an_event_without_an_end_is_none():
    assert read(b"data: whole\n\ndata: half\n") == [b"whole"]


def test_events_without_data_are_left_out():
    assert read(b"event: ping\n\n\n\ndata:\n\ndata: x\n\n") == [b"x"]


@pytest.mark.parametrize(
    "text", [b"<html>", b'{"a": ', b'"\xff"', b"[" * 100_000], ids=["page", "half", "bytes", "deep"]
)
def test_event_that_is_not_json_is_a_server_error(text: bytes):
    with pytest.raises(ProviderError) as failed:
        parse_json(text)

    assert failed.value.code is ErrorCode.SERVER_ERROR


def test_a_character_may_come_in_two_halves():
    assert parse_json(rb'"\ud83d"') + parse_json(rb'"\ude00"') == "\ud83d\ude00"
