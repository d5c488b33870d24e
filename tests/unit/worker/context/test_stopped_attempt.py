"""A stopped attempt sends and stores no further text."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

from store.runs.message_streams import StreamLease
from worker.context.text_stream import MessageStreamWriter


class RecordingPublisher:
    """The text that readers of the stream have received."""

    def __init__(self) -> None:
        self.text = ""

    def send(self, run_id: object, stream_id: object, epoch: int, offset: int, text: str) -> "asyncio.Future[None]":
        self.text = self.text[:offset] + text
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent.set_result(None)
        return sent


def writer_for(publisher: RecordingPublisher, stopped: list[bool]) -> MessageStreamWriter:
    claim: Any = SimpleNamespace(run_id=uuid4(), stream_id=uuid4(), node_id="model", lease_id=uuid4())
    writer = MessageStreamWriter(
        claim, cast("Any", None), cast("Any", publisher), lambda tx: True, False, is_stopped=lambda: bool(stopped)
    )
    writer._claim_row = lambda stream_id: StreamLease(0, "", 0)  # type: ignore[method-assign]
    return writer


def test_text_after_the_stop_is_neither_sent_nor_stored():
    publisher, stopped = RecordingPublisher(), list[bool]()

    async def write_text() -> MessageStreamWriter:
        writer = writer_for(publisher, stopped)
        await writer.write("Before. ")
        stopped.append(True)
        await writer.write("After.")
        await writer.finish()
        return writer

    writer = asyncio.run(write_text())

    assert publisher.text == "Before. "
    assert writer.parts == ["Before. "]


def test_text_that_waits_when_the_attempt_stops_is_not_sent():
    publisher, stopped = RecordingPublisher(), list[bool]()

    async def write_text() -> None:
        writer = writer_for(publisher, stopped)
        await writer.write("Left. ")
        await writer.write("Waiting.")
        stopped.append(True)
        await writer.finish()

    asyncio.run(write_text())

    assert publisher.text == "Left. "
