"""Audio of an answer: streams that request it get the audio, all others the text only."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from api.events.event_reader import EventReader
from api.events.event_stream import Envelope, EventStreams, StreamEnd
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
END_RUN = text("update runs set status = 'succeeded' where id = :run_id")


@dataclass
class Answer:
    """A finished answer of two sentences. The audio of the second is stored, that of the first is missing."""

    client: Client
    run_id: UUID
    text: str
    streams: EventStreams
    database: Database

    def read(self) -> list[Envelope]:
        _, envelopes, _ = asyncio.run(self.streams.read(self.client.tenant_id, self.run_id, Position()))
        return envelopes

    def follow(self, *, with_audio: bool) -> list[Envelope]:
        return asyncio.run(self._follow(with_audio))

    async def _follow(self, with_audio: bool) -> list[Envelope]:
        await self.streams.start()
        envelopes: list[Envelope] = []
        async with self.streams.subscribe(self.run_id) as subscription:
            frames = self.streams.follow(
                self.client.tenant_id, subscription, Position(), StreamEnd.TURN, credential=None, with_audio=with_audio
            )
            async for envelope in frames:
                assert envelope is not None
                envelopes.append(envelope)
                if envelope.name == "message_end":
                    break
            await frames.aclose()
        await self.streams.close()
        return envelopes


@pytest.fixture
def answer(workerless_client: Client, workerless_server: Server, tmp_path: Path) -> Iterator[Answer]:
    database, blobs = workerless_server.database, LocalBlobs(tmp_path)
    run_id, stream_id = UUID(workerless_client.start(workerless_client.agent(ECHO))["run_id"]), new_id()
    with database.transaction() as tx:
        audio = uploads.register(
            tx, workerless_client.tenant_id, uploads.store_content(blobs, "speech-2.mp3", "audio/mpeg", b"\x01\x02")
        )
        text_file = uploads.register(
            tx, workerless_client.tenant_id, uploads.store_content(blobs, "secret.txt", "text/plain", b"no audio")
        )
        content = "One. Two." + "".join(
            f"{AUDIO_START}{name.hex}{AUDIO_END}" for name in (new_id(), text_file.id, audio.id)
        )
        stream = {"run_id": run_id, "stream_id": stream_id}
        new_events = [Event("node_started", {}, stream_id, NODE), Event("message_end", {}, stream_id, NODE)]
        events.append(tx, run_id, 3, new_events)
        tx.execute(message_streams.OPEN, node_id=NODE, number=3, **stream)
        tx.execute(message_streams.PUT_TEXT, node_id=NODE, content=content, **stream)
        tx.execute(message_streams.CLOSE, number=4, **stream)
    own_database = Database(workerless_server.database_url, pool_size=2)
    yield Answer(
        workerless_client,
        run_id,
        content,
        EventStreams(
            EventReader(own_database, VersionCache()), EventSubscriptions(workerless_server.redis_url), blobs=blobs
        ),
        own_database,
    )
    own_database.close()


def message_data(envelopes: list[Envelope]) -> list[object]:
    return [envelope.body["data"] for envelope in envelopes if envelope.name == "message"]


def test_stream_with_audio_has_the_bytes_of_every_stored_sentence(answer: Answer) -> None:
    expected = [{"content": "One. Two."}, {"content": "", "audio_binary": "0102"}]

    assert message_data(answer.read()) == expected
    envelopes = answer.follow(with_audio=True)
    assert message_data(envelopes) == expected
    assert envelopes[-1].name == "message_end"
    assert [str(envelope.position) for envelope in envelopes if envelope.name == "message"] == [
        "3.9",
        f"3.{len(answer.text)}",
    ]


def test_stream_without_audio_has_the_text_only(answer: Answer) -> None:
    assert message_data(answer.follow(with_audio=False)) == [{"content": "One. Two."}]


def test_texts_of_a_run_and_its_session_contain_no_audio(answer: Answer) -> None:
    assert answer.client.run(answer.run_id.hex)["answer"] == "One. Two."
    session = answer.client.run(answer.run_id.hex)["session_id"]
    agent = answer.client.run(answer.run_id.hex)["agent_id"]
    messages = answer.client.http.get(f"/api/v1/agents/{agent}/sessions/{session}").json()["data"]["message"]
    assert messages[-1]["content"] == "One. Two."


def test_shared_session_names_the_audio_of_an_answer(answer: Answer) -> None:
    run = answer.client.run(answer.run_id.hex)
    with answer.database.transaction() as tx:
        tx.execute(END_RUN, run_id=answer.run_id)  # the answers of a turn that goes on come as events
    shown = answer.client.http.get(f"/api/v1/agentbots/{run['agent_id']}/sessions/{run['session_id']}").json()["data"]

    (found,) = shown["turns"][-1]["answers"]
    assert found["content"] == "One. Two."
    markers = "".join(f"{AUDIO_START}{each}{AUDIO_END}" for each in found["audio"])
    assert markers == answer.text.removeprefix("One. Two.")


def test_auto_play_message_is_answered_without_a_speech_model(client: Client) -> None:
    dsl = {**ECHO, "components": {**ECHO["components"]}}
    dsl["components"][NODE] = {
        **ECHO["components"][NODE],
        "obj": {"component_name": "Message", "params": {"content": ["You said: {sys.query}"], "auto_play": True}},
    }

    events = client.stream(client.agent(dsl))

    assert text_of(events) == "You said: hi"
    assert names_of(events)[-1] == "[DONE]"
