"""A stream while it happens: pieces at once, what the bus loses out of the rows, take-backs, many listeners."""

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
from store.primitives.ids import new_id
from store.runs import events, message_streams
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client, Frame, frames

NODE = "Message:0"


@dataclass
class Stage:
    """A run whose worker we play: rows as folds and speakers write them, and what they send."""

    database: Database
    bus: redis.Redis
    run_id: UUID
    turn: UUID
    number: int
    epoch: int = 0
    said: str = ""

    def fold(self, name: str, *, echo: bool = True, opens: bool = False, ends: bool = False) -> None:
        self.number += 1
        with self.database.transaction() as tx:
            events.append(tx, self.run_id, self.number, [Event(name, {}, self.turn, NODE)])
            of = {"run_id": self.run_id, "turn": self.turn, "number": self.number}
            if opens:
                tx.execute(message_streams.OPEN, node_id=NODE, **of)
            if name == "message_reset":
                tx.execute(message_streams.TRUNCATE, **of)
                self.epoch, self.said = self.epoch + 1, ""
            if ends:
                tx.execute(message_streams.PUT_TEXT, run_id=self.run_id, turn=self.turn, node_id=NODE, said=self.said)
                tx.execute(message_streams.CLOSE, **of)
            tx.execute(
                text("update runs set last_event = :number, turn = :turn where id = :run_id"),
                **{**of, "turn": None if ends else self.turn},
            )
        if echo:
            self.publish({"n": self.number, "over": False})

    def speak(self, part: str, *, sent: bool = True, stored: bool = False) -> None:
        piece = {"t": str(self.turn), "ep": self.epoch, "o": len(self.said), "x": part}
        self.said += part
        if stored:
            with self.database.transaction() as tx:
                tx.execute(message_streams.PUT_TEXT, run_id=self.run_id, turn=self.turn, node_id=NODE, said=self.said)
        if sent:
            self.publish(piece)

    def publish(self, message: object) -> None:
        self.bus.publish(channel(self.run_id), json.dumps(message))


@pytest.fixture
def stage(lonely: Client, lonely_server: Server) -> Iterator[Stage]:
    run_id = UUID(lonely.start(lonely.agent(ECHO))["run_id"])
    with redis.Redis.from_url(lonely_server.redis_url) as bus:
        yield Stage(lonely_server.database, bus, run_id, new_id(), 2)


@contextmanager
def listening(client: Client, stage: Stage) -> Iterator[Iterator[Frame]]:
    """A stream of the run that has shown what there was before."""
    headers = {"Accept": "text/event-stream"}
    url = f"/api/v1/runs/{stage.run_id}/events"
    with client.http.stream("GET", url, headers=headers) as response:
        shown = frames(response.iter_lines())
        assert [next(shown).data["event"] for _ in range(2)] == ["workflow_started", "node_started"]
        yield shown


def said(frame: Frame) -> str:
    assert frame.data["event"] == "message"
    return frame.data["data"]["content"]


def test_pieces_arrive_before_any_row_has_them(lonely: Client, stage: Stage) -> None:
    with listening(lonely, stage) as shown:
        stage.fold("node_started", opens=True)
        assert next(shown).id == "3.0"

        stage.speak("Hel")
        first = next(shown)
        stage.speak("lo")
        second = next(shown)

        assert (said(first), said(second)) == ("Hel", "lo")
        assert (first.id, second.id) == ("3.3", "3.5")


def test_a_piece_that_is_lost_is_read_from_its_row(lonely: Client, stage: Stage) -> None:
    with listening(lonely, stage) as shown:
        stage.fold("node_started", opens=True)
        next(shown)

        stage.speak("lost ", sent=False, stored=True)
        stage.speak("heard")

        assert said(next(shown)) == "lost heard"


def test_text_that_only_the_row_has_is_found_without_any_word_of_it(lonely: Client, stage: Stage) -> None:
    with listening(lonely, stage) as shown:
        stage.fold("node_started", opens=True, echo=False)
        next(shown)

        stage.speak("quiet", sent=False, stored=True)

        assert said(next(shown)) == "quiet"


def test_a_take_back_comes_before_the_text_of_the_next_attempt(lonely: Client, stage: Stage) -> None:
    with listening(lonely, stage) as shown:
        stage.fold("node_started", opens=True)
        stage.speak("wrong")
        assert [next(shown).data["event"] for _ in range(2)] == ["node_started", "message"]

        stage.fold("message_reset", echo=False)
        stage.speak("right")
        taken_back, again = next(shown), next(shown)

        assert taken_back.data["data"] == {"turn": stage.turn.hex, "epoch": 1, "keep": 0}
        assert said(again) == "right"
        assert again.data["offset"] == 0


def test_all_of_a_text_comes_before_its_end(lonely: Client, stage: Stage) -> None:
    with listening(lonely, stage) as shown:
        stage.fold("node_started", opens=True)
        next(shown)
        stage.speak("some ", sent=False)
        stage.speak("text", sent=False)

        stage.fold("message_end", ends=True)

        assert said(next(shown)) == "some text"
        assert next(shown).data["event"] == "message_end"


def test_thinking_is_marked_by_events_of_its_own(lonely: Client, stage: Stage) -> None:
    with listening(lonely, stage) as shown:
        stage.fold("node_started", opens=True)
        next(shown)

        stage.speak("\ufdd0hm\ufdd1so")

        assert [next(shown).data["data"] for _ in range(4)] == [
            {"content": "", "start_to_think": True},
            {"content": "hm"},
            {"content": "", "end_to_think": True},
            {"content": "so"},
        ]


def test_every_listener_hears_everything(lonely: Client, stage: Stage) -> None:
    with listening(lonely, stage) as one, listening(lonely, stage) as other:
        stage.fold("node_started", opens=True)
        stage.speak("to all")

        assert [(next(shown).id, said(next(shown))) for shown in (one, other)] == [("3.0", "to all")] * 2

    with listening(lonely, stage) as late:
        assert next(late).id == "3.0"


@pytest.mark.parametrize(
    "noise", ['"text"', "[1]", "{}", '{"n": "x"}', '{"t": "no id", "ep": 0, "o": 0, "x": "y"}', "{"]
)
def test_what_others_write_into_the_channel_harms_nobody(lonely: Client, stage: Stage, noise: str) -> None:
    with listening(lonely, stage) as shown:
        stage.bus.publish(channel(stage.run_id), noise)
        stage.fold("node_started", opens=True)

        assert next(shown).id == "3.0"
