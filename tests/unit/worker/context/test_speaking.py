"""What leaves a speaker, and what its row is given meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from store.runs.message_streams import StreamLease
from worker.context import text_stream
from worker.context.text_stream import MessageStreamWriter


class Room:
    """Whoever listens, and the turn's row."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, str]] = []
        self.rows: list[str] = []
        self.is_away = False

    def send(self, run_id: UUID, turn: UUID, epoch: int, offset: int, text: str) -> "asyncio.Future[None]":
        self.pieces.append((offset, text))
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gone.set_result(None)
        return gone

    def write(self, turn: UUID, said: str) -> bool:
        self.rows.append(said)
        return not self.is_away


def speaker(room: Room, before: str = "") -> Any:
    claim: Any = SimpleNamespace(run_id=uuid4(), stream_id=uuid4(), node_id="model", lease_id=uuid4())
    speaking: Any = MessageStreamWriter(claim, cast("Any", None), cast("Any", room), lambda tx: True, False)
    taken = StreamLease(0, before, 0)
    speaking._claim_row = {claim.stream_id: taken}.get
    speaking._write_row = room.write
    return speaking


async def pause(speaking: Any) -> None:
    """Until a next word would be the first of a silence."""
    while speaking._pacing is not None or (speaking._write_task is not None and not speaking._write_task.done()):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def without_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_stream, "FLUSH_INTERVAL", 0.0)
    monkeypatch.setattr(text_stream, "WRITE_INTERVAL", 0.0)


def said(room: Room, words: list[str], before: str = "") -> Any:
    async def talk() -> Any:
        speaking = speaker(room, before)
        for word in words:
            await speaking.write(word)
            await pause(speaking)
        await speaking.finish()
        return speaking

    return asyncio.run(talk())


def test_stream_with_pauses_is_written_to_its_row():
    room = Room()

    said(room, ["One, ", "two, ", "three."])

    assert room.rows == ["One, ", "One, two, ", "One, two, three."]


def test_text_delta_begins_where_the_row_ends():
    room = Room()

    said(room, ["Hello ", "there, ", "Ann."], before="Hello ")

    assert room.pieces == [(6, "there, "), (13, "Ann.")]


def test_text_missing_in_the_row_is_repeated_in_the_next_delta():
    room = Room()
    room.is_away = True

    said(room, ["One, ", "two, ", "three."])

    assert room.pieces == [(0, "One, "), (0, "One, two, "), (0, "One, two, three.")]


def test_text_that_comes_fast_is_sent_in_one_delta(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_stream, "FLUSH_INTERVAL", 600.0)
    monkeypatch.setattr(text_stream, "WRITE_INTERVAL", 600.0)
    room = Room()

    async def talk() -> None:
        speaking = speaker(room)
        for word in ("One, ", "two, ", "three."):
            await speaking.write(word)
        await speaking.finish()

    asyncio.run(talk())

    assert room.pieces == [(0, "One, "), (0, "One, two, three.")]
