"""What came while a listener was busy reaches it as one."""

from itertools import pairwise
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from api.runs.event_stream import _join_deltas  # pyright: ignore[reportPrivateUsage]
from canvas.events.stream_sequencer import Position, TextDelta

TURNS = [uuid4(), uuid4()]


def said_in_parts(parts: list[tuple[int, str]]) -> list[TextDelta]:
    """Parts of turns' texts, one after another."""
    ends = [0, 0]
    found: list[TextDelta] = []
    for turn, text in parts:
        ends[turn] += len(text)
        found.append(TextDelta(Position(3, ends[turn]), TURNS[turn], text))
    return found


@given(st.lists(st.tuples(st.integers(0, 1), st.text(min_size=1))))
def test_consecutive_texts_are_joined_without_loss(parts: list[tuple[int, str]]):
    frames = said_in_parts(parts)

    joined = [frame for frame in _join_deltas([*frames]) if isinstance(frame, TextDelta)]

    for turn in TURNS:
        assert "".join(f.text for f in joined if f.stream_id == turn) == "".join(
            f.text for f in frames if f.stream_id == turn
        )
    assert all(a.stream_id != b.stream_id for a, b in pairwise(joined))
    assert [frame.position for frame in joined[-1:]] == [frame.position for frame in frames[-1:]]
