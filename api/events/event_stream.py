"""Stream events and text of a run in order. Notifications on the Redis bus wake a stream; its contents are rows.

A stream subscribes before it reads, and reads when its sequencer misses something. Every two seconds, one query for all
streams of the process checks the rows, so that a lost notification, or no Redis at all, only costs time. Text that
arrives while a client is slow is joined into one message.

A stream ends when its token, sign-in or share does: every two seconds, another query finds those that are over.

Audio is stored as a file, and its event has the file's id. The bytes are read when the envelope is written, one at a
time, and only for clients that request audio.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from api.events.event_reader import EventReader
from api.http.errors import TokenEnded
from api.http.replies import parse_id
from canvas.errors import ExecutorError
from canvas.events.run_events import CLOSING_EVENTS, MESSAGE, USER_INPUTS
from canvas.events.stream_sequencer import Frame, Position, SequencedEvent, StreamSequencer, TextDelta
from canvas.ids import ActivationId, RunId, TenantId
from canvas.state.run_state import RunStatus
from scheduler.messaging.subscriptions import EventSubscriptions, Notification, Subscription
from scheduler.views.event_frames import EventSerializer
from store.db.database import Database
from store.files.blobs import Blobs
from store.primitives.json_codec import encode
from store.runs import run_queries
from store.runs.events import EventRow
from store.runs.run_queries import EventPage, RunSummary
from store.tenants import uploads, viewer_sessions
from store.tenants.viewer_sessions import Credential, EndReason

log = structlog.get_logger()

POLL_INTERVAL = 2.0  # seconds between two checks of the rows, in case a notification is lost
KEEPALIVE_INTERVAL = 15.0  # seconds without an event after which a comment keeps the connection open
RETRY_INTERVAL = 0.2  # seconds until the next read for text that a delta announced and the row does not have yet

HEADERS = {
    "Cache-Control": "no-cache",
    "Connection": "keep-alive",
    "X-Accel-Buffering": "no",
}
MEDIA_TYPE = "text/event-stream; charset=utf-8"
KEEPALIVE = b": keep-alive\n\n"
DONE = b"data:[DONE]\n\n"


class StreamEnd(Enum):
    """Where a stream ends: with the current turn of the conversation, or when the run is over or waits."""

    TURN = auto()
    REST = auto()


@dataclass(frozen=True, slots=True)
class Envelope:
    """One envelope, the position of the client after it, and whether it is the last."""

    position: Position
    body: dict[str, Any]
    name: str  # of the event; "" for the error frame

    @property
    def audio_file(self) -> str | None:
        """The id of the audio file of this envelope, or None."""
        return self.body["data"].get("audio") if self.name == MESSAGE else None

    def with_audio(self, audio: bytes) -> "Envelope":
        """Return the envelope with the audio itself, in the format of RAGFlow's clients."""
        return replace(self, body={**self.body, "data": {"content": "", "audio_binary": audio.hex()}})


def ended_line(error: TokenEnded, run_id: RunId) -> bytes:
    """Return the last line of a stream whose token has ended. The run continues."""
    return f"data:{encode({**error.body, 'run_id': run_id.hex})}\n\n".encode()


def event_line(wired: Envelope) -> bytes:
    """Return an envelope as a server-sent event: `data:` without a space, and its id."""
    return f"id:{wired.position}\ndata:{encode(wired.body)}\n\n".encode()


class EventStreams:
    """The event streams of a process."""

    def __init__(
        self,
        reader: EventReader,
        subscriptions: EventSubscriptions,
        *,
        poll_interval: float = POLL_INTERVAL,
        keepalive_interval: float = KEEPALIVE_INTERVAL,
        blobs: Blobs,
    ) -> None:
        self._reader = reader
        self._subscriptions = subscriptions
        self._poll_interval = poll_interval
        self._keepalive_interval = keepalive_interval
        self._blobs = blobs
        self._polling: asyncio.Task[None] | None = None
        self._credentials: dict[Subscription, Credential] = {}  # of the streams that end with their token or sign-in
        self._ended: dict[Subscription, TokenEnded] = {}  # streams whose token, sign-in or share is over

    async def start(self) -> None:
        """Start to listen for notifications and to poll."""
        await self._subscriptions.start()
        self._polling = asyncio.create_task(self._poll(), name="easel-polling")

    async def close(self) -> None:
        """Stop polling and close the connections of the streams."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        await self._subscriptions.close()
        self._reader.close()

    def subscribe(self, run_id: RunId) -> AbstractAsyncContextManager[Subscription]:
        """Subscribe to a run, before it starts or before its rows are read."""
        return self._subscriptions.subscribe(run_id)

    async def read(
        self, tenant_id: TenantId, run_id: RunId, after: Position
    ) -> tuple[RunSummary, list[Envelope], Position]:
        """Return the stored envelopes after a position, with audio, and the position after them. Raises NotFound."""
        transcript = StreamSequencer[EventRow](after)
        reading, wire = await self._reader.read_after(tenant_id, run_id, after.event)
        wired = _make_envelopes(wire, transcript.on_rows(reading.events, reading.streams))
        shown = [await self._add_audio(tenant_id, one) for one in wired]
        return reading.run, [one for one in shown if one is not None], transcript.position

    async def follow(
        self,
        tenant_id: TenantId,
        subscription: Subscription,
        after: Position,
        until: StreamEnd,
        *,
        credential: Credential | None,
        with_audio: bool = True,
    ) -> AsyncGenerator[Envelope | None]:
        """Yield every envelope after a position in order, once; None when a keep-alive comment is due. Raises NotFound.

        Raises TokenEnded soon after the token, sign-in or share of the credential is over. Without a credential, the
        stream continues to its end.
        Envelopes with audio are left out unless they are requested.
        """
        if credential is not None:
            self._credentials[subscription] = credential
        envelopes = self._envelopes(tenant_id, subscription, after, until, with_audio=with_audio)
        try:
            async for wired in envelopes:
                yield wired
        finally:
            self._credentials.pop(subscription, None)
            self._ended.pop(subscription, None)
            await envelopes.aclose()

    async def _envelopes(
        self, tenant_id: TenantId, subscription: Subscription, after: Position, until: StreamEnd, *, with_audio: bool
    ) -> AsyncGenerator[Envelope | None]:
        transcript = StreamSequencer[EventRow](after)
        clock = asyncio.get_running_loop().time
        beat_at = clock() + self._keepalive_interval
        read_at = 0.0  # not before
        wire: EventSerializer | None = None
        while True:
            if (ended := self._ended.get(subscription)) is not None:
                raise ended
            found: list[Envelope] = []
            ends = False
            if transcript.needs_rows and clock() >= read_at:
                try:
                    reading, wire = await self._reader.read_after(tenant_id, subscription.run_id, transcript.after)
                except SQLAlchemyError as error:
                    log.warning("stream_not_read", error=str(error).splitlines()[0])
                else:
                    found = _make_envelopes(wire, transcript.on_rows(reading.events, reading.streams))
                    ends = _is_complete(reading, transcript, until)
                    if not reading.is_last:
                        transcript.mark_stale()
                read_at = 0.0 if found else clock() + RETRY_INTERVAL
            if not found and not ends:
                wait_until = min(beat_at, read_at) if transcript.needs_rows else beat_at
                notification = await subscription.get(max(0.0, wait_until - clock()))
                frames: list[Frame[EventRow]] = []
                while notification is not None:
                    frames += apply_notification(transcript, notification)
                    read_at = 0.0 if "n" in notification else read_at
                    notification = subscription.poll()
                if wire is not None:
                    found = _make_envelopes(wire, join_deltas(frames))
            for wired in found:
                beat_at = clock() + self._keepalive_interval
                if wired.audio_file is None:
                    yield wired
                elif with_audio and (sounding := await self._add_audio(tenant_id, wired)) is not None:
                    yield sounding
                if until is StreamEnd.TURN and wired.name in CLOSING_EVENTS:
                    return
            if ends:
                return
            if clock() >= beat_at:
                beat_at = clock() + self._keepalive_interval
                yield None

    async def _add_audio(self, tenant_id: TenantId, wired: Envelope) -> Envelope | None:
        """Return an envelope, with its audio if it has some; None if the audio file cannot be read."""
        if wired.audio_file is None:
            return wired
        named = wired.audio_file
        audio = await self._reader.in_thread(lambda database: self._read_audio(database, tenant_id, parse_id(named)))
        return wired.with_audio(audio) if audio else None

    def _read_audio(self, database: Database, tenant_id: TenantId, file_id: UUID | None) -> bytes | None:
        if file_id is None:
            return None
        try:
            with database.statements() as tx:
                file = uploads.get(tx, tenant_id, file_id)
            return self._blobs.get(file.sha256) if file.mime_type.startswith("audio/") else None
        except (ExecutorError, OSError, SQLAlchemyError) as error:  # the text of the answer is enough without its audio
            log.warning("audio_not_read", file_id=file_id.hex, error=str(error).splitlines()[0])
            return None

    async def _poll(self) -> None:
        """Poll: report to every stream how far its run is, and end the streams whose token has ended."""
        while True:
            await asyncio.sleep(self._poll_interval)
            listeners = self._subscriptions.subscriptions
            if not listeners:
                continue
            run_ids = list({listener.run_id for listener in listeners})
            credentials = dict(self._credentials)
            checked = set(credentials.values())
            try:
                progress, ended = await self._reader.in_thread(
                    lambda database, ids=run_ids, of=checked: _poll_rows(database, ids, of)
                )
            except SQLAlchemyError as error:
                log.warning("streams_not_polled", error=str(error).splitlines()[0])
                continue
            for listener, credential in credentials.items():
                if credential in ended and listener in self._credentials:
                    is_token = credential.session_id is None
                    self._ended[listener] = TokenEnded(None if is_token else ended[credential])
                    listener.deliver({})  # wake it
            found = {moved.run_id: moved for moved in progress}
            for listener in listeners:
                moved = found.get(listener.run_id)
                if moved is None:
                    continue
                listener.deliver({"n": moved.last_event, "over": RunStatus(moved.status).is_over})
                if moved.stream_id is not None:
                    listener.deliver({"t": str(moved.stream_id), "ep": moved.epoch, "o": moved.length, "x": ""})


def _poll_rows(
    database: Database, run_ids: list[RunId], credentials: set[Credential]
) -> tuple[list[run_queries.RunProgress], Mapping[Credential, EndReason]]:
    """Return the last event of each run, and the credentials that are no longer valid."""
    with database.statements() as tx:
        return run_queries.progress_of(tx, run_ids), viewer_sessions.find_ended(tx, credentials)


def apply_notification(transcript: StreamSequencer[EventRow], notification: Notification) -> list[Frame[EventRow]]:
    """Pass a notification to the sequencer; ignore an invalid one, since the rows are the facts."""
    match notification:
        case {"n": int() as number}:
            transcript.on_event_notification(number)
            if notification.get("over") and number <= transcript.after:
                transcript.mark_stale()  # over, with no later event: the end may still be missing
        case {"t": str() as turn, "ep": int() as epoch, "o": int() as offset, "x": str() as text}:
            try:
                return transcript.on_text_delta(ActivationId(UUID(turn)), epoch, offset, text)
            except ValueError:
                transcript.mark_stale()
        case _:
            transcript.mark_stale()
    return []


def join_deltas(frames: list[Frame[EventRow]]) -> list[Frame[EventRow]]:
    """Return the frames with consecutive text deltas joined, so that they need one envelope."""
    joined: list[Frame[EventRow]] = []
    for frame in frames:
        last = joined[-1] if joined else None
        if isinstance(frame, TextDelta) and isinstance(last, TextDelta) and last.stream_id == frame.stream_id:
            joined[-1] = TextDelta(frame.position, frame.stream_id, last.text + frame.text)
        else:
            joined.append(frame)
    return joined


def _make_envelopes(wire: EventSerializer, frames: list[Frame[EventRow]]) -> list[Envelope]:
    return [
        Envelope(position, body, frame.stored.name if isinstance(frame, SequencedEvent) else "message")
        for frame in frames
        for position, body in wire.frames(frame)
    ]


def _is_complete(reading: EventPage, transcript: StreamSequencer[EventRow], until: StreamEnd) -> bool:
    """Return whether the stream is complete after all of this was sent."""
    if not reading.is_last:
        return False
    status = RunStatus(reading.run.status)
    if reading.events and until is StreamEnd.REST:
        last = reading.events[-1]
        is_new = last.number >= reading.run.last_event
        return last.name in CLOSING_EVENTS and (last.name != USER_INPUTS or is_new)
    rests = status.is_over or (status is RunStatus.WAITING and until is StreamEnd.REST)
    return rests and transcript.after >= reading.run.last_event
