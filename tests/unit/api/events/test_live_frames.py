"""Frames of live streams: text of thinking told apart, rows, and members of a state by their versions."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.events.live_frames import delta_frames, ends_in_thinking, frame_of, steps_frame
from api.events.live_snapshots import MIN_PAUSE, Member, Snapshot, next_members, pause_after
from canvas.events.stream_sequencer import THINK_END, THINK_START, Position, TextDelta
from canvas.state.run_state import RunStatus
from store.runs.activation_list import ActivationListRow

STREAM = uuid4()
texts = st.text(alphabet=[*"ab\n", THINK_START, THINK_END], max_size=12)


def data_of(frame: bytes) -> Any:
    lines = frame.decode().split("\n")
    return json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))


def shown(parts: list[str], *, is_thinking: bool = False) -> list[dict[str, Any]]:
    """Return the data of the frames of successive deltas of one stream."""
    found: list[dict[str, Any]] = []
    end = 0
    for part in filter(None, parts):
        end += len(part)
        for frame, continues in delta_frames(
            TextDelta(Position(3, end), STREAM, part), "Message:0", is_thinking=is_thinking
        ):
            found.append(data_of(frame))
            is_thinking = continues
    return found


@given(st.lists(texts, max_size=6))
def test_texts_of_the_frames_are_the_text_of_the_stream(parts: list[str]) -> None:
    frames = shown(parts)

    assert "".join(frame["text"] for frame in frames) == "".join(parts)
    ends = [frame["offset"] + len(frame["text"]) for frame in frames]
    assert [frame["offset"] for frame in frames] == [0, *ends][: len(frames)]


@given(st.lists(texts, max_size=6))
def test_thinking_does_not_depend_on_how_the_text_was_split(parts: list[str]) -> None:
    split = [(char, frame["thinking"]) for frame in shown(parts) for char in frame["text"]]
    whole = [(char, frame["thinking"]) for frame in shown(["".join(parts)]) for char in frame["text"]]

    assert split == whole


@given(texts, texts)
def test_thinking_after_a_part_is_that_of_the_whole(before: str, after: str) -> None:
    begun = shown([before])
    whole = [(char, frame["thinking"]) for frame in shown([before + after]) for char in frame["text"]]

    resumed = shown([after], is_thinking=ends_in_thinking(before))

    assert [(char, frame["thinking"]) for frame in [*begun, *resumed] for char in frame["text"]] == whole


def test_thinking_is_one_frame_with_its_markers() -> None:
    frames = shown([f"a{THINK_START}bc{THINK_END}d"])

    assert [(frame["offset"], frame["text"], frame["thinking"]) for frame in frames] == [
        (0, "a", False),
        (1, f"{THINK_START}bc{THINK_END}", True),
        (5, "d", False),
    ]


def test_frame_without_rows_is_left_out() -> None:
    assert steps_frame(3, list[ActivationListRow](), {}) == b""


def test_frame_has_a_name_and_the_position_if_it_moves() -> None:
    assert frame_of("state", b"{}") == b"event: state\ndata: {}\n\n"
    assert frame_of("delta", b"{}", Position(3, 7)) == b"event: delta\nid: 3.7\ndata: {}\n\n"


# -- members -----------------------------------------------------------------------------------------------------------
members = st.dictionaries(st.sampled_from(["status", "counts", "nodes", "waits"]), st.integers(0, 2))


def snapshots_of(states: list[dict[str, int]]) -> list[Snapshot]:
    made: list[Snapshot] = []
    for number, values in enumerate(states, start=1):
        known = next_members(made[-1] if made else None, number, values)
        made.append(
            Snapshot(number, datetime.fromtimestamp(number, UTC), 0, number, RunStatus.RUNNING, known, b"", 1.0)
        )
    return made


@given(st.lists(members, min_size=1), st.sets(st.integers(0, 20)))
def test_client_that_misses_snapshots_has_all_members_of_the_last(
    states: list[dict[str, int]], missed: set[int]
) -> None:
    *earlier, last = snapshots_of(states)
    known: dict[str, Any] = {}
    versions: dict[str, int] = {}

    for snapshot in [*(each for each in earlier if each.number not in missed), last]:
        frame = snapshot.state_frame(versions)
        known |= data_of(frame) if frame else {}
        versions = dict(snapshot.versions)

    expected: dict[str, int] = {}
    for values in states:
        expected |= values
    assert {name: known[name] for name in expected} == expected
    assert known.keys() - expected <= {"now", "revision"}


@given(st.lists(members, min_size=2))
def test_state_has_only_members_that_differ(states: list[dict[str, int]]) -> None:
    snapshots = snapshots_of(states)
    expected: dict[str, int] = dict(states[0])

    for (before, after), values in zip(pairwise(snapshots), states[1:], strict=True):
        frame = after.state_frame(before.versions)

        changed = {name: value for name, value in values.items() if expected.get(name) != value}
        sent = data_of(frame) if frame else {}
        assert {name: value for name, value in sent.items() if name not in ("now", "revision")} == changed
        expected |= values


def test_member_without_a_value_stays_as_it_was() -> None:
    first, second = snapshots_of([{"waits": 1, "status": 1}, {"status": 2}])

    assert second.members["waits"] == first.members["waits"] == Member(1, b"1")


@given(st.floats(0, 60))
def test_snapshots_take_a_twentieth_of_the_time_at_most(seconds: float) -> None:  # T147
    pause = pause_after(seconds)

    assert pause >= MIN_PAUSE
    assert seconds <= 0.05 * (seconds + pause)


@pytest.mark.parametrize(
    ("text", "is_thinking"),
    [("", False), (THINK_START, True), (f"{THINK_START}a{THINK_END}", False), (f"a{THINK_END}{THINK_START}b", True)],
)
def test_text_after_the_last_beginning_is_of_thinking(text: str, is_thinking: bool) -> None:
    assert ends_in_thinking(text) is is_thinking
