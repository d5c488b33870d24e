"""Text deltas are published in order and in batches, and an unresponsive Redis does not block writers."""

import asyncio
import socket
import time
from contextlib import closing
from typing import Any
from uuid import uuid4

import orjson
import pytest
import redis

from scheduler.messaging import redis_bus
from scheduler.messaging.redis_bus import TextDeltaPublisher, channel

RUN, STREAM = uuid4(), uuid4()


class Wire:
    """A connection to Redis that answers when a test allows it."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.batches: list[list[str]] = []
        self.error = error
        self.may_answer = asyncio.Event()

    def pack_commands(self, commands: list[tuple[str, str, bytes]]) -> list[str]:
        return [orjson.loads(payload)["x"] for _, name, payload in commands if name == channel(RUN)]

    async def send_packed_command(self, texts: list[str]) -> None:
        self.batches.append(texts)
        if self.error is not None:
            raise self.error

    async def read_response(self) -> int:
        await self.may_answer.wait()
        return 1

    async def disconnect(self, *, nowait: bool = False) -> None:
        """Nothing is connected."""


def publisher_on(wire: Wire) -> TextDeltaPublisher:
    publisher = TextDeltaPublisher("redis://127.0.0.1:1/0")
    untyped: Any = publisher
    untyped._connection = wire
    return publisher


def test_deltas_sent_during_a_batch_form_the_next_batch():
    async def publish() -> list[list[str]]:
        wire = Wire()
        publisher = publisher_on(wire)
        publisher.send(RUN, STREAM, 0, 0, "a")
        while not wire.batches:
            await asyncio.sleep(0)
        publisher.send(RUN, STREAM, 0, 1, "b")
        last = publisher.send(RUN, STREAM, 0, 2, "c")
        wire.may_answer.set()
        await last
        return wire.batches

    assert asyncio.run(publish()) == [["a"], ["b", "c"]]


def test_closed_idle_connection_is_retried_once_and_then_not_used():
    async def publish() -> list[list[str]]:
        wire = Wire(error=redis.ConnectionError("closed"))
        publisher = publisher_on(wire)
        await publisher.send(RUN, STREAM, 0, 0, "a")
        await publisher.send(RUN, STREAM, 0, 1, "b")
        return wire.batches

    assert asyncio.run(publish()) == [["a"], ["a"]]


def test_unresponsive_redis_delays_a_writer_for_a_moment_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redis_bus, "ANSWER_TIMEOUT", 0.01)

    async def publish() -> list[list[str]]:
        wire = Wire()
        publisher = publisher_on(wire)
        async with asyncio.timeout(5):
            await publisher.send(RUN, STREAM, 0, 0, "a")
            await publisher.send(RUN, STREAM, 0, 1, "b")
        return wire.batches

    assert asyncio.run(publish()) == [["a"]]


class SocketWire(Wire):
    """A connection to Redis whose answers come through a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.ours, self.of_redis = socket.socketpair()
        self.ours.setblocking(False)

    async def read_response(self) -> int:
        return len(await asyncio.get_running_loop().sock_recv(self.ours, 1))

    def close(self) -> None:
        self.ours.close()
        self.of_redis.close()


def test_answer_that_came_in_time_counts_although_the_loop_was_blocked_meanwhile(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redis_bus, "ANSWER_TIMEOUT", 0.05)

    async def publish(wire: SocketWire) -> None:
        publisher = publisher_on(wire)
        sent = publisher.send(RUN, STREAM, 0, 0, "a")
        while not wire.batches:
            await asyncio.sleep(0)
        wire.of_redis.send(b"11")  # of both channels
        blocked_until = time.monotonic() + 0.2
        while time.monotonic() < blocked_until:
            """Another task computes."""
        await sent
        publisher.send(RUN, STREAM, 0, 1, "b")
        while len(wire.batches) < 2:  # it would not be sent after a failure
            await asyncio.sleep(0)
        await publisher.close()

    with closing(SocketWire()) as wire:
        asyncio.run(asyncio.wait_for(publish(wire), 30))

    assert wire.batches == [["a"], ["b"]]
