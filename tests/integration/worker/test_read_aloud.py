"""An answer that is read aloud: its audio goes by pointer through the turn, and is no part of any stored text."""

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
from tests.integration.worker.test_voice import sweep_away
from worker.worker import Worker

ALOUD = {"content": ["So: {model@content} Bye."], "auto_play": True}
ANSWER = "Forty-two. 😀 你好。"
IN_MARKERS = re.compile(f"{AUDIO_START}([0-9a-f]{{32}}){AUDIO_END}")
TEXT = f"So: {ANSWER} Bye."


class Memory:
    """A memory that forgets to answer the first time."""

    def __init__(self) -> None:
        self.asked = Event()
        self.keys: list[str] = []

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str) -> None:
        self.keys.append(key)
        if len(self.keys) == 1:
            self.asked.set()
            await asyncio.Event().wait()


class Voice:
    """Speaks a sentence as its letters."""

    async def synthesize(self, text: str) -> bytes:
        return text.encode()


def speaking(bench: Bench, folder: Path, **more: Any) -> Worker:
    worker = bench.a_worker(blobs=LocalBlobs(folder), renew_every=timedelta(milliseconds=40))
    worker.execution.services = lambda _: Services(FakeHttp(no_network), speech=Voice(), **more)
    return worker


def played(bench: Bench, worker: Worker) -> Run:
    bench.script = Script([{"reply": ANSWER}])
    run = bench.start("begin -> model -> say", say=ALOUD)
    bench.play(worker)
    return run


def test_audio_follows_the_text_of_its_turn_and_the_files_are_the_tenants(bench: Bench, tmp_path: Path):
    run = played(bench, speaking(bench, tmp_path))

    assert run.said.startswith(TEXT)
    ids = IN_MARKERS.findall(run.said)
    assert run.said == TEXT + "".join(f"{AUDIO_START}{name}{AUDIO_END}" for name in ids)
    with bench.database.transaction() as tx:
        found = [uploads.get(tx, bench.tenant_id, UUID(name)) for name in ids]
    assert [LocalBlobs(tmp_path).get(file.sha256).decode() for file in found] == ["So: Forty-two.", "你好。", "Bye."]
    assert {file.mime_type for file in found} == {"audio/mpeg"}
    assert [turn.epoch for turn in run.turns] == [0]
    assert "message_reset" not in run.told


def test_what_is_stored_of_the_answer_has_no_audio(bench: Bench, tmp_path: Path):
    run = played(bench, speaking(bench, tmp_path))

    assert run.status == "succeeded"
    assert run.outputs("say")["content"] == TEXT
    with bench.database.transaction() as tx:
        entries = conversations.load_history(tx, run.conversation_id, 2**31 - 1, 10)
    assert AUDIO_START not in str([entry["content"] for entry in entries])


def test_a_second_attempt_says_what_the_first_has_said_with_the_same_files(bench: Bench, tmp_path: Path):
    memory = Memory()
    worker = speaking(bench, tmp_path, memories=memory)
    bench.script = Script([{"reply": ANSWER}])

    run = bench.start("begin -> model -> say", say={**ALOUD, "memory_ids": ["m"]})
    with at_work(bench, worker):
        assert memory.asked.wait(10)
        with bench.database.transaction() as tx:
            first = files_of(tx, run)
        sweep_away(bench, run)
        until(lambda: run.status == "succeeded")

    assert run.activation("say").attempt == 2
    assert "".join(IN_MARKERS.findall(run.said)) == "".join(first)
    with bench.database.transaction() as tx:
        assert files_of(tx, run) == first
    assert len(memory.keys) == 2
    assert len(set(memory.keys)) == 1


def files_of(tx: Transaction, run: Run) -> list[str]:
    """The ids of a run's files, in the order in which they were made."""
    wanted = select(rows.c.id).where(rows.c.run_id == run.id).order_by(rows.c.name)
    return [row.id.hex for row in tx.rows(wanted)]
