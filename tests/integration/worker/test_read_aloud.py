"""An answer with speech: its message stream refers to audio files, and no stored text contains the audio."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

from sqlalchemy import select

from canvas.events.stream_sequencer import AUDIO_END, AUDIO_START
from providers.interfaces import Services
from providers.models.chat.scripted import Script
from store.agents import conversations
from store.db.transaction import Transaction
from store.files.blobs import LocalBlobs
from store.tables.tenants import files as rows
from store.tenants import uploads
from tests.fakes import FakeHttp, no_network
from tests.integration.engine import Bench, Run, at_work, until
from tests.integration.worker.test_message_streams import lose_worker
from worker.worker import Worker

WITH_SPEECH = {"content": ["So: {model@content} Bye."], "auto_play": True}
ANSWER = "Forty-two. 😀 你好。"
IN_MARKERS = re.compile(f"{AUDIO_START}([0-9a-f]{{32}}){AUDIO_END}")
TEXT = f"So: {ANSWER} Bye."


class Memory:
    """A memory whose first call hangs."""

    def __init__(self) -> None:
        self.is_called = Event()
        self.keys: list[str] = []

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str) -> None:
        self.keys.append(key)
        if len(self.keys) == 1:
            self.is_called.set()
            await asyncio.Event().wait()


class Voice:
    """Return the text itself as the audio."""

    async def synthesize(self, text: str) -> bytes:
        return text.encode()


def speech_worker(bench: Bench, folder: Path, **more: Any) -> Worker:
    worker = bench.a_worker(blobs=LocalBlobs(folder), renew_every=timedelta(milliseconds=40))
    worker.execution.services = lambda _: Services(FakeHttp(no_network), speech=Voice(), **more)
    return worker


def play_message(bench: Bench, worker: Worker) -> Run:
    bench.script = Script([{"reply": ANSWER}])
    run = bench.start("begin -> model -> say", say=WITH_SPEECH)
    bench.play(worker)
    return run


def test_audio_of_a_message_follows_its_text_and_its_files_belong_to_the_tenant(bench: Bench, tmp_path: Path):
    run = play_message(bench, speech_worker(bench, tmp_path))

    assert run.text.startswith(TEXT)
    ids = IN_MARKERS.findall(run.text)
    assert run.text == TEXT + "".join(f"{AUDIO_START}{name}{AUDIO_END}" for name in ids)
    with bench.database.transaction() as tx:
        files = [uploads.get(tx, bench.tenant_id, UUID(name)) for name in ids]
    assert [LocalBlobs(tmp_path).get(file.sha256).decode() for file in files] == ["So: Forty-two.", "你好。", "Bye."]
    assert {file.mime_type for file in files} == {"audio/mpeg"}
    assert [stream.epoch for stream in run.streams] == [0]
    assert "message_reset" not in run.event_names


def test_stored_answer_contains_no_audio_markers(bench: Bench, tmp_path: Path):
    run = play_message(bench, speech_worker(bench, tmp_path))

    assert run.status == "succeeded"
    assert run.outputs("say")["content"] == TEXT
    with bench.database.transaction() as tx:
        entries = conversations.load_history(tx, run.conversation_id, 2**31 - 1, 10)
    assert AUDIO_START not in str([entry["content"] for entry in entries])


def test_second_attempt_of_a_message_reuses_the_audio_files_of_the_first(bench: Bench, tmp_path: Path):
    memory = Memory()
    worker = speech_worker(bench, tmp_path, memories=memory)
    bench.script = Script([{"reply": ANSWER}])

    run = bench.start("begin -> model -> say", say={**WITH_SPEECH, "memory_ids": ["m"]})
    with at_work(bench, worker):
        assert memory.is_called.wait(30)
        with bench.database.transaction() as tx:
            first = files_of(tx, run)
        lose_worker(bench, run)
        until(lambda: run.status == "succeeded")

    assert run.activation("say").attempt == 2
    assert "".join(IN_MARKERS.findall(run.text)) == "".join(first)
    with bench.database.transaction() as tx:
        assert files_of(tx, run) == first
    assert len(memory.keys) == 2
    assert len(set(memory.keys)) == 1


def files_of(tx: Transaction, run: Run) -> list[str]:
    """Return the ids of the files of a run, in the order of their creation."""
    query = select(rows.c.id).where(rows.c.run_id == run.id).order_by(rows.c.name)
    return [row.id.hex for row in tx.rows(query)]
