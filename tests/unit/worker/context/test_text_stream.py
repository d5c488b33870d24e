"""What a message stream writer sends, and what it writes to its row meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from store.runs.message_streams import StreamLease
from worker.context import text_stream
from worker.context.text_stream import MessageStreamWriter


class RecordingStream:
    """Record the text deltas that are sent and the texts that are written to the row."""

    def __init__(self) -> None:
        self.deltas: list[tuple[int, str]] = []
        self.rows: list[str] = []
        self.fails_writes = False

    def send(self, run_id: UUID, stream_id: UUID, epoch: int, offset: int, text: str) -> "asyncio.Future[None]":
        self.deltas.append((offset, text))
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent.set_result(None)
        return sent

    def write(self, stream_id: UUID, text: str) -> bool:
        self.rows.append(text)
        return not self.fails_writes


def make_writer(stream: RecordingStream, before: str = "") -> Any:
    claim: Any = SimpleNamespace(run_id=uuid4(), stream_id=uuid4(), node_id="model", lease_id=uuid4())
    writer: Any = MessageStreamWriter(claim, cast("Any", None), cast("Any", stream), lambda tx: True, False)
    lease = StreamLease(0, before, 0)
    writer._claim_row = {claim.stream_id: lease}.get
    writer._write_row = stream.write
    return writer


async def wait_until_idle(writer: Any) -> None:
    """Wait until the writer has no pending text."""
    while writer._pacing is not None or (writer._write_task is not None and not writer._write_task.done()):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def without_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_stream, "FLUSH_INTERVAL", 0.0)
    monkeypatch.setattr(text_stream, "WRITE_INTERVAL", 0.0)


def write_words(stream: RecordingStream, words: list[str], before: str = "") -> Any:
    async def write_all() -> Any:
        writer = make_writer(stream, before)
        for word in words:
            await writer.write(word)
            await wait_until_idle(writer)
        await writer.finish()
        return writer

    return asyncio.run(write_all())


def test_stream_with_pauses_is_written_to_its_row():
    stream = RecordingStream()

    write_words(stream, ["One, ", "two, ", "three."])

    assert stream.rows == ["One, ", "One, two, ", "One, two, three."]


def test_text_delta_begins_where_the_row_ends():
    stream = RecordingStream()

    write_words(stream, ["Hello ", "there, ", "Ann."], before="Hello ")

    assert stream.deltas == [(6, "there, "), (13, "Ann.")]


def test_text_missing_in_the_row_is_repeated_in_the_next_delta():
    stream = RecordingStream()
    stream.fails_writes = True

    write_words(stream, ["One, ", "two, ", "three."])

    assert stream.deltas == [(0, "One, "), (0, "One, two, "), (0, "One, two, three.")]


def test_text_that_comes_fast_is_sent_in_one_delta(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_stream, "FLUSH_INTERVAL", 600.0)
    monkeypatch.setattr(text_stream, "WRITE_INTERVAL", 600.0)
    stream = RecordingStream()

    async def write_all() -> None:
        writer = make_writer(stream)
        for word in ("One, ", "two, ", "three."):
            await writer.write(word)
        await writer.finish()

    asyncio.run(write_all())

    assert stream.deltas == [(0, "One, "), (0, "One, two, three.")]


@pytest.mark.parametrize(("is_restarted", "epoch"), [(False, 4), (True, 5)])
def test_reported_text_that_replaces_the_text_before_has_the_next_epoch(is_restarted: bool, epoch: int):
    async def report() -> Any:
        writer = make_writer(RecordingStream())
        writer._claim_row = {writer.claim.stream_id: StreamLease(4, "", 0)}.get
        await writer.write("Hello")
        await writer.finish()
        writer.is_message, writer.restarts_text = True, is_restarted
        return writer.row(is_whole=True)

    row = asyncio.run(report())

    assert (row["epoch"], row["text"]) == (epoch, "Hello")
