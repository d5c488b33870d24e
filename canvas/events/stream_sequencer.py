"""StreamSequencer: puts what a reader receives of a run in order: stored events, and between them streamed text.

    sequencer = StreamSequencer(Position.parse("42.1380"))
    sequencer.on_event_notification(57)                  # events up to 57 are stored
    if sequencer.needs_rows:
        frames = sequencer.on_rows(events_after_42, streams)
    frames = sequencer.on_text_delta(stream, epoch, offset, "and so on")

Notifications and text deltas may be lost, repeated or late; the frames are the same as if only rows were read
(docs/protocol.md#message-streams). Each event comes once. The text of a stream comes after the events that opened it
and began its epoch, in the order of offsets without gaps or repeats, and before the event that closes it. Audio is a
marker in the text that names its file; a marker is never split between frames.

Rows must be read in this order: events first, then streams, so that streams are never older than events.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from canvas.errors import InvalidRequest
from canvas.events.run_events import MESSAGE_RESET
from canvas.ids import ActivationId

THINK_START = "\ufdd0"
THINK_END = "\ufdd1"
AUDIO_START = "\ufdd2"
AUDIO_END = "\ufdd3"

MAX_BUFFERED = 256 * 1024  # code points buffered of a stream that may not be shown yet; more is read from its row

_POSITION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")
_ID_LENGTH = 32
_AUDIO = f"{AUDIO_START}[0-9a-f]{{{_ID_LENGTH}}}{AUDIO_END}"
_MARKERS = re.compile(f"([{THINK_START}{THINK_END}]|{_AUDIO})")
_ANY_AUDIO = re.compile(f"{AUDIO_START}[0-9a-f]{{0,{_ID_LENGTH}}}|{AUDIO_END}")


class StoredEvent(Protocol):
    """The columns of an event's row that a sequencer reads."""

    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def activation(self) -> ActivationId | None: ...
    @property
    def body(self) -> Mapping[str, Any]: ...


class StoredStream(Protocol):
    """The columns of a stream's row that a sequencer reads. `opened_at` etc. are numbers of events."""

    @property
    def id(self) -> ActivationId: ...
    @property
    def epoch(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def opened_at(self) -> int: ...
    @property
    def epoch_at(self) -> int: ...
    @property
    def closed_at(self) -> int | None: ...


E = TypeVar("E", bound=StoredEvent)


@dataclass(frozen=True, slots=True)
class Position:
    """All events up to `event`, and `offset` code points of the stream that was open then (None: no stream was)."""

    event: int = 0
    offset: int | None = None

    def __str__(self) -> str:
        return str(self.event) if self.offset is None else f"{self.event}.{self.offset}"

    @staticmethod
    def parse(text: str) -> "Position":
        """Parse a position; the inverse of `str`. Raises InvalidRequest."""
        match = _POSITION.fullmatch(text.strip())
        if match is None:
            raise InvalidRequest(f'"{text[:40]}" is not a valid position. Use an event id such as 42 or 42.1380.')
        return Position(int(match[1]), int(match[2]) if match[2] is not None else None)


@dataclass(frozen=True, slots=True)
class SequencedEvent(Generic[E]):
    """A stored event, and the reader's position after it. `retained_length`: of the stream, after a `message_reset`."""

    position: Position
    stored: E
    retained_length: int = 0
    epoch: int = 0

    @property
    def number(self) -> int:
        """The event's number."""
        return self.position.event


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A part of the open stream's text, and the reader's position after it."""

    position: Position
    stream_id: ActivationId
    text: str


Frame: TypeAlias = SequencedEvent[E] | TextDelta


@dataclass(slots=True)
class _DeltaBuffer:
    """A contiguous part of a stream's text, assembled from text deltas."""

    epoch: int
    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def add(self, epoch: int, offset: int, text: str) -> None:
        """Add a text delta; one that is not adjacent replaces the buffer, since the rows have the rest."""
        if epoch < self.epoch:
            return
        joins = epoch == self.epoch and offset <= self.end and self.start <= offset + len(text)
        if not joins or self.end - self.start > MAX_BUFFERED:
            if epoch > self.epoch or offset + len(text) > self.end:
                self.epoch, self.start, self.text = epoch, offset, text
            return
        if offset < self.start:
            self.start, self.text = offset, text[: self.start - offset] + self.text
        self.text += text[self.end - offset :] if offset + len(text) > self.end else ""

    def text_from(self, offset: int) -> str:
        """Return the buffered text from `offset` on; empty if the buffer begins later."""
        return self.text[offset - self.start :] if self.start <= offset < self.end else ""


class StreamSequencer(Generic[E]):
    """The sequence of frames for one reader of a run. `after`: the position up to which the reader has everything."""

    def __init__(self, after: Position | None = None) -> None:
        self.position = after or Position()
        self._announced = 0
        self._has_read = False
        self._is_current = False
        self._rows: dict[ActivationId, StoredStream] = {}
        self._buffers: dict[ActivationId, _DeltaBuffer] = {}
        self._open: ActivationId | None = None

    @property
    def after(self) -> int:
        """The number after which to read events, and streams that were not closed before it."""
        return self.position.event

    @property
    def needs_rows(self) -> bool:
        """Whether rows must be read: something may be missing."""
        return not self._is_current or self._announced > self.after or self._is_behind()

    def mark_stale(self) -> None:
        """Request a read of the rows, since a notification may have been missed."""
        self._is_current = False

    def on_event_notification(self, number: int) -> None:
        """Take note that events up to this number are stored."""
        self._announced = max(self._announced, number)

    def on_text_delta(self, stream_id: ActivationId, epoch: int, offset: int, text: str) -> list[Frame[E]]:
        """Add a text delta; return the frames that can be sent now. An empty delta tells the present text length."""
        buffer = self._buffers.get(stream_id)
        if buffer is None:
            self._buffers[stream_id] = _DeltaBuffer(epoch, offset, text)
        else:
            buffer.add(epoch, offset, text)
        return list(self._pending_text()) if stream_id == self._open else []

    def on_rows(self, events: Sequence[E], streams: Sequence[StoredStream]) -> list[Frame[E]]:
        """Add rows; return the frames that can be sent now.

        events: those after `after`, in order. streams: rows of streams not closed before it, read after the events.
        """
        self._is_current = True
        for row in streams:
            self._record_row(row)
        if not self._has_read:
            self._has_read = True
            self._find_open_stream()
        frames: list[Frame[E]] = []
        for event in events:
            if event.number <= self.after:
                continue
            if event.number != self.after + 1:
                break
            frames += self._pending_text()
            frames.append(self._apply_event(event))
        frames += self._pending_text()
        self._remove_closed()
        return frames

    @property
    def has_streams(self) -> bool:
        """Whether a message stream is open at the position, or known to come."""
        return bool(self._rows) or self._open is not None or self.position.offset is not None

    def skip_to(self, number: int) -> None:
        """Count the events up to this number as applied. No message stream may be open at any of them."""
        self._is_current = self._has_read = True
        self.position = Position(number)

    def _record_row(self, row: StoredStream) -> None:
        """Record a stream's row. If it was opened again (for the default of a failed Message), its text is another."""
        known = self._rows.get(row.id)
        if known is not None and row.id == self._open and known.opened_at != row.opened_at:
            self._open = None
            self.position = Position(self.after)
        self._rows[row.id] = row

    def _find_open_stream(self) -> None:
        """Find the stream that the reader's position is in. If it ended without an event, it may be closed by now."""
        offset = self.position.offset
        self._open_at(self.after)
        if offset is None:
            return
        if self._open is None:
            begun = [row for row in self._rows.values() if row.opened_at <= self.after]
            self._open = max(begun, key=lambda row: row.opened_at).id if begun else None
        self.position = Position(self.after, offset if self._open is not None else None)

    def _open_at(self, number: int) -> None:
        """If no stream is open, open the one that is open after this event."""
        if self._open is not None:
            return
        for row in self._rows.values():
            if row.opened_at <= number and not _is_over(row, number):
                self._open = row.id
                self.position = Position(self.position.event, 0)

    def _apply_event(self, event: E) -> SequencedEvent[E]:
        """Return the frame of an event, after applying it: streams close, open, and are truncated."""
        number, keep, epoch = event.number, 0, 0
        offset = self.position.offset
        if event.name == MESSAGE_RESET:
            row = self._rows.get(event.activation) if event.activation else None
            keep = event.body.get("keep", 0)
            epoch = event.body.get("epoch", row.epoch if row else 0)
            if offset is not None and event.activation == self._open:
                offset = min(offset, keep)
        if self._open is not None and _is_over(self._rows[self._open], number):
            self._open, offset = None, None
        self.position = Position(number, offset)
        self._open_at(number)
        return SequencedEvent(self.position, event, keep, epoch)

    def _pending_text(self) -> Iterator[TextDelta]:
        """Yield what can be sent of the open stream: its row's text, then buffered deltas beyond it."""
        self._open_at(self.after)
        offset = self.position.offset
        if self._open is None or offset is None:
            return
        row = self._rows[self._open]
        if row.epoch_at > self.after:
            return  # the row is ahead of the position: its text comes after the `message_reset`
        text = row.text[offset:]
        buffer = self._buffers.get(self._open)
        if row.closed_at is None and buffer is not None and buffer.epoch == row.epoch:
            text += buffer.text_from(offset + len(text))
        if row.closed_at is None:
            text = _without_partial_marker(text)
        if text:
            self.position = Position(self.after, offset + len(text))
            yield TextDelta(self.position, self._open, text)

    def _is_behind(self) -> bool:
        """Whether text deltas have announced text, or an epoch, that is missing here."""
        buffer = self._buffers.get(self._open) if self._open is not None else None
        if buffer is None or self._open is None or self.position.offset is None:
            return False
        row = self._rows[self._open]
        if row.closed_at is not None:
            return False  # its text is complete
        return buffer.epoch > row.epoch or (buffer.epoch == row.epoch and buffer.end > self.position.offset)

    def _remove_closed(self) -> None:
        """Remove streams that are over."""
        over = [row.id for row in self._rows.values() if _is_over(row, self.after) and row.id != self._open]
        for stream_id in over:
            del self._rows[stream_id]
            self._buffers.pop(stream_id, None)


def _is_over(row: StoredStream, number: int) -> bool:
    """Whether no text of a stream may be sent after this event.

    A stream may close without an event, at the number that opened it or began its epoch: its text follows that event.
    """
    return row.closed_at is not None and row.closed_at <= number and row.epoch_at < number


def _without_partial_marker(text: str) -> str:
    """Return the text without an incomplete audio marker at its end."""
    start = text.rfind(AUDIO_START, -_ID_LENGTH - 1)
    return text if start < 0 or AUDIO_END in text[start:] else text[:start]


def message_data(delta: TextDelta) -> Iterator[tuple[Position, dict[str, Any]]]:
    """Yield position and `data` of the `message` events of a text delta; each marker is an event of its own.

    `audio` is the id of a file with a spoken sentence; the API replaces it by the file's bytes.
    """
    at = (delta.position.offset or 0) - len(delta.text)
    for part in filter(None, _MARKERS.split(delta.text)):
        at += len(part)
        match part:
            case "\ufdd0":
                data: dict[str, Any] = {"content": "", "start_to_think": True}
            case "\ufdd1":
                data = {"content": "", "end_to_think": True}
            case _ if _MARKERS.fullmatch(part):
                data = {"content": "", "audio": part[1:-1]}
            case _:
                data = {"content": without_audio(part)}
        yield Position(delta.position.event, at), data


def markers_to_tags(text: str) -> str:
    """Return a text with think markers replaced by the tags that clients know, and without audio markers."""
    return without_audio(text).replace(THINK_START, "<think>").replace(THINK_END, "</think>")


def audio_files(text: str) -> list[str]:
    """Return the ids of the audio files of a text, in the order of the sentences that they speak."""
    return [marker[1:-1] for marker in re.findall(_AUDIO, text)]


def without_audio(text: str) -> str:
    """Return a text without audio markers."""
    return _ANY_AUDIO.sub("", text) if AUDIO_START in text or AUDIO_END in text else text
