"""Pieces go out in order, together where they came together, and nobody waits for a Redis that is silent."""

import asyncio
from typing import Any
from uuid import uuid4

import orjson
import pytest
import redis

from scheduler.messaging import redis_bus
from scheduler.messaging.redis_bus import TextDeltaPublisher

RUN, TURN = uuid4(), uuid4()


class Wire:
    """A connection to Redis that takes its time."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.batches: list[list[str]] = []
        self.error = error
        self.may_answer = asyncio.Event()

    def pack_commands(self, commands: list[tuple[str, str, bytes]]) -> list[str]:
        return [orjson.loads(said)["x"] for _, _, said in commands]

    async def send_packed_command(self, said: list[str]) -> None:
        self.batches.append(said)
        if self.error is not None:
            raise self.error

    async def read_response(self) -> int:
        await self.may_answer.wait()
        return 1

    async def disconnect(self, *, nowait: bool = False) -> None:
        """Nothing is connected."""


def pieces_on(wire: Wire) -> TextDeltaPublisher:
    pieces = TextDeltaPublisher("redis://127.0.0.1:1/0")
    untyped: Any = pieces
    untyped._connection = wire
    return pieces


def test_deltas_sent_during_a_batch_form_the_next_batch():
    async def speak() -> list[list[str]]:
        wire = Wire()
        pieces = pieces_on(wire)
        pieces.send(RUN, TURN, 0, 0, "a")
        while not wire.batches:
            await asyncio.sleep(0)
        pieces.send(RUN, TURN, 0, 1, "b")
        last = pieces.send(RUN, TURN, 0, 2, "c")
        wire.may_answer.set()
        await last
        return wire.batches

    assert asyncio.run(speak()) == [["a"], ["b", "c"]]


def test_a_connection_that_was_closed_while_it_lay_idle_is_tried_once_more_and_then_left_alone():
    async def speak() -> list[list[str]]:
        wire = Wire(error=redis.ConnectionError("closed"))
        pieces = pieces_on(wire)
        await pieces.send(RUN, TURN, 0, 0, "a")
        await pieces.send(RUN, TURN, 0, 1, "b")
        return wire.batches

    assert asyncio.run(speak()) == [["a"], ["a"]]


def test_unresponsive_redis_delays_a_writer_for_a_moment_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redis_bus, "ANSWER_TIMEOUT", 0.01)

    async def speak() -> list[list[str]]:
        wire = Wire()
        pieces = pieces_on(wire)
        async with asyncio.timeout(5):
            await pieces.send(RUN, TURN, 0, 0, "a")
            await pieces.send(RUN, TURN, 0, 1, "b")
        return wire.batches

    assert asyncio.run(speak()) == [["a"]]
