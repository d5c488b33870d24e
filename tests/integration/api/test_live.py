"""Live streams: text deltas from the bus, lost deltas from the rows, message resets, several subscribers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import pytest
import redis
from sqlalchemy import text

from canvas.events.run_events import Event
from scheduler.messaging.redis_bus import channel
from store.db.database import Database
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.runs import events, message_streams
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client, Frame, frames

NODE = "Message:0"


@dataclass
class RunWriter:
    """Writes the rows of a run and sends its notifications and text deltas, in place of a worker."""

    database: Database
    bus: redis.Redis
    run_id: UUID
    stream_id: UUID
    number: int
    epoch: int = 0
    text: str = ""

    def append_event(self, name: str, *, notify: bool = True, opens: bool = False, ends: bool = False) -> None:
        self.number += 1
        with self.database.transaction() as tx:
            events.append(tx, self.run_id, self.number, [Event(name, {}, self.stream_id, NODE)])
            ids = {"run_id": self.run_id, "stream_id": self.stream_id, "number": self.number}
            if opens:
                tx.execute(message_streams.OPEN, node_id=NODE, **ids)
            if name == "message_reset":
                tx.execute(message_streams.TRUNCATE, **ids)
                self.epoch, self.text = self.epoch + 1, ""
            if ends:
                tx.execute(
                    message_streams.PUT_TEXT,
                    run_id=self.run_id,
                    stream_id=self.stream_id,
                    node_id=NODE,
                    content=self.text,
                )
                tx.execute(message_streams.CLOSE, **ids)
            tx.execute(
                text("update runs set last_event = :number, open_stream = :stream_id where id = :run_id"),
                **{**ids, "stream_id": None if ends else self.stream_id},
            )
        if notify:
            self.publish({"n": self.number, "over": False})

    def _put_text(self, tx: Transaction) -> None:
        ids = {"run_id": self.run_id, "stream_id": self.stream_id}
        tx.execute(message_streams.PUT_TEXT, node_id=NODE, content=self.text, **ids)

    def append_text(self, delta_text: str, *, is_sent: bool = True, is_stored: bool = False) -> None:
        delta = {"t": str(self.stream_id), "ep": self.epoch, "o": len(self.text), "x": delta_text}
        self.text += delta_text
        if is_stored:
            with self.database.transaction() as tx:
                tx.execute(
                    message_streams.PUT_TEXT,
                    run_id=self.run_id,
                    stream_id=self.stream_id,
                    node_id=NODE,
                    content=self.text,
                )
        if is_sent:
            self.publish(delta)

    def publish(self, message: object) -> None:
        self.bus.publish(channel(self.run_id), json.dumps(message))


@pytest.fixture
def writer(workerless_client: Client, workerless_server: Server) -> Iterator[RunWriter]:
    run_id = UUID(workerless_client.start(workerless_client.agent(ECHO))["run_id"])
    with redis.Redis.from_url(workerless_server.redis_url) as bus:
        yield RunWriter(workerless_server.database, bus, run_id, new_id(), 2)


@contextmanager
def open_stream(client: Client, writer: RunWriter) -> Iterator[Iterator[Frame]]:
    """Open a stream of the run; yield its frames after those of the earlier events."""
    headers = {"Accept": "text/event-stream"}
    url = f"/api/v1/runs/{writer.run_id}/events"
    with client.http.stream("GET", url, headers=headers) as response:
        stream = frames(response.iter_lines())
        assert [next(stream).data["event"] for _ in range(2)] == ["workflow_started", "node_started"]
        yield stream


def content_of(frame: Frame) -> str:
    assert frame.data["event"] == "message"
    return frame.data["data"]["content"]


def test_text_deltas_arrive_before_they_are_stored(workerless_client: Client, writer: RunWriter) -> None:
    with open_stream(workerless_client, writer) as stream:
        writer.append_event("node_started", opens=True)
        assert next(stream).id == "3.0"

        writer.append_text("Hel")
        first = next(stream)
        writer.append_text("lo")
        second = next(stream)

        assert (content_of(first), content_of(second)) == ("Hel", "lo")
        assert (first.id, second.id) == ("3.3", "3.5")


def test_lost_text_delta_is_read_from_the_stored_text(workerless_client: Client, writer: RunWriter) -> None:
    with open_stream(workerless_client, writer) as stream:
        writer.append_event("node_started", opens=True)
        next(stream)

        writer.append_text("lost ", is_sent=False, is_stored=True)
        writer.append_text("heard")

        assert content_of(next(stream)) == "lost heard"


def test_stored_text_is_sent_without_any_notification_of_it(workerless_client: Client, writer: RunWriter) -> None:
    with open_stream(workerless_client, writer) as stream:
        writer.append_event("node_started", opens=True, notify=False)
        next(stream)

        writer.append_text("quiet", is_sent=False, is_stored=True)

        assert content_of(next(stream)) == "quiet"


def test_message_reset_is_sent_before_the_text_of_the_next_attempt(
    workerless_client: Client, writer: RunWriter
) -> None:
    with open_stream(workerless_client, writer) as stream:
        writer.append_event("node_started", opens=True)
        writer.append_text("wrong")
        assert [next(stream).data["event"] for _ in range(2)] == ["node_started", "message"]

        writer.append_event("message_reset", notify=False)
        writer.append_text("right")
        reset, again = next(stream), next(stream)

        assert reset.data["data"] == {"turn": writer.stream_id.hex, "epoch": 1, "keep": 0}
        assert content_of(again) == "right"
        assert again.data["offset"] == 0


def test_whole_text_is_sent_before_its_message_end(workerless_client: Client, writer: RunWriter) -> None:
    with open_stream(workerless_client, writer) as stream:
        writer.append_event("node_started", opens=True)
        next(stream)
        writer.append_text("some ", is_sent=False)
        writer.append_text("text", is_sent=False)

        writer.append_event("message_end", ends=True)

        assert content_of(next(stream)) == "some text"
        assert next(stream).data["event"] == "message_end"


def test_start_and_end_of_thinking_are_separate_events(workerless_client: Client, writer: RunWriter) -> None:
    with open_stream(workerless_client, writer) as stream:
        writer.append_event("node_started", opens=True)
        next(stream)

        writer.append_text("\ufdd0hm\ufdd1so")

        assert [next(stream).data["data"] for _ in range(4)] == [
            {"content": "", "start_to_think": True},
            {"content": "hm"},
            {"content": "", "end_to_think": True},
            {"content": "so"},
        ]


def test_every_subscriber_receives_every_event(workerless_client: Client, writer: RunWriter) -> None:
    with open_stream(workerless_client, writer) as one, open_stream(workerless_client, writer) as other:
        writer.append_event("node_started", opens=True)
        writer.append_text("to all")

        assert [(next(stream).id, content_of(next(stream))) for stream in (one, other)] == [("3.0", "to all")] * 2

    with open_stream(workerless_client, writer) as late:
        assert next(late).id == "3.0"


@pytest.mark.parametrize(
    "invalid", ['"text"', "[1]", "{}", '{"n": "x"}', '{"t": "no id", "ep": 0, "o": 0, "x": "y"}', "{"]
)
def test_invalid_message_in_the_channel_is_ignored(workerless_client: Client, writer: RunWriter, invalid: str) -> None:
    with open_stream(workerless_client, writer) as stream:
        writer.bus.publish(channel(writer.run_id), invalid)
        writer.append_event("node_started", opens=True)

        assert next(stream).id == "3.0"
