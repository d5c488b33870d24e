"""The text that an attempt streams: text deltas over Redis at once, the whole text to its row about once a second.

A text delta repeats what the row does not have yet. So a reader that subscribes in the middle, or has missed a delta,
is up to date with the next one.

An attempt writes to one message stream. Text that an earlier attempt streamed is not sent again: as long as the new
text begins with it, that part is skipped. Where the new text differs, nothing more is sent, and the report replaces the
whole text (`restarts_text`), in a new epoch. Nothing leaves the worker before the claim is durable.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.ids import ActivationId
from scheduler.messaging.redis_bus import TextDeltaPublisher
from store.db.database import Database
from store.db.transaction import Transaction
from store.runs import message_streams
from store.runs.activations import Claim
from worker.context.outcomes import sanitize_text
from worker.context.output_limits import OutputLimits

log = structlog.get_logger()

FLUSH_INTERVAL = 0.015  # seconds between text deltas; the first one after a pause is sent at once
WRITE_INTERVAL = 1.0  # seconds between writes of the row
MAX_REPEATED = 4000  # code points of a delta that repeats; of a faster stream, readers get the rest from the row


@dataclass
class MessageStreamWriter:
    """Streams the text of one attempt. All methods but `row` run on the event loop."""

    claim: Claim
    database: Database
    publisher: TextDeltaPublisher
    persist_claim: Callable[[Transaction], bool]  # makes the claim durable; False if the lease is gone
    is_message: bool
    limits: OutputLimits = field(default_factory=OutputLimits)
    is_stopped: Callable[[], bool] = lambda: False  # whether the attempt was stopped; then nothing more is sent
    restarts_text: bool = False
    parts: list[str] = field(default_factory=list[str])
    _length: int = 0  # code points of `parts`
    _epoch: int = 0
    _before: str = ""  # the text that earlier attempts streamed
    _finished_length: int = 0  # code points of it that belong to finished nodes
    _matched: int = 0  # code points of it that this attempt has repeated
    _offset: int = 0  # code points of the stream that readers have
    _waiting: str = ""
    _stored: int = 0  # code points of the stream that its row has
    _unstored: str = ""  # what readers have beyond that
    _written_at: float = 0.0  # on the loop's clock
    _write_timer: asyncio.TimerHandle | None = None  # until the next write has ended
    _write_task: "asyncio.Task[None] | None" = None
    _has_ended: bool = False
    _is_claimed: bool = False
    _is_known: bool = False  # whether the row's content is known
    _pacing: asyncio.TimerHandle | None = None  # until the next delta may be sent
    _sent: "asyncio.Future[None] | None" = None  # the last delta
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def write(self, text: str) -> None:
        """Stream the next part of the text. Raises NodeFailure if the text exceeds its limit."""
        text = sanitize_text(text)
        if not text or self.is_stopped():
            return
        self._length += len(text)
        self.limits.check_streamed(self._length)
        self.parts.append(text)
        stream_id = self.claim.stream_id
        if stream_id is None or self.restarts_text:
            return
        async with self._lock:
            if not self._is_claimed:
                await self._claim_stream(stream_id)
        if self.restarts_text:
            return  # the stream could not be claimed
        fresh = self._skip_repeated(text)
        if fresh:
            self._waiting += fresh
            if self._pacing is None:
                self._send(stream_id)
                await asyncio.sleep(0)

    async def _claim_stream(self, stream_id: ActivationId) -> None:
        lease = await asyncio.to_thread(self._claim_row, stream_id)
        self._is_claimed = True
        self._is_known = lease is not None
        if lease is None:
            self.restarts_text = True  # the lease is gone, or the database does not answer: send nothing more
            return
        self._epoch, self._before, self._finished_length = lease.epoch, lease.text, lease.retained_length
        self._offset = self._stored = len(lease.text)
        self._written_at = asyncio.get_running_loop().time()

    def _claim_row(self, stream_id: ActivationId) -> message_streams.StreamLease | None:
        try:
            # one transaction, so that the lease holds until the stream is claimed
            with self.database.transaction() as tx:
                if not self.persist_claim(tx):
                    return None
                return message_streams.claim_stream(
                    tx, self.claim.run_id, stream_id, self.claim.node_id, self.claim.lease_id
                )
        except SQLAlchemyError as error:
            log.warning("stream_not_claimed", error=str(error).splitlines()[0])
            return None

    def _skip_repeated(self, text: str) -> str:
        """Return the part of `text` that was not streamed before. Sets `restarts_text` if the text differs."""
        rest = self._before[self._matched :]
        overlap = min(len(rest), len(text))
        if text[:overlap] != rest[:overlap]:
            self.restarts_text = True
            return ""
        self._matched += overlap
        return text[overlap:]

    def _send(self, stream_id: ActivationId) -> None:
        """Send what waits, and schedule the next call: every few milliseconds while there is text."""
        self._pacing = None
        if not self._waiting or self.is_stopped():
            return
        fresh, self._waiting = self._waiting, ""
        offset, self._offset = self._offset, self._offset + len(fresh)
        self._unstored += fresh
        if len(self._unstored) <= MAX_REPEATED:
            offset, fresh = self._stored, self._unstored
        self._sent = self.publisher.send(self.claim.run_id, stream_id, self._epoch, offset, fresh)
        if self._write_timer is None:
            self._schedule_write(stream_id)
        self._pacing = asyncio.get_running_loop().call_later(FLUSH_INTERVAL, self._send, stream_id)

    def _schedule_write(self, stream_id: ActivationId) -> None:
        """Write the row a second after the last write, whether more text comes until then or not."""
        loop = asyncio.get_running_loop()
        due = max(loop.time(), self._written_at + WRITE_INTERVAL)
        self._write_timer = loop.call_at(due, self._start_writing, stream_id)

    def _start_writing(self, stream_id: ActivationId) -> None:
        loop = asyncio.get_running_loop()
        self._written_at = loop.time()
        self._write_task = loop.create_task(self._write_text(stream_id, self._offset))  # deltas do not wait for it

    async def _write_text(self, stream_id: ActivationId, offset: int) -> None:
        if await asyncio.to_thread(self._write_row, stream_id, self._full_text()[:offset]):
            self._unstored = self._unstored[offset - self._stored :]
            self._stored = offset
        self._write_timer = None
        if self._unstored and not self._has_ended and not self.is_stopped():
            self._schedule_write(stream_id)

    def _write_row(self, stream_id: ActivationId, text: str) -> bool:
        try:
            with self.database.transaction() as tx:
                return message_streams.write(tx, self.claim.run_id, stream_id, self.claim.lease_id, self._epoch, text)
        except SQLAlchemyError as error:
            log.warning("stream_not_written", error=str(error).splitlines()[0])
            return False

    def _full_text(self) -> str:
        text = "".join(self.parts)
        return text if len(text) >= len(self._before) else self._before

    async def finish(self) -> None:
        """Send what still waits, before the report."""
        if self._pacing is not None and self.claim.stream_id is not None:
            self._pacing.cancel()
            self._send(self.claim.stream_id)
        self.stop_sending()
        if self._sent is not None:
            await asyncio.shield(self._sent)  # other attempts wait for the same batch
        if self._write_task is not None:
            await self._write_task

    def stop_sending(self) -> None:
        """Send and write nothing more: the attempt was stopped, or has ended."""
        self._has_ended = True
        for timer in (self._pacing, self._write_timer):
            if timer is not None:
                timer.cancel()

    @property
    def has_written(self) -> bool:
        """Whether anything was streamed."""
        return self._is_claimed and bool(self.parts)

    def row(self, *, is_whole: bool = True) -> dict[str, object] | None:
        """Return the row of the message stream with the whole text, for the report; None if there is nothing to write.

        After a failure (not `is_whole`) the text that readers have stays, and none of it counts as finished.
        """
        if self.claim.stream_id is None or not self._is_claimed or (self.restarts_text and not is_whole):
            return None
        text = "".join(self.parts) if is_whole else self._full_text()
        ends_early = len(text) < len(self._before)
        if self.is_message and (ends_early or self.restarts_text):
            self.restarts_text = True
        elif self.restarts_text:
            return None  # not a Message: the Message itself streams the text that could not be sent
        epoch = self._epoch + 1 if self.restarts_text else self._epoch
        return {
            "run_id": self.claim.run_id,
            "id": self.claim.stream_id,
            "node_id": self.claim.node_id,
            "writer": self.claim.lease_id,
            "epoch": epoch if self._is_known else None,
            "retained_length": len(text) if is_whole else self._finished_length,
            "text": text,
        }
