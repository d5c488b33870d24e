"""A listener gets the same events and texts whatever Redis loses, repeats or delays, and wherever it reconnects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import InvalidRequest
from canvas.events.stream_sequencer import (
    AUDIO_END,
    AUDIO_START,
    THINK_END,
    THINK_START,
    Position,
    SequencedEvent,
    StreamSequencer,
    TextDelta,
    markers_to_tags,
    message_data,
    without_audio,
)

NAMES = UUID(int=7)
FILE = UUID(int=9).hex
SOUND = f"{AUDIO_START}{FILE}{AUDIO_END}"


@dataclass(frozen=True)
class Row:
    """An event as it is stored."""

    number: int
    name: str
    activation: UUID | None = None
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamState:
    """The row of a message stream."""

    id: UUID
    epoch: int = 0
    text: str = ""
    opened_at: int = 0  # 0: not yet
    epoch_at: int = 0
    closed_at: int | None = None


@dataclass
class Delta:
    stream_id: UUID
    epoch: int
    offset: int
    text: str


@dataclass
class Run:
    """A run while it is streamed: the stored rows, and the text deltas that were published."""

    events: list[Row] = field(default_factory=list)
    streams: dict[UUID, StreamState] = field(default_factory=dict)
    written: dict[UUID, str] = field(default_factory=dict)  # what the writer has written, ahead of the row
    deltas: list[Delta] = field(default_factory=list)

    def emit(self, name: str, stream_id: UUID | None = None, **body: Any) -> int:
        self.events.append(Row(len(self.events) + 1, name, stream_id, body))
        return len(self.events)

    @property
    def open(self) -> StreamState | None:
        return next((stream for stream in self.streams.values() if stream.opened_at and stream.closed_at is None), None)

    def add_stream(self) -> UUID:
        stream_id = uuid5(NAMES, str(len(self.streams)))
        self.streams[stream_id] = StreamState(stream_id)
        self.written[stream_id] = ""
        return stream_id

    def open_stream(self, stream_id: UUID, *, is_default: bool = False) -> None:
        number = len(self.events) if is_default else self.emit("node_started", stream_id)
        self.streams[stream_id] = replace(self.streams[stream_id], opened_at=number, epoch_at=number)

    def append_text(self, stream_id: UUID, text: str) -> None:
        state = self.streams[stream_id]
        self.deltas.append(Delta(stream_id, state.epoch, len(self.written[stream_id]), text))
        self.written[stream_id] += text

    def store_text(self, stream_id: UUID) -> None:
        self.streams[stream_id] = replace(self.streams[stream_id], text=self.written[stream_id])

    def truncate(self, stream_id: UUID, length: int, *, names_length: bool) -> None:
        state = self.streams[stream_id]
        number = state.epoch_at
        if state.opened_at:
            number = self.emit(
                "message_reset", stream_id, **({"keep": length, "epoch": state.epoch + 1} if names_length else {})
            )
        retained = self.written[stream_id][:length]
        self.written[stream_id] = retained
        self.streams[stream_id] = replace(state, epoch=state.epoch + 1, text=retained, epoch_at=number)

    def close_stream(self, stream_id: UUID, *, deferred: int = 0, without_event: bool = False) -> None:
        self.store_text(stream_id)
        if not without_event:
            self.emit("message_end", stream_id)
        for _ in range(deferred):
            self.emit("node_finished")
        self.streams[stream_id] = replace(self.streams[stream_id], closed_at=len(self.events))
        self.emit("node_finished", stream_id)

    def rows(self, after: int, limit: int = 500) -> tuple[list[Row], list[StreamState]]:
        events = [event for event in self.events if event.number > after][:limit]
        streams = [t for t in self.streams.values() if t.opened_at and (t.closed_at is None or t.closed_at >= after)]
        return events, streams

    def texts(self) -> dict[UUID, str]:
        return {stream.id: stream.text for stream in self.streams.values() if stream.text and stream.opened_at}


@dataclass
class Listener:
    """A client: the events and texts that it has received, and checks of their order."""

    sequencer: StreamSequencer[Row] = field(default_factory=StreamSequencer)
    numbers: list[int] = field(default_factory=list)
    texts: dict[UUID, str] = field(default_factory=dict)
    ended: set[UUID] = field(default_factory=set)

    def show(self, frames: list[Any]) -> None:
        for frame in frames:
            match frame:
                case TextDelta(stream_id=stream_id, text=text):
                    assert stream_id not in self.ended
                    self.texts[stream_id] = self.texts.get(stream_id, "") + text
                case SequencedEvent(stored=stored):
                    assert stored.number == len(self.numbers) + 1
                    self.numbers.append(stored.number)
                    if stored.name == "message_reset" and stored.activation in self.texts:
                        self.texts[stored.activation] = self.texts[stored.activation][: frame.retained_length]
                    if stored.name == "message_end" and stored.activation is not None:
                        self.ended.add(stored.activation)
                case _:
                    raise AssertionError(frame)

    def read_rows(self, run: Run, limit: int = 500) -> None:
        self.show(self.sequencer.on_rows(*run.rows(self.sequencer.after, limit)))

    def receive(self, delta: Delta) -> None:
        self.show(self.sequencer.on_text_delta(delta.stream_id, delta.epoch, delta.offset, delta.text))

    def reconnect(self) -> None:
        self.sequencer = StreamSequencer(Position.parse(str(self.sequencer.position)))


TEXTS = st.lists(st.sampled_from([*"abc", THINK_START, THINK_END, SOUND]), min_size=1, max_size=5).map("".join)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("node", "stream", "open", "default", "append", "append", "append", "store", "truncate"),
                *("close", "close without event"),
                *("receive", "receive", "receive", "receive old", "notify", "read", "read", "page", "reconnect"),
            ]
        ),
        st.integers(0, 3),
        TEXTS,
        st.booleans(),
    ),
    max_size=40,
)


def apply_run_step(run: Run, step: str, number: int, text: str, flag: bool) -> None:
    """Apply one step to the run, if it is possible now."""
    unclosed = [stream.id for stream in run.streams.values() if stream.closed_at is None]
    unopened = [stream_id for stream_id in unclosed if not run.streams[stream_id].opened_at]
    chosen = unclosed[number % len(unclosed)] if unclosed else None
    match step:
        case "node":
            run.emit("node_started")
        case "stream":
            run.add_stream()
        case "open" if unopened and run.open is None:
            run.open_stream(unopened[0])
        case "default" if run.open is None and run.events:
            stream_id = run.add_stream()
            run.written[stream_id] = text
            run.open_stream(stream_id, is_default=True)
            run.close_stream(stream_id)
        case "append" if chosen:
            run.append_text(chosen, text)
        case "store" if chosen:
            run.store_text(chosen)
        case "truncate" if chosen:
            run.truncate(chosen, number, names_length=flag)
        case "close" if run.open is not None:
            run.close_stream(run.open.id, deferred=number)
        case "close without event" if run.open is not None:
            run.close_stream(run.open.id, deferred=number % 2, without_event=True)
        case _:
            pass


def apply_listener_step(listener: Listener, run: Run, step: str, number: int) -> None:
    """Apply one step of Redis or of the listener."""
    match step:
        case "receive" if run.deltas:
            listener.receive(run.deltas[max(0, len(run.deltas) - 1 - number)])
        case "receive old" if run.deltas:
            listener.receive(run.deltas[number % len(run.deltas)])
        case "notify":
            listener.sequencer.on_event_notification(len(run.events))
        case "read":
            listener.read_rows(run)
        case "page":
            listener.read_rows(run, limit=number + 1)
        case _:
            pass


def listener_of_rows(run: Run) -> Listener:
    """Return a listener that reads the rows at the end."""
    listener = Listener()
    listener.read_rows(run)
    return listener


@given(STEPS)
def test_listener_ends_with_the_stored_events_and_texts_whatever_redis_delivers(
    steps: list[tuple[str, int, str, bool]],
) -> None:
    run, listener = Run(), Listener()

    for step, number, text, flag in steps:
        apply_run_step(run, step, number, text, flag)
        apply_listener_step(listener, run, step, number)
    if run.open is not None:
        run.close_stream(run.open.id)
    listener.read_rows(run)

    assert listener.numbers == listener_of_rows(run).numbers == [event.number for event in run.events]
    assert {stream_id: text for stream_id, text in listener.texts.items() if text} == run.texts()
    assert not listener.sequencer.needs_rows


@given(STEPS)
def test_listener_that_reconnects_at_any_point_continues_at_its_position(
    steps: list[tuple[str, int, str, bool]],
) -> None:
    run, listener = Run(), Listener()

    for step, number, text, flag in steps:
        apply_run_step(run, step, number, text, flag)
        apply_listener_step(listener, run, step, number)
        if step == "reconnect":
            listener.reconnect()
    if run.open is not None:
        run.close_stream(run.open.id)
    listener.reconnect()
    listener.read_rows(run)

    assert listener.numbers == [event.number for event in run.events]
    assert {stream_id: text for stream_id, text in listener.texts.items() if text} == run.texts()


@given(STEPS)
def test_listener_that_receives_every_text_delta_needs_no_rows_for_text(
    steps: list[tuple[str, int, str, bool]],
) -> None:
    run, listener = Run(), Listener()
    run_steps = [step for step in steps if step[0] in ("stream", "open", "append", "node", "close")]

    for step, number, text, flag in run_steps:
        events, deltas = len(run.events), len(run.deltas)
        apply_run_step(run, step, number, text, flag)
        for delta in run.deltas[deltas:]:
            listener.receive(delta)
        if len(run.events) > events:
            listener.read_rows(run)

    if run.open is not None:
        assert listener.texts.get(run.open.id, "") == run.written[run.open.id]


def run_with_open_stream(text: str = "") -> tuple[Run, UUID]:
    run = Run()
    stream_id = run.add_stream()
    run.open_stream(stream_id)
    if text:
        run.append_text(stream_id, text)
    return run, stream_id


def test_text_is_sent_between_the_events_that_open_and_close_its_stream() -> None:
    run, stream_id = run_with_open_stream("Hello")
    run.close_stream(stream_id)
    sequencer = StreamSequencer[Row]()

    frames = sequencer.on_rows(*run.rows(0))

    assert [frame.text if isinstance(frame, TextDelta) else frame.stored.name for frame in frames] == [
        "node_started",
        "Hello",
        "message_end",
        "node_finished",
    ]


def test_position_inside_a_stream_has_event_and_offset() -> None:
    run, stream_id = run_with_open_stream("Hello")
    run.store_text(stream_id)
    sequencer = StreamSequencer[Row]()

    frames = sequencer.on_rows(*run.rows(0))

    assert [str(frame.position) for frame in frames] == ["1.0", "1.5"]
    assert str(StreamSequencer[Row](Position(3)).position) == "3"


def test_position_of_an_event_during_an_open_stream_contains_the_offset() -> None:
    run, stream_id = run_with_open_stream("Hello")
    run.store_text(stream_id)
    run.emit("node_finished")
    listener = Listener()
    listener.read_rows(run)

    listener.reconnect()
    run.append_text(stream_id, " world")
    run.close_stream(stream_id)
    listener.read_rows(run)

    assert listener.texts[stream_id] == "Hello world"


def test_text_delta_received_before_its_stream_opens_is_sent_once_it_is_open() -> None:
    run = Run()
    stream_id = run.add_stream()
    listener = Listener()
    listener.read_rows(run)
    run.append_text(stream_id, "early")
    listener.receive(run.deltas[0])

    run.open_stream(stream_id)
    listener.read_rows(run)

    assert listener.texts[stream_id] == "early"
    assert not listener.sequencer.needs_rows


def test_a_late_delta_of_a_stream_that_closed_without_an_event_is_ignored() -> None:
    sequencer: StreamSequencer[Row] = StreamSequencer(Position(5, 3))
    stream = StreamState(UUID(int=1), text="Hello", opened_at=3, epoch_at=3, closed_at=5)

    frames = sequencer.on_rows([], [stream])
    late = sequencer.on_text_delta(stream.id, 0, 3, "lo")

    assert frames == [TextDelta(Position(5, 5), stream.id, "lo")]
    assert late == []
    assert not sequencer.needs_rows


def test_gap_between_text_deltas_makes_the_sequencer_need_rows() -> None:
    run, stream_id = run_with_open_stream()
    listener = Listener()
    listener.read_rows(run)
    run.append_text(stream_id, "lost ")
    run.append_text(stream_id, "received")

    listener.receive(run.deltas[1])

    assert listener.sequencer.needs_rows
    assert stream_id not in listener.texts


def test_event_notification_of_a_later_event_makes_the_sequencer_need_rows() -> None:
    run, _ = run_with_open_stream()
    listener = Listener()
    listener.read_rows(run)
    assert not listener.sequencer.needs_rows

    listener.sequencer.on_event_notification(2)

    assert listener.sequencer.needs_rows


def test_empty_text_delta_at_a_later_offset_makes_the_sequencer_need_rows() -> None:
    run, stream_id = run_with_open_stream("Hello")
    run.store_text(stream_id)
    listener = Listener()
    listener.read_rows(run)

    listener.receive(Delta(stream_id, 0, 5, ""))
    assert not listener.sequencer.needs_rows
    listener.receive(Delta(stream_id, 0, 6, ""))

    assert listener.sequencer.needs_rows


def test_text_delta_of_an_earlier_epoch_is_ignored() -> None:
    run, stream_id = run_with_open_stream("wrong")
    listener = Listener()
    listener.read_rows(run)
    run.truncate(stream_id, 0, names_length=True)
    listener.read_rows(run)

    listener.receive(run.deltas[0])

    assert listener.texts.get(stream_id, "") == ""


def test_default_without_a_node_started_event_is_sent_before_its_message_end() -> None:
    run = Run()
    run.emit("node_started")
    listener = Listener()
    listener.read_rows(run)

    apply_run_step(run, "default", 0, "sorry", False)
    frames = listener.sequencer.on_rows(*run.rows(1))

    assert [frame.text if isinstance(frame, TextDelta) else frame.stored.name for frame in frames] == [
        "sorry",
        "message_end",
        "node_finished",
    ]


def test_stream_that_is_opened_again_sends_its_new_text_from_the_start() -> None:
    run, stream_id = run_with_open_stream("half of")
    run.store_text(stream_id)
    listener = Listener()
    listener.read_rows(run)

    number = run.emit("node_finished")
    run.streams[stream_id] = replace(
        run.streams[stream_id], text="default", opened_at=number, epoch_at=number, closed_at=3
    )
    run.emit("message_end", stream_id)
    listener.read_rows(run)

    assert listener.texts[stream_id] == "half ofdefault"


@pytest.mark.parametrize("text", ["", "x", "-1", "1.", ".5", "1.2.3", "99999999999", "１"])
def test_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Position.parse(text)


@given(st.integers(0, 10**8), st.none() | st.integers(0, 10**8))
def test_position_survives_formatting_and_parsing(event: int, offset: int | None) -> None:
    assert Position.parse(str(Position(event, offset))) == Position(event, offset)


def test_think_markers_become_separate_events_with_their_own_positions() -> None:
    text = f"a{THINK_START}hm{THINK_END}b"
    delta = TextDelta(Position(4, 10), UUID(int=1), text)

    parts = [(str(position), data) for position, data in message_data(delta)]

    assert parts == [
        ("4.5", {"content": "a"}),
        ("4.6", {"content": "", "start_to_think": True}),
        ("4.8", {"content": "hm"}),
        ("4.9", {"content": "", "end_to_think": True}),
        ("4.10", {"content": "b"}),
    ]


def test_audio_marker_becomes_a_separate_event_with_its_file_id() -> None:
    text = f"a.{SOUND}{SOUND}b"
    delta = TextDelta(Position(4, 71), UUID(int=1), text)

    parts = [(str(position), data) for position, data in message_data(delta)]

    assert parts == [
        ("4.2", {"content": "a."}),
        ("4.36", {"content": "", "audio": FILE}),
        ("4.70", {"content": "", "audio": FILE}),
        ("4.71", {"content": "b"}),
    ]


@pytest.mark.parametrize("text", [f"x{AUDIO_START}y", f"x{AUDIO_END}y", f"x{AUDIO_START}{FILE[:9]}{AUDIO_END}y"])
def test_incomplete_audio_marker_is_never_shown(text: str) -> None:
    (part,) = message_data(TextDelta(Position(4, len(text)), UUID(int=1), text))

    assert part == (Position(4, len(text)), {"content": "xy"})


@pytest.mark.parametrize("cut", range(1, len(SOUND)))
def test_audio_marker_split_over_two_text_deltas_is_sent_whole(cut: int) -> None:
    run, listener = Run(), Listener()
    stream_id = run.add_stream()
    run.open_stream(stream_id)
    listener.read_rows(run)

    for part in ("one", SOUND[:cut], SOUND[cut:], "two"):
        run.append_text(stream_id, part)
    shown = [
        [frame.text for frame in listener.sequencer.on_text_delta(p.stream_id, p.epoch, p.offset, p.text)]
        for p in run.deltas
    ]

    assert shown == [["one"], [], [SOUND], ["two"]]


def test_audio_start_without_an_end_does_not_delay_the_text() -> None:
    run, listener = Run(), Listener()
    stream_id = run.add_stream()
    run.open_stream(stream_id)
    listener.read_rows(run)

    run.append_text(stream_id, AUDIO_START + "x" * 40)
    listener.receive(run.deltas[-1])

    assert listener.texts[stream_id] == run.written[stream_id]


@pytest.mark.parametrize(
    ("convert", "expected"),
    [
        (markers_to_tags, "a<think>hm</think>b"),
        (without_audio, f"a{THINK_START}hm{THINK_END}b"),
    ],
)
def test_whole_text_contains_think_tags_if_requested_and_never_audio(
    convert: Callable[[str], str], expected: str
) -> None:
    assert convert(f"a{THINK_START}hm{THINK_END}b{SOUND}") == expected
