"""Joining of the text deltas that arrive while the reader of a stream is busy."""

from itertools import pairwise
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from api.events.event_stream import join_deltas
from canvas.events.stream_sequencer import Position, TextDelta

STREAMS = [uuid4(), uuid4()]


def deltas_of(parts: list[tuple[int, str]]) -> list[TextDelta]:
    """Return text deltas of two message streams, in the order of `parts`."""
    ends = [0, 0]
    deltas: list[TextDelta] = []
    for stream, text in parts:
        ends[stream] += len(text)
        deltas.append(TextDelta(Position(3, ends[stream]), STREAMS[stream], text))
    return deltas


@given(st.lists(st.tuples(st.integers(0, 1), st.text(min_size=1))))
def test_consecutive_texts_are_joined_without_loss(parts: list[tuple[int, str]]):
    frames = deltas_of(parts)

    joined = [frame for frame in join_deltas([*frames]) if isinstance(frame, TextDelta)]

    for stream in STREAMS:
        assert "".join(f.text for f in joined if f.stream_id == stream) == "".join(
            f.text for f in frames if f.stream_id == stream
        )
    assert all(a.stream_id != b.stream_id for a, b in pairwise(joined))
    assert [frame.position for frame in joined[-1:]] == [frame.position for frame in frames[-1:]]
