"""A listener gets the same story whatever the bus loses, doubles or delays, and wherever it comes in."""

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
class TurnState:
    """A turn's row."""

    id: UUID
    epoch: int = 0
    text: str = ""
    opened_at: int = 0  # 0: not yet
    epoch_at: int = 0
    closed_at: int | None = None


@dataclass
class Piece:
    turn: UUID
    epoch: int
    offset: int
    text: str


@dataclass
class Run:
    """A run being told: rows as folds and speakers write them, and the pieces that left on the bus."""

    events: list[Row] = field(default_factory=list)
    turns: dict[UUID, TurnState] = field(default_factory=dict)
    spoken: dict[UUID, str] = field(default_factory=dict)  # what the speaker has said, ahead of the row
    pieces: list[Piece] = field(default_factory=list)
    heard: dict[UUID, list[str]] = field(default_factory=dict)  # turn -> what a listener has read when it ends

    def emit(self, name: str, turn: UUID | None = None, **body: Any) -> int:
        self.events.append(Row(len(self.events) + 1, name, turn, body))
        return len(self.events)

    @property
    def open(self) -> TurnState | None:
        return next((turn for turn in self.turns.values() if turn.opened_at and turn.closed_at is None), None)

    def begin_turn(self) -> UUID:
        turn = uuid5(NAMES, str(len(self.turns)))
        self.turns[turn] = TurnState(turn)
        self.spoken[turn] = ""
        return turn

    def open_turn(self, turn: UUID, *, is_default: bool = False) -> None:
        number = len(self.events) if is_default else self.emit("node_started", turn)
        self.turns[turn] = replace(self.turns[turn], opened_at=number, epoch_at=number)

    def speak(self, turn: UUID, text: str) -> None:
        state = self.turns[turn]
        self.pieces.append(Piece(turn, state.epoch, len(self.spoken[turn]), text))
        self.spoken[turn] += text

    def write(self, turn: UUID) -> None:
        self.turns[turn] = replace(self.turns[turn], text=self.spoken[turn])

    def take_back(self, turn: UUID, keep: int, *, is_told: bool) -> None:
        state = self.turns[turn]
        number = state.epoch_at
        if state.opened_at:
            number = self.emit("message_reset", turn, **({"keep": keep, "epoch": state.epoch + 1} if is_told else {}))
        kept = self.spoken[turn][:keep]
        self.spoken[turn] = kept
        self.turns[turn] = replace(state, epoch=state.epoch + 1, text=kept, epoch_at=number)

    def end_turn(self, turn: UUID, *, held: int = 0, silently: bool = False) -> None:
        self.write(turn)
        if not silently:
            self.emit("message_end", turn)
        for _ in range(held):
            self.emit("node_finished")
        self.turns[turn] = replace(self.turns[turn], closed_at=len(self.events))
        self.emit("node_finished", turn)

    def rows(self, after: int, most: int = 500) -> tuple[list[Row], list[TurnState]]:
        events = [event for event in self.events if event.number > after][:most]
        turns = [t for t in self.turns.values() if t.opened_at and (t.closed_at is None or t.closed_at >= after)]
        return events, turns

    def texts(self) -> dict[UUID, str]:
        return {turn.id: turn.text for turn in self.turns.values() if turn.text and turn.opened_at}


@dataclass
class Listener:
    """A client: what it has on its screen, and the checks that the order is right."""

    transcript: StreamSequencer[Row] = field(default_factory=StreamSequencer)
    numbers: list[int] = field(default_factory=list)
    screen: dict[UUID, str] = field(default_factory=dict)
    ended: set[UUID] = field(default_factory=set)

    def show(self, frames: list[Any]) -> None:
        for frame in frames:
            match frame:
                case TextDelta(stream_id=turn, text=text):
                    assert turn not in self.ended
                    self.screen[turn] = self.screen.get(turn, "") + text
                case SequencedEvent(stored=stored):
                    assert stored.number == len(self.numbers) + 1
                    self.numbers.append(stored.number)
                    if stored.name == "message_reset" and stored.activation in self.screen:
                        self.screen[stored.activation] = self.screen[stored.activation][: frame.retained_length]
                    if stored.name == "message_end" and stored.activation is not None:
                        self.ended.add(stored.activation)
                case _:
                    raise AssertionError(frame)

    def read(self, run: Run, most: int = 500) -> None:
        self.show(self.transcript.on_rows(*run.rows(self.transcript.after, most)))

    def hear(self, piece: Piece) -> None:
        self.show(self.transcript.on_text_delta(piece.turn, piece.epoch, piece.offset, piece.text))

    def leave_and_return(self) -> None:
        self.transcript = StreamSequencer(Position.parse(str(self.transcript.position)))


TEXTS = st.lists(st.sampled_from([*"abc", THINK_START, THINK_END, SOUND]), min_size=1, max_size=5).map("".join)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("node", "turn", "open", "default", "speak", "speak", "speak", "write", "take_back", "end", "silent"),
                *("hear", "hear", "hear", "old", "echo", "read", "read", "page", "return"),
            ]
        ),
        st.integers(0, 3),
        TEXTS,
        st.booleans(),
    ),
    max_size=40,
)


def tell(run: Run, step: str, number: int, text: str, flag: bool) -> None:
    """One step of the run, if it can be taken now."""
    speaking = [turn.id for turn in run.turns.values() if turn.closed_at is None]
    unopened = [turn for turn in speaking if not run.turns[turn].opened_at]
    chosen = speaking[number % len(speaking)] if speaking else None
    match step:
        case "node":
            run.emit("node_started")
        case "turn":
            run.begin_turn()
        case "open" if unopened and run.open is None:
            run.open_turn(unopened[0])
        case "default" if run.open is None and run.events:
            turn = run.begin_turn()
            run.spoken[turn] = text
            run.open_turn(turn, is_default=True)
            run.end_turn(turn)
        case "speak" if chosen:
            run.speak(chosen, text)
        case "write" if chosen:
            run.write(chosen)
        case "take_back" if chosen:
            run.take_back(chosen, number, is_told=flag)
        case "end" if run.open is not None:
            run.end_turn(run.open.id, held=number)
        case "silent" if run.open is not None:
            run.end_turn(run.open.id, held=number % 2, silently=True)
        case _:
            pass


def listen(listener: Listener, run: Run, step: str, number: int) -> None:
    """One step of the bus or of the listener."""
    match step:
        case "hear" if run.pieces:
            listener.hear(run.pieces[max(0, len(run.pieces) - 1 - number)])
        case "old" if run.pieces:
            listener.hear(run.pieces[number % len(run.pieces)])
        case "echo":
            listener.transcript.on_event_notification(len(run.events))
        case "read":
            listener.read(run)
        case "page":
            listener.read(run, most=number + 1)
        case _:
            pass


def told(run: Run) -> Listener:
    """Somebody who comes in the end and reads the rows."""
    listener = Listener()
    listener.read(run)
    return listener


@given(STEPS)
def test_whatever_the_bus_does_a_listener_gets_what_the_rows_tell_in_the_end(
    steps: list[tuple[str, int, str, bool]],
) -> None:
    run, listener = Run(), Listener()

    for step, number, text, flag in steps:
        tell(run, step, number, text, flag)
        listen(listener, run, step, number)
    if run.open is not None:
        run.end_turn(run.open.id)
    listener.read(run)

    assert listener.numbers == told(run).numbers == [event.number for event in run.events]
    assert {turn: text for turn, text in listener.screen.items() if text} == run.texts()
    assert not listener.transcript.needs_rows


@given(STEPS)
def test_a_listener_that_leaves_and_returns_anywhere_goes_on_exactly_there(
    steps: list[tuple[str, int, str, bool]],
) -> None:
    run, listener = Run(), Listener()

    for step, number, text, flag in steps:
        tell(run, step, number, text, flag)
        listen(listener, run, step, number)
        if step == "return":
            listener.leave_and_return()
    if run.open is not None:
        run.end_turn(run.open.id)
    listener.leave_and_return()
    listener.read(run)

    assert listener.numbers == [event.number for event in run.events]
    assert {turn: text for turn, text in listener.screen.items() if text} == run.texts()


@given(STEPS)
def test_a_listener_that_hears_everything_needs_no_rows_for_text(steps: list[tuple[str, int, str, bool]]) -> None:
    run, listener = Run(), Listener()
    spoken = [step for step in steps if step[0] in ("turn", "open", "speak", "node", "end")]

    for step, number, text, flag in spoken:
        events, pieces = len(run.events), len(run.pieces)
        tell(run, step, number, text, flag)
        for piece in run.pieces[pieces:]:
            listener.hear(piece)
        if len(run.events) > events:
            listener.read(run)

    if run.open is not None:
        assert listener.screen.get(run.open.id, "") == run.spoken[run.open.id]


def speaking(text: str = "") -> tuple[Run, UUID]:
    run = Run()
    turn = run.begin_turn()
    run.open_turn(turn)
    if text:
        run.speak(turn, text)
    return run, turn


def test_text_is_said_between_the_events_that_open_and_end_its_turn() -> None:
    run, turn = speaking("Hello")
    run.end_turn(turn)
    transcript = StreamSequencer[Row]()

    frames = transcript.on_rows(*run.rows(0))

    assert [frame.text if isinstance(frame, TextDelta) else frame.stored.name for frame in frames] == [
        "node_started",
        "Hello",
        "message_end",
        "node_finished",
    ]


def test_a_position_inside_a_turn_names_event_and_offset() -> None:
    run, turn = speaking("Hello")
    run.write(turn)
    transcript = StreamSequencer[Row]()

    frames = transcript.on_rows(*run.rows(0))

    assert [str(frame.position) for frame in frames] == ["1.0", "1.5"]
    assert str(StreamSequencer[Row](Position(3)).position) == "3"


def test_an_event_beside_an_open_turn_carries_the_offset_so_that_nothing_is_said_twice() -> None:
    run, turn = speaking("Hello")
    run.write(turn)
    run.emit("node_finished")
    listener = Listener()
    listener.read(run)

    listener.leave_and_return()
    run.speak(turn, " world")
    run.end_turn(turn)
    listener.read(run)

    assert listener.screen[turn] == "Hello world"


def test_a_piece_that_comes_before_its_turn_opens_is_kept_for_it() -> None:
    run = Run()
    turn = run.begin_turn()
    listener = Listener()
    listener.read(run)
    run.speak(turn, "early")
    listener.hear(run.pieces[0])

    run.open_turn(turn)
    listener.read(run)

    assert listener.screen[turn] == "early"
    assert not listener.transcript.needs_rows


def test_a_late_delta_of_a_stream_that_closed_without_an_event_is_ignored() -> None:
    sequencer: StreamSequencer[Row] = StreamSequencer(Position(5, 3))
    stream = TurnState(UUID(int=1), text="Hello", opened_at=3, epoch_at=3, closed_at=5)

    frames = sequencer.on_rows([], [stream])
    late = sequencer.on_text_delta(stream.id, 0, 3, "lo")

    assert frames == [TextDelta(Position(5, 5), stream.id, "lo")]
    assert late == []
    assert not sequencer.needs_rows


def test_a_gap_between_pieces_asks_for_rows() -> None:
    run, turn = speaking()
    listener = Listener()
    listener.read(run)
    run.speak(turn, "lost ")
    run.speak(turn, "heard")

    listener.hear(run.pieces[1])

    assert listener.transcript.needs_rows
    assert turn not in listener.screen


def test_an_echo_of_a_later_event_asks_for_rows() -> None:
    run, _ = speaking()
    listener = Listener()
    listener.read(run)
    assert not listener.transcript.needs_rows

    listener.transcript.on_event_notification(2)

    assert listener.transcript.needs_rows


def test_knowing_how_long_a_text_is_by_now_asks_for_rows_where_it_is_longer() -> None:
    run, turn = speaking("Hello")
    run.write(turn)
    listener = Listener()
    listener.read(run)

    listener.hear(Piece(turn, 0, 5, ""))
    assert not listener.transcript.needs_rows
    listener.hear(Piece(turn, 0, 6, ""))

    assert listener.transcript.needs_rows


def test_a_piece_of_a_taken_back_epoch_is_ignored() -> None:
    run, turn = speaking("wrong")
    listener = Listener()
    listener.read(run)
    run.take_back(turn, 0, is_told=True)
    listener.read(run)

    listener.hear(run.pieces[0])

    assert listener.screen.get(turn, "") == ""


def test_a_default_that_is_spoken_without_a_start_of_its_own_comes_before_its_end() -> None:
    run = Run()
    run.emit("node_started")
    listener = Listener()
    listener.read(run)

    tell(run, "default", 0, "sorry", False)
    frames = listener.transcript.on_rows(*run.rows(1))

    assert [frame.text if isinstance(frame, TextDelta) else frame.stored.name for frame in frames] == [
        "sorry",
        "message_end",
        "node_finished",
    ]


def test_a_turn_that_is_opened_anew_begins_with_another_text() -> None:
    run, turn = speaking("half of")
    run.write(turn)
    listener = Listener()
    listener.read(run)

    number = run.emit("node_finished")
    run.turns[turn] = replace(run.turns[turn], text="default", opened_at=number, epoch_at=number, closed_at=3)
    run.emit("message_end", turn)
    listener.read(run)

    assert listener.screen[turn] == "half ofdefault"


@pytest.mark.parametrize("text", ["", "x", "-1", "1.", ".5", "1.2.3", "99999999999", "１"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Position.parse(text)


@given(st.integers(0, 10**8), st.none() | st.integers(0, 10**8))
def test_positions_survive_the_wire(event: int, offset: int | None) -> None:
    assert Position.parse(str(Position(event, offset))) == Position(event, offset)


def test_think_markers_become_events_of_their_own_with_positions_between() -> None:
    text = f"a{THINK_START}hm{THINK_END}b"
    said = TextDelta(Position(4, 10), UUID(int=1), text)

    parts = [(str(position), data) for position, data in message_data(said)]

    assert parts == [
        ("4.5", {"content": "a"}),
        ("4.6", {"content": "", "start_to_think": True}),
        ("4.8", {"content": "hm"}),
        ("4.9", {"content": "", "end_to_think": True}),
        ("4.10", {"content": "b"}),
    ]


def test_audio_becomes_an_event_of_its_own_that_names_its_file() -> None:
    text = f"a.{SOUND}{SOUND}b"
    said = TextDelta(Position(4, 71), UUID(int=1), text)

    parts = [(str(position), data) for position, data in message_data(said)]

    assert parts == [
        ("4.2", {"content": "a."}),
        ("4.36", {"content": "", "audio": FILE}),
        ("4.70", {"content": "", "audio": FILE}),
        ("4.71", {"content": "b"}),
    ]


@pytest.mark.parametrize("text", [f"x{AUDIO_START}y", f"x{AUDIO_END}y", f"x{AUDIO_START}{FILE[:9]}{AUDIO_END}y"])
def test_what_only_resembles_audio_is_never_shown(text: str) -> None:
    (part,) = message_data(TextDelta(Position(4, len(text)), UUID(int=1), text))

    assert part == (Position(4, len(text)), {"content": "xy"})


@pytest.mark.parametrize("cut", range(1, len(SOUND)))
def test_audio_is_passed_on_whole_however_its_pieces_are_cut(cut: int) -> None:
    run, listener = Run(), Listener()
    turn = run.begin_turn()
    run.open_turn(turn)
    listener.read(run)

    for part in ("one", SOUND[:cut], SOUND[cut:], "two"):
        run.speak(turn, part)
    shown = [
        [frame.text for frame in listener.transcript.on_text_delta(p.turn, p.epoch, p.offset, p.text)]
        for p in run.pieces
    ]

    assert shown == [["one"], [], [SOUND], ["two"]]


def test_a_beginning_without_an_end_holds_nothing_back_for_long() -> None:
    run, listener = Run(), Listener()
    turn = run.begin_turn()
    run.open_turn(turn)
    listener.read(run)

    run.speak(turn, AUDIO_START + "x" * 40)
    listener.hear(run.pieces[-1])

    assert listener.screen[turn] == run.spoken[turn]


@pytest.mark.parametrize(
    ("say", "expected"),
    [
        (markers_to_tags, "a<think>hm</think>b"),
        (without_audio, f"a{THINK_START}hm{THINK_END}b"),
    ],
)
def test_a_whole_text_shows_its_thinking_as_tags_where_asked_and_never_its_audio(
    say: Callable[[str], str], expected: str
) -> None:
    assert say(f"a{THINK_START}hm{THINK_END}b{SOUND}") == expected
