"""A spoken answer reaches those who listen as audio, and everybody else as text alone."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from api.runs.event_reader import EventReader
from api.runs.event_stream import Envelope, EventStreams, StreamEnd
from canvas.events.run_events import Event
from canvas.events.stream_sequencer import AUDIO_END, AUDIO_START, Position
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging.subscriptions import EventSubscriptions
from store.db.database import Database
from store.files.blobs import LocalBlobs
from store.primitives.ids import new_id
from store.runs import events, message_streams
from store.tenants import uploads
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client, names_of, text_of

NODE = "Message:0"


@dataclass
class Answer:
    """A finished answer of two sentences: the second one's audio is to be had, the first one's is gone."""

    client: Client
    run_id: UUID
    text: str
    streams: EventStreams

    def read(self) -> list[Envelope]:
        _, wired, _ = asyncio.run(self.streams.read(self.client.tenant_id, self.run_id, Position()))
        return wired

    def followed(self, *, with_audio: bool) -> list[Envelope]:
        return asyncio.run(self._followed(with_audio))

    async def _followed(self, with_audio: bool) -> list[Envelope]:
        await self.streams.start()
        found: list[Envelope] = []
        async with self.streams.subscribe(self.run_id) as subscription:
            frames = self.streams.follow(
                self.client.tenant_id, subscription, Position(), StreamEnd.TURN, token_id=None, with_audio=with_audio
            )
            async for wired in frames:
                assert wired is not None
                found.append(wired)
                if wired.name == "message_end":
                    break
            await frames.aclose()
        await self.streams.close()
        return found


@pytest.fixture
def answer(lonely: Client, lonely_server: Server, tmp_path: Path) -> Iterator[Answer]:
    database, blobs = lonely_server.database, LocalBlobs(tmp_path)
    run_id, turn = UUID(lonely.start(lonely.agent(ECHO))["run_id"]), new_id()
    with database.transaction() as tx:
        audio = uploads.register(
            tx, lonely.tenant_id, uploads.store_content(blobs, "speech-2.mp3", "audio/mpeg", b"\x01\x02")
        )
        text = uploads.register(
            tx, lonely.tenant_id, uploads.store_content(blobs, "secret.txt", "text/plain", b"no audio")
        )
        said = "One. Two." + "".join(f"{AUDIO_START}{name.hex}{AUDIO_END}" for name in (new_id(), text.id, audio.id))
        of = {"run_id": run_id, "turn": turn}
        told = [Event("node_started", {}, turn, NODE), Event("message_end", {}, turn, NODE)]
        events.append(tx, run_id, 3, told)
        tx.execute(message_streams.OPEN, node_id=NODE, number=3, **of)
        tx.execute(message_streams.PUT_TEXT, node_id=NODE, said=said, **of)
        tx.execute(message_streams.CLOSE, number=4, **of)
    own = Database(lonely_server.database_url, pool_size=2)
    yield Answer(
        lonely,
        run_id,
        said,
        EventStreams(EventReader(own, VersionCache()), EventSubscriptions(lonely_server.redis_url), blobs=blobs),
    )
    own.close()


def data_of(wired: list[Envelope]) -> list[object]:
    return [one.body["data"] for one in wired if one.name == "message"]


def test_a_listener_gets_the_bytes_of_every_sentence_that_is_to_be_had(answer: Answer) -> None:
    expected = [{"content": "One. Two."}, {"content": "", "audio_binary": "0102"}]

    assert data_of(answer.read()) == expected
    shown = answer.followed(with_audio=True)
    assert data_of(shown) == expected
    assert shown[-1].name == "message_end"
    assert [str(one.position) for one in shown if one.name == "message"] == ["3.9", f"3.{len(answer.text)}"]


def test_who_wants_no_audio_gets_none(answer: Answer) -> None:
    assert data_of(answer.followed(with_audio=False)) == [{"content": "One. Two."}]


def test_texts_of_a_run_never_show_its_audio(answer: Answer) -> None:
    assert answer.client.run(answer.run_id.hex)["answer"] == "One. Two."
    session = answer.client.run(answer.run_id.hex)["session_id"]
    agent = answer.client.run(answer.run_id.hex)["agent_id"]
    shown = answer.client.http.get(f"/api/v1/agents/{agent}/sessions/{session}").json()["data"]["message"]
    assert shown[-1]["content"] == "One. Two."


def test_a_message_that_plays_its_answer_is_answered_where_nobody_can_speak(client: Client) -> None:
    playing = {**ECHO, "components": {**ECHO["components"]}}
    playing["components"][NODE] = {
        **ECHO["components"][NODE],
        "obj": {"component_name": "Message", "params": {"content": ["You said: {sys.query}"], "auto_play": True}},
    }

    shown = client.stream(client.agent(playing))

    assert text_of(shown) == "You said: hi"
    assert names_of(shown)[-1] == "[DONE]"
