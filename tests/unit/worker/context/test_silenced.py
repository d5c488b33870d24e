"""What was stopped says nothing more, also if it goes on talking."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

from store.runs.message_streams import StreamLease
from worker.context.text_stream import MessageStreamWriter


class Heard:
    """Pieces as listeners get them."""

    def __init__(self) -> None:
        self.text = ""

    def send(self, run_id: object, turn: object, epoch: int, offset: int, text: str) -> "asyncio.Future[None]":
        self.text = self.text[:offset] + text
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gone.set_result(None)
        return gone


def speaking(heard: Heard, stopped: list[bool]) -> MessageStreamWriter:
    claim: Any = SimpleNamespace(run_id=uuid4(), stream_id=uuid4(), node_id="model", lease_id=uuid4())
    voice = MessageStreamWriter(
        claim, cast("Any", None), cast("Any", heard), lambda tx: True, False, is_stopped=lambda: bool(stopped)
    )
    voice._claim_row = lambda turn: StreamLease(0, "", 0)  # type: ignore[method-assign]
    return voice


def test_text_after_the_stop_is_neither_sent_nor_stored():
    heard, stopped = Heard(), list[bool]()

    async def talk() -> MessageStreamWriter:
        voice = speaking(heard, stopped)
        await voice.write("Before. ")
        stopped.append(True)
        await voice.write("After.")
        await voice.finish()
        return voice

    voice = asyncio.run(talk())

    assert heard.text == "Before. "
    assert voice.parts == ["Before. "]


def test_text_that_waits_when_the_attempt_stops_is_not_sent():
    heard, stopped = Heard(), list[bool]()

    async def talk() -> None:
        voice = speaking(heard, stopped)
        await voice.write("Left. ")
        await voice.write("Waiting.")
        stopped.append(True)
        await voice.finish()

    asyncio.run(talk())

    assert heard.text == "Left. "
