"""Live streams: everything that a page shows of a run while it runs, as named server-sent events (docs/http.md).

A live stream merges two sources: the run's events and text, in order and each once, as the event streams have them, and
the snapshots of the run, which one reader takes for all clients (api/events/live_snapshots.py).

    hello · (steps · call · state | event | delta | reset)* · bye

A client that does not read holds no memory. Its next frame is made when the one before was sent: rows are then read
again by their revision, text is that of the row, and of the members of `state` those that it does not have.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from api.events.event_reader import EventOutline, EventReader
from api.events.event_stream import KEEPALIVE, KEEPALIVE_INTERVAL, RETRY_INTERVAL, apply_notification, join_deltas
from api.events.live_frames import (
    ByeReason,
    call_frames,
    delta_frames,
    encode_frame,
    ends_in_thinking,
    steps_frame,
)
from api.events.live_snapshots import MAX_ROWS, LimitOf, Snapshot, SnapshotReader, SnapshotReaders
from api.events.shared_frames import SharedFrames
from canvas.errors import NotFound
from canvas.events.run_events import MESSAGE_RESET
from canvas.events.stream_sequencer import Frame, Position, SequencedEvent, StreamSequencer, TextDelta
from canvas.ids import ActivationId, RunId, TenantId
from canvas.state.run_state import RunStatus
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging.subscriptions import EventSubscriptions, Subscription
from scheduler.views.json_values import milliseconds
from store.db.database import Database
from store.monitoring import live_snapshots, server_info
from store.runs.events import EventRow
from store.runs.message_streams import StreamRow

log = structlog.get_logger()

MIN_DELTA_INTERVAL = 0.05  # seconds between two frames with text of a message stream
CHECK_INTERVAL = 5.0  # seconds between two checks of the caller
CLOCK_TIMEOUT = 1.0  # seconds to wait for the time of the database at the end
QUEUE_SIZE = 100  # messages that are queued for a client that does not read
MAX_STREAMS = 200

CallerCheck = Callable[[], Awaitable[ByeReason | None]]
"""Returns why the caller may not watch the run any longer; None if it may. Raises SQLAlchemyError if it cannot say."""


@dataclass(frozen=True, slots=True)
class LiveMetrics:
    """The counting functions: the number of open streams · a snapshot and its seconds."""

    streams: Callable[[int], None] = lambda count: None
    snapshot: Callable[[float], None] = lambda seconds: None


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """What a client asks for: a run, the position after which it needs events, the revision whose rows it has.

    `hello`: the members of the first frame.
    """

    tenant_id: TenantId
    run_id: RunId
    status: str
    after: Position
    revision: int
    hello: Mapping[str, Any]
    check: CallerCheck


class LiveStreams:
    """The live streams of a process. They belong to one event loop."""

    def __init__(
        self,
        reader: EventReader,
        subscriptions: EventSubscriptions,
        versions: VersionCache,
        *,
        limit_of: LimitOf,
        max_streams: int = MAX_STREAMS,
        keepalive_interval: float = KEEPALIVE_INTERVAL,
        metrics: LiveMetrics | None = None,
    ) -> None:
        self._reader = reader
        self._max_streams, self.keepalive_interval = max_streams, keepalive_interval
        self._metrics = metrics or LiveMetrics()
        self._open = 0
        self._clients = set[Subscription]()
        self.is_closing = False
        self.visitor_frames = SharedFrames()
        self.readers = SnapshotReaders(reader, subscriptions, versions, limit_of, self._metrics.snapshot)

    def admit(self) -> bool:
        """Count a stream that is about to open; return False if there are too many. `release` ends the count."""
        if self._open >= self._max_streams:
            return False
        self._count(1)
        return True

    def release(self) -> None:
        """Count a stream as closed."""
        self._count(-1)

    def _count(self, more: int) -> None:
        self._open += more
        self._metrics.streams(self._open)

    def shut_down(self) -> None:
        """End every stream with `bye`, since the process is about to end."""
        self.is_closing = True
        for client in self._clients:
            client.wake()

    def close(self) -> None:
        """End the readers."""
        self.shut_down()
        self.readers.close()

    async def in_thread(self, work: Callable[[Database], Any]) -> Any:
        """Run work on the database of the streams in one of their threads."""
        return await self._reader.in_thread(work)

    async def follow(self, request: LiveRequest) -> AsyncGenerator[bytes]:
        """Yield the frames of a stream, `hello` to `bye`, and comments that keep its connection open."""
        subscription = Subscription(request.run_id, QUEUE_SIZE)  # to what the reader of the run relays
        self._clients.add(subscription)
        try:
            with self.readers.watch(request.tenant_id, request.run_id, subscription) as reader:
                await reader.listen()
                stream = _LiveStream(self, self._reader, reader, subscription, request)
                async with aclosing(stream.frames()) as frames:
                    async for frame in frames:
                        yield frame
        finally:
            self._clients.discard(subscription)


@dataclass(slots=True)
class _LiveStream:
    """The stream of one client: what it has been sent so far."""

    streams: LiveStreams
    reader: EventReader
    snapshots: SnapshotReader
    subscription: Subscription
    request: LiveRequest
    transcript: StreamSequencer[EventRow] = field(init=False)
    outline: EventOutline | None = None  # of events that were not sent yet
    has_read_all: bool = False  # the last read found the last event
    last_event: int = 0
    rows: Mapping[ActivationId, StreamRow] = field(default_factory=dict[ActivationId, StreamRow])
    thinking: dict[ActivationId, bool] = field(default_factory=dict[ActivationId, bool])
    unsent: list[Frame[EventRow]] = field(default_factory=list[Frame[EventRow]])
    encoded: bytes = b""  # frames of events that were not sent yet, and precede the unsent ones
    sent: Position = field(init=False)
    status: str = field(init=False)
    revision: int = field(init=False)  # whose rows the client has
    rows_at: datetime | None = None  # when these were read
    number: int = 0  # of the snapshot whose rows it has
    versions: Mapping[str, int] = field(default_factory=dict[str, int])  # of the members of `state` that it has
    has_waited: bool = False  # the rows were newer than the last snapshot, so the client waits for the next state
    is_final: bool = False  # the state of a run that is over was sent
    beat_at: float = 0.0
    check_at: float = 0.0

    def __post_init__(self) -> None:
        self.transcript = StreamSequencer[EventRow](self.request.after)
        self.sent, self.revision, self.status = self.request.after, self.request.revision, self.request.status

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield all frames of the stream, and comments while nothing happens."""
        clock = asyncio.get_running_loop().time
        yield encode_frame("hello", self.request.hello)
        self.beat_at, self.check_at = clock() + self.streams.keepalive_interval, _next_check(clock())
        reason = ByeReason.OVER
        try:
            async with aclosing(self._contents()) as contents:
                async for frame in contents:
                    ended = await self._find_end(clock())
                    if ended is not None:
                        reason = ended
                        break
                    if frame:
                        yield frame
                        self.beat_at = clock() + self.streams.keepalive_interval
                    elif clock() >= self.beat_at:
                        yield KEEPALIVE
                        self.beat_at = clock() + self.streams.keepalive_interval
        except NotFound:
            log.info("live_run_deleted", run_id=str(self.request.run_id))
        yield encode_frame("bye", await self._bye(reason))

    async def _find_end(self, now: float) -> ByeReason | None:
        """Return why the stream must end before its run; None if it continues."""
        if self.streams.is_closing:
            return ByeReason.SHUTTING_DOWN
        if now < self.check_at:
            return None
        self.check_at = _next_check(now)
        try:
            return await self.request.check()
        except SQLAlchemyError as error:
            log.warning("live_caller_not_checked", error=str(error).splitlines()[0])
            return None

    async def _bye(self, reason: ByeReason) -> Mapping[str, Any]:
        return {
            "now": await self._read_clock(),
            "status": self.status,
            "revision": self.revision,
            "position": str(self.sent),
            "reason": reason.value,
        }

    async def _read_clock(self) -> int | None:
        """Return the time of the database; None if it does not answer, which must not delay the end of a process."""
        try:
            async with asyncio.timeout(CLOCK_TIMEOUT):
                return await self.reader.in_thread(_read_clock)
        except (SQLAlchemyError, TimeoutError):
            return None

    async def _contents(self) -> AsyncGenerator[bytes]:
        """Yield the frames between `hello` and `bye`; no bytes when it is time to look whether the stream must end."""
        clock = asyncio.get_running_loop().time
        read_at = delta_at = 0.0  # not before
        is_started = False
        while not self.request_is_refused:
            if self.transcript.needs_rows and clock() >= read_at:
                is_news = await self._read_events()
                read_at = 0.0 if is_news else clock() + RETRY_INTERVAL
            if self.encoded or (self.unsent and (self._must_send() or clock() >= delta_at)):
                position, frames = self._take_unsent()
                yield frames
                self.sent = position
                delta_at = clock() + MIN_DELTA_INTERVAL
            if not is_started:
                is_started = True
                self.number = self.snapshots.number
                async for frame in self._catch_up():
                    yield frame
                self.snapshots.start(self.revision)
            snapshot = self.snapshots.last
            if snapshot is not None:
                async for frame in self._show(snapshot):
                    yield frame
            if self._has_ended():
                return
            yield b""
            waits = [self.beat_at, self.check_at]
            waits += [read_at] if self.transcript.needs_rows else []
            waits += [delta_at] if self.unsent else []
            if self.snapshots.number > self.number:
                continue
            notification = await self.subscription.get(max(0.0, min(waits) - clock()))
            while notification is not None:
                self.unsent += apply_notification(self.transcript, notification)
                read_at = 0.0 if "n" in notification else read_at
                notification = self.subscription.poll()

    @property
    def request_is_refused(self) -> bool:
        """Whether the start of the run was refused, so that it has nothing to show."""
        return self.request.status == RunStatus.REFUSED

    # -- events and text ----------------------------------------------------------------------------------------------
    async def _read_events(self) -> bool:
        """Read what the sequencer misses; return whether frames came of it. Raises NotFound."""
        try:
            outline = await self.reader.read_outline_after(
                self.request.tenant_id, self.request.run_id, self.transcript.after
            )
        except SQLAlchemyError as error:
            log.warning("stream_not_read", error=str(error).splitlines()[0])
            return False
        page = outline.page
        self.outline, self.status = outline, page.run.status
        self.has_read_all, self.last_event = page.is_last, page.run.last_event
        self.rows = {row.id: row for row in page.streams}
        if outline.frames and self._can_skip(page.events):
            self.transcript.skip_to(page.events[-1].number)
            self.encoded, is_news = outline.frames, True
        else:
            frames = self.transcript.on_rows(page.events, page.streams)
            self.unsent += frames
            is_news = bool(frames)
        if not page.is_last:
            self.transcript.mark_stale()
        return is_news

    def _can_skip(self, events: Sequence[EventRow]) -> bool:
        """Return whether these events are the next ones and no text has to come before them."""
        return not self.unsent and not self.transcript.has_streams and events[0].number == self.transcript.after + 1

    def _must_send(self) -> bool:
        """Return whether there is more to send than text: an event does not wait for text to be joined."""
        return self._is_complete() or any(isinstance(frame, SequencedEvent) for frame in self.unsent)

    def _take_unsent(self) -> tuple[Position, bytes]:
        """Return the frames of all events and text that were not sent yet, with consecutive texts joined.

        They come with the position of the client that has them.
        """
        frames, self.unsent = join_deltas(self.unsent), []
        encoded, self.encoded = [self.encoded], b""
        outline, self.outline = self.outline, None
        for frame in frames:
            if isinstance(frame, TextDelta):
                encoded += self._text_frames(frame)
                continue
            assert outline is not None  # events come from rows, and are sent right after they were read
            if frame.stored.name == MESSAGE_RESET and frame.stored.activation is not None:
                self.thinking.pop(frame.stored.activation, None)
            encoded.append(outline.frame(frame))
        return frames[-1].position if frames else self.transcript.position, b"".join(encoded)

    def _text_frames(self, delta: TextDelta) -> list[bytes]:
        row = self.rows.get(delta.stream_id)
        if delta.stream_id not in self.thinking:
            before = (delta.position.offset or 0) - len(delta.text)
            self.thinking[delta.stream_id] = ends_in_thinking(row.text[:before]) if row is not None else False
        node_id = row.node_id if row is not None else ""
        made: list[bytes] = []
        for frame, is_thinking in delta_frames(delta, node_id, is_thinking=self.thinking[delta.stream_id]):
            made.append(frame)
            self.thinking[delta.stream_id] = is_thinking
        return made

    def _is_complete(self) -> bool:
        """Return whether the run is over and everything that it has stored was read."""
        return self.has_read_all and RunStatus(self.status).is_over and self.transcript.after >= self.last_event

    def _has_ended(self) -> bool:
        return self._is_complete() and not self.unsent and not self.encoded and self.is_final

    # -- rows and state -----------------------------------------------------------------------------------------------
    async def _show(self, snapshot: Snapshot) -> AsyncGenerator[bytes]:
        """Yield what the client does not have of a snapshot: rows, calls, then the state that agrees with them."""
        is_over = snapshot.status.is_over
        if snapshot.number == self.number and (self.is_final or not is_over):
            return
        # the clock alone does not say which saw more: a transaction has its time before it has its view of the rows
        is_before = self.rows_at is not None and snapshot.now <= self.rows_at
        is_older = is_before and snapshot.revision <= self.revision
        is_next = snapshot.number == self.number + 1 and snapshot.since <= self.revision
        rows = b""
        if snapshot.number == self.number or is_older:
            self.number = snapshot.number
            if not is_over:
                self.snapshots.request()
                return
        elif is_next and snapshot.rows is not None:
            rows = snapshot.rows
            self.number, self.revision, self.rows_at = snapshot.number, snapshot.revision, snapshot.now
        else:
            async for frame in self._catch_up():
                yield frame
            self.number = snapshot.number
            if not is_over and not self.has_waited:
                self.has_waited = True  # these rows are newer than the snapshot; the next one agrees with them
                self.snapshots.request()
                return
        self.has_waited = False
        state = snapshot.state_frame(self.versions)
        self.versions = snapshot.versions
        self.is_final = is_over
        if rows or state:
            yield rows + state

    async def _catch_up(self) -> AsyncGenerator[bytes]:
        """Yield frames with the rows that have changed since the client's revision, and their model calls.

        Only the last of several frames has the new revision: a client that returns with it has missed nothing.
        """
        since, revision, after = self.revision, None, None
        while True:
            try:
                page = await self.reader.in_thread(
                    lambda database, after=after: _read_changes(database, self.request, since, after)
                )
            except SQLAlchemyError as error:
                log.warning("stream_not_read", error=str(error).splitlines()[0])
                yield b""
                await asyncio.sleep(RETRY_INTERVAL)
                continue
            revision = page.revision if revision is None else revision
            rows = page.changes.rows
            frames = steps_frame(since if page.changes.has_more else revision, rows, page.changes.last_finished)
            frames += call_frames(page.calls)
            if frames:
                yield frames
            self.rows_at = page.now
            if not page.changes.has_more:
                self.revision = revision
                return
            after = rows[-1].id


def _next_check(now: float) -> float:
    """Return when a caller is checked next: all at the same moments, so that they share a statement."""
    return (now // CHECK_INTERVAL + 1) * CHECK_INTERVAL


def _read_changes(database: Database, request: LiveRequest, since: int, after: str | None) -> live_snapshots.ChangePage:
    with database.transaction() as tx:
        page = live_snapshots.read_changes(
            tx,
            request.tenant_id,
            request.run_id,
            since=since,
            after=ActivationId(UUID(after)) if after is not None else None,
            limit=MAX_ROWS,
        )
    if page is None:
        raise NotFound(f"There is no run {request.run_id.hex}.", run_id=request.run_id.hex)
    return page


def _read_clock(database: Database) -> int | None:
    with database.statements() as tx:
        return milliseconds(server_info.read_clock(tx))
