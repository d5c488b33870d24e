"""Records a release's database, with runs in the middle of everything: `python -m tests.upgrade.record FOLDER`.

To be done once for each release, in its own checkout, into `tests/upgrade/version-<number>`; the folder is committed
and never changed. From then on every migration and every change of the engine has to carry these runs to their ends
(test_recorded_databases.py). A release without this script is recorded with `tests/upgrade` copied into it.

What is recorded is what a machine leaves that loses its power: some attempts are at work, of others nobody knows
anything yet. What the release itself makes of these rows afterwards is written down beside them.
"""

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlalchemy import func, select

from canvas.state.run_state import RULES_VERSION
from embedded import EmbeddedServers
from providers.models.chat.scripted import Script
from scheduler.coordinator.run_start import RunRequest
from store.db.database import Database
from store.files.blobs import LocalBlobs
from store.maintenance.migrate import upgrade
from store.primitives.encryption import EncryptionKey
from store.runs import attempt_records
from store.tables.runs import journal, turns
from store.tenants import model_accounts, tenants, uploads
from tests.integration.engine import Acts, Bench, Run, at_work, bench_on, until, values_of
from tests.integration.worker.provider import FIRST_WORD, hanging_model
from tests.services import emptied_redis, fresh_database, running, shared_folder
from tests.upgrade.recording import Recording
from tests.upgrade.scenes import CONVERSATION, IDEMPOTENCY, RULES, SCENES, go_on
from worker.context import text_stream

SLOW = {"user": "slow", "delay_ms": 10**9}  # a model that is still at it when the database is recorded
SECRET = "the sealing key of recorded databases"
API_KEY = "sk-recorded"
FILE = b"A file that somebody sent."
FOUND = {"chunk_id": "c1", "content": "Up 4% in May.", "document_name": "Prices"}
SO_FAR = {
    "half said": f"So: {FIRST_WORD}",
    "item after item": ["done", "running"],
    "items that overlap": ["done"] * 4 + ["running"] + ["done"] * 3,
    "items side by side": ["done", "running", "done", "done"],
    "an agent that has asked its helper": 2,
    "said before its turn": "saying",
    "at work": ["running"],
    "queued behind it": "queued",
}
"""Where the scenes at work are recorded: status of the model's activations, notes in the journal, and the like."""


@dataclass
class Stage:
    """Where the scenes are played. What `still` starts moves only by hand: nobody gets its hints."""

    bench: Bench
    still: Bench
    runs: dict[str, Run] = field(default_factory=dict[str, Run])

    def start(self, name: str, **options: Any) -> Run:
        """Start a scene whose hints are carried out."""
        self.runs[name] = SCENES[name].start(self.bench, **options)
        return self.runs[name]

    def start_still(self, name: str, until_ready: str = "begin", **options: Any) -> Run:
        """Start a scene and carry it on until a node is ready, which is left alone."""
        run = SCENES[name].start(self.still, tenant_id=self.bench.tenant_id, **options)
        self.still.play(until=lambda: run.statuses.get(until_ready) == "ready")
        self.still.outbox.lose()
        self.runs[name] = run
        return run


def record(folder: Path) -> None:
    """Make a recording in this folder."""
    recording = Recording(folder)
    with shared_folder() as home, running(home) as servers:
        with migrated(servers) as url, bench_at(url, emptied_redis(servers.redis_url)) as bench:
            stage = Stage(bench, Bench(bench.database, bench.redis_url, Acts()))
            begin_what_rests(stage)
            facts = leave_beside(bench, stage.runs)
            begin_by_hand(stage)
            with everything_at_work(stage):
                recording.save(
                    url, engine=RULES_VERSION, facts=facts, runs={name: str(run.id) for name, run in stage.runs.items()}
                )
            stage.still.close()
        with fresh_database(servers.database_url) as url:
            recording.make_tables(url)
            recording.write_rows(url)
            with bench_at(url, emptied_redis(servers.redis_url)) as bench:
                recording.expect(go_on(bench, recording.release["runs"]))


@contextmanager
def migrated(servers: EmbeddedServers) -> Generator[str]:
    with fresh_database(servers.database_url) as url:
        upgrade(url)
        yield url


@contextmanager
def bench_at(url: str, redis_url: str) -> Generator[Bench]:
    database = Database(url, pool_size=24)
    with pytest.MonkeyPatch.context() as patched, bench_on(database, redis_url, patched) as bench:
        yield bench
    database.close()


# -- where the runs are ----------------------------------------------------------------------------------------------
def begin_what_rests(stage: Stage) -> None:
    """Runs that are over, and runs that wait for a person."""
    bench = stage.bench
    bench.script = Script(RULES)
    for name in ("failed", "cancelled", "asking", "asking in an iteration", "asking in a loop", CONVERSATION):
        stage.start(name)
    stage.start("finished", idempotency=IDEMPOTENCY)
    bench.play()
    bench.lifecycle.cancel_run(bench.tenant_id, stage.runs["cancelled"].id)
    for name in ("asking in an iteration", "asking in a loop"):
        bench.lifecycle.resume_run(bench.tenant_id, stage.runs[name].id, RunRequest(query=SCENES[name].answers[0]))
    bench.play()
    statuses = {name: run.status for name, run in stage.runs.items()}
    assert statuses == {
        "failed": "failed", "cancelled": "cancelled", "finished": "succeeded", CONVERSATION: "succeeded",
        "asking": "waiting", "asking in an iteration": "waiting", "asking in a loop": "waiting",
    }, statuses  # fmt: skip


def begin_by_hand(stage: Stage) -> None:
    """Runs that nobody carries on: a message was lost, or a worker has died."""
    still = stage.still
    stage.start_still("never claimed")
    still.claim(stage.start_still("claimed by a worker that died", "model"), "model", lease=timedelta(0))
    claimed = still.claim(stage.start_still("reported and seen by nobody", "model"), "model")
    assert still.report(claimed, values=[values_of(claimed, {"content": "by hand"})])
    stopping = stage.start_still("stopping", "model")
    still.claim(stopping, "model")
    still.lifecycle.cancel_run(stage.bench.tenant_id, stopping.id)
    assert stopping.status == "stopping"


@contextmanager
def everything_at_work(stage: Stage) -> Generator[None]:
    """Runs whose attempts are at work until the block ends."""
    bench, still = stage.bench, stage.still
    bench.script = Script([SLOW, *helped_slowly(), *RULES])
    with hanging_model() as provider, pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_stream, "WRITE_INTERVAL", 0.0)
        still.accounts = [provider.account]
        workers = bench.a_worker(), still.a_worker()
        with at_work(bench, workers[0], threads=20), at_work(still, workers[1], threads=1):
            stage.runs["half said"] = SCENES["half said"].start(still, tenant_id=bench.tenant_id)
            until(lambda: text_of(bench, stage.runs["half said"]) == SO_FAR["half said"])
            for name in [it for it in SCENES if it not in (*stage.runs, "queued behind it")]:
                stage.start(name)
            options = {"conversation_id": stage.runs["at work"].conversation_id, "on_busy": "enqueue"}
            stage.start_still("queued behind it", "", **options)
            until(lambda: where(stage) == SO_FAR)
            yield
            for worker in workers:
                worker.close()


def helped_slowly() -> list[Mapping[str, Any]]:
    """An agent asks its helper, is helped, and then thinks for ever."""
    call = {"name": "Helper_0", "arguments": {"user_prompt": "help"}}
    return [
        {"last": "I was asked to help", "delay_ms": 10**9},
        {"last_role": "user", "user": "lead on", "system": "You lead", "tool_calls": [call]},
    ]


def where(stage: Stage) -> dict[str, Any]:
    """How far the scenes at work have come."""
    bench, runs = stage.bench, stage.runs
    return {
        "half said": text_of(bench, runs["half said"]),
        "item after item": models(runs["item after item"]),
        "items that overlap": models(runs["items that overlap"]),
        "items side by side": models(runs["items side by side"]),
        "an agent that has asked its helper": noted(bench, runs["an agent that has asked its helper"]),
        "said before its turn": runs["said before its turn"].statuses.get("sayd"),
        "at work": models(runs["at work"]),
        "queued behind it": runs["queued behind it"].status,
    }


def models(run: Run) -> list[str]:
    return [row.status for row in run.activations if row.node_id == "model"]


def text_of(bench: Bench, run: Run) -> str:
    with bench.database.transaction() as tx:
        return tx.scalar(select(turns.c.text).where(turns.c.run_id == run.id)) or ""


def noted(bench: Bench, run: Run) -> int:
    with bench.database.transaction() as tx:
        return tx.scalar(select(func.count()).select_from(journal).where(journal.c.run_id == run.id))


# -- rows beside them ------------------------------------------------------------------------------------------------
def leave_beside(bench: Bench, runs: Mapping[str, Run]) -> dict[str, Any]:
    """A token, an account, a file and references; what the restored database shall know of them."""
    tenant, finished = bench.tenant_id, runs["finished"]
    message_id = finished.row["message_id"]
    with TemporaryDirectory() as folder, bench.database.transaction() as tx:
        _, token = tenants.create_token(tx, tenant, "recorded")
        account = model_accounts.AccountRow("OpenAI", api_key=API_KEY, models={"m": {"kinds": ["chat"]}})
        model_accounts.put_account(tx, tenant, account, EncryptionKey.from_secret(SECRET))
        file = uploads.register(
            tx, tenant, uploads.store_content(LocalBlobs(Path(folder)), "note.txt", "text/plain", FILE)
        )
        attempt_records.add_citations(
            tx, finished.id, message_id, finished.activation("model").id, [FOUND], [{"doc_name": "Prices"}]
        )
        return {
            "tenant": str(tenant),
            "token": token,
            "sealing_key": SECRET,
            "api_key": API_KEY,
            "file": [str(file.id), file.name, file.size],
            "references": attempt_records.load_citations(tx, finished.id, message_id),
        }


if __name__ == "__main__":
    record(Path(sys.argv[1]))
