"""Speech: pieces to the bus at once, the text to its turn's row about once a second.

A piece carries what the turn's row does not have yet, so whoever begins to listen in mid-speech, or has missed a piece,
is up to date with the next one.

A voice speaks in one turn. What an earlier speaker of the turn has said is not said again: as long as the text to say
begins with it, it is swallowed; where it does not, the voice falls silent and the whole text replaces what was said
when the attempt reports (`retake`). Nothing leaves the worker before the claim is on disk.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from scheduler.messaging.redis_bus import TextDeltaPublisher
from store.db.database import Database
from store.db.transaction import Transaction
from store.runs import message_streams
from store.runs.activations import Claim
from worker.context.outcomes import sanitize_text
from worker.context.output_limits import OutputLimits

log = structlog.get_logger()

FLUSH_INTERVAL = 0.015  # seconds; the first piece of a silence goes out at once
WRITTEN_EVERY = 1.0  # seconds
MOST_REPEATED = 4000  # code points that a piece may carry; of one that speaks faster, rows have the rest


@dataclass
class MessageStreamWriter:
    """An attempt's mouth. All methods but `row` run on the event loop."""

    claim: Claim
    database: Database
    pieces: TextDeltaPublisher
    firm: Callable[[Transaction], bool]  # puts the claim on disk; False if the lease is gone
    is_message: bool
    allowance: OutputLimits = field(default_factory=OutputLimits)
    is_stopped: Callable[[], bool] = lambda: False  # whether the attempt was; then nothing more is said
    retake: bool = False
    said: list[str] = field(default_factory=list[str])
    _length: int = 0  # code points of `said`
    _epoch: int = 0
    _before: str = ""  # what earlier speakers of the turn have said
    _kept: int = 0  # code points of that which they had finished
    _matched: int = 0
    _offset: int = 0  # code points of the turn that listeners have
    _waiting: str = ""
    _stored: int = 0  # code points of the turn that its row has
    _unstored: str = ""  # what listeners have beyond that
    _written_at: float = 0.0  # on the loop's clock
    _writing: "asyncio.Task[None] | None" = None
    _taken: bool = False
    _is_known: bool = False  # what the turn's row holds
    _pacing: asyncio.TimerHandle | None = None  # until the next piece may leave
    _sent: "asyncio.Future[None] | None" = None  # the last piece
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def say(self, text: str) -> None:
        """Say the next part of the text. Raises NodeFailure if there is no end to it."""
        text = sanitize_text(text)
        if not text or self.is_stopped():
            return
        self._length += len(text)
        self.allowance.check_speech(self._length)
        self.said.append(text)
        turn = self.claim.turn
        if turn is None or self.retake:
            return
        async with self._lock:
            if not self._taken:
                await self._take(turn)
        if self.retake:
            return  # the turn was not to be had
        fresh = self._unsaid(text)
        if fresh:
            self._waiting += fresh
            if self._pacing is None:
                self._send(turn)
                await asyncio.sleep(0)

    async def _take(self, turn: UUID) -> None:
        taken = await asyncio.to_thread(self._take_row, turn)
        self._taken = True
        self._is_known = taken is not None
        if taken is None:
            self.retake = True  # the lease is gone, or the database: say nothing more
            return
        self._epoch, self._before, self._kept = taken.epoch, taken.text, taken.keep
        self._offset = self._stored = len(taken.text)
        self._written_at = asyncio.get_running_loop().time()

    def _take_row(self, turn: UUID) -> message_streams.StreamLease | None:
        try:
            with self.database.transaction() as tx:  # one: who stands still in between has still got his lease
                if not self.firm(tx):
                    return None
                return message_streams.claim_stream(
                    tx, self.claim.run_id, turn, self.claim.node_id, self.claim.lease_id
                )
        except SQLAlchemyError as error:
            log.warning("stream_not_claimed", error=str(error).splitlines()[0])
            return None

    def _unsaid(self, text: str) -> str:
        """The part of `text` that goes beyond what was said before; notices where it differs."""
        rest = self._before[self._matched :]
        overlap = min(len(rest), len(text))
        if text[:overlap] != rest[:overlap]:
            self.retake = True
            return ""
        self._matched += overlap
        return text[overlap:]

    def _send(self, turn: UUID) -> None:
        """Send what is waiting, and look again soon: while there is more, every few milliseconds."""
        self._pacing = None
        if not self._waiting or self.is_stopped():
            return
        fresh, self._waiting = self._waiting, ""
        offset, self._offset = self._offset, self._offset + len(fresh)
        self._unstored += fresh
        if len(self._unstored) <= MOST_REPEATED:
            offset, fresh = self._stored, self._unstored
        self._sent = self.pieces.send(self.claim.run_id, turn, self._epoch, offset, fresh)
        loop = asyncio.get_running_loop()
        is_writing = self._writing is not None and not self._writing.done()
        if not is_writing and loop.time() - self._written_at >= WRITTEN_EVERY:
            self._written_at = loop.time()
            self._writing = loop.create_task(self._write(turn, self._offset))  # pieces do not wait for it
        self._pacing = loop.call_later(FLUSH_INTERVAL, self._send, turn)

    async def _write(self, turn: UUID, offset: int) -> None:
        if await asyncio.to_thread(self._write_row, turn, self._whole()[:offset]):
            self._unstored = self._unstored[offset - self._stored :]
            self._stored = offset

    def _write_row(self, turn: UUID, said: str) -> bool:
        try:
            with self.database.transaction() as tx:
                return message_streams.write(tx, self.claim.run_id, turn, self.claim.lease_id, self._epoch, said)
        except SQLAlchemyError as error:
            log.warning("stream_not_written", error=str(error).splitlines()[0])
            return False

    def _whole(self) -> str:
        text = "".join(self.said)
        return text if len(text) >= len(self._before) else self._before

    async def finish(self) -> None:
        """Let the last pieces go out before the report."""
        if self._pacing is not None and self.claim.turn is not None:
            self._pacing.cancel()
            self._send(self.claim.turn)
        self.fall_silent()
        if self._sent is not None:
            await asyncio.shield(self._sent)  # other voices wait for the same batch
        if self._writing is not None:
            await self._writing

    def fall_silent(self) -> None:
        """The attempt was stopped, or has ended: nothing more leaves."""
        if self._pacing is not None:
            self._pacing.cancel()

    @property
    def has_spoken(self) -> bool:
        """Whether anything was said in the turn."""
        return self._taken and bool(self.said)

    def row(self, *, is_whole: bool = True) -> dict[str, object] | None:
        """The turn's row with the whole text, for the report; None where the attempt had nothing to say.

        Of one that broke off (not `is_whole`) what listeners have heard stays, and nothing counts as finished.
        """
        if self.claim.turn is None or not self._taken or (self.retake and not is_whole):
            return None
        text = "".join(self.said) if is_whole else self._whole()
        ends_early = len(text) < len(self._before)
        if self.is_message and (ends_early or self.retake):
            self.retake = True
        elif self.retake:
            return None  # not a Message: what it could not say live comes when the Message speaks
        epoch = self._epoch + 1 if self.retake else self._epoch
        return {
            "run_id": self.claim.run_id,
            "id": self.claim.turn,
            "node_id": self.claim.node_id,
            "speaker": self.claim.lease_id,
            "epoch": epoch if self._is_known else None,
            "keep": len(text) if is_whole else self._kept,
            "text": text,
        }
