"""Records a release's database with runs in every state: `python -m tests.upgrade.record FOLDER`.

To be done once for each release, in its own checkout, into `tests/upgrade/version-<number>`; the folder is committed
and never changed. From then on every migration and every change of the engine has to finish these runs
(test_recorded_databases.py). A release without this script is recorded with `tests/upgrade` copied into it.

The recorded rows are those of a machine that loses its power: some attempts are running, and some messages and reports
were not processed yet. How these runs end under the release itself is recorded beside them.
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
from tests.integration.engine import Bench, NodeFunctions, Run, at_work, bench_on, until, values_of
from tests.integration.worker.provider import FIRST_WORD, hanging_model
from tests.services import emptied_redis, fresh_database, running, shared_folder
from tests.upgrade.recording import Recording
from tests.upgrade.scenes import CONVERSATION, IDEMPOTENCY, RULES, SCENES, finish_runs
from worker.context import text_stream

SLOW = {"user": "slow", "delay_ms": 10**9}  # a model that has not answered yet when the database is recorded
SECRET = "the sealing key of recorded databases"
API_KEY = "sk-recorded"
FILE = b"A file that somebody sent."
FOUND = {"chunk_id": "c1", "content": "Up 4% in May.", "document_name": "Prices"}
PROGRESS = {
    "half said": f"So: {FIRST_WORD}",
    "item after item": ["done", "running"],
    "items that overlap": ["done"] * 4 + ["running"] + ["done"] * 3,
    "items side by side": ["done", "running", "done", "done"],
    "an agent that has asked its helper": 2,
    "said before its turn": "saying",
    "at work": ["running"],
    "queued behind it": "queued",
}
"""The progress at which running scenes are recorded: text, statuses of the model's activations, or journal entries."""


@dataclass
class Stage:
    """The benches on which scenes are started. Task messages of `manual` are not delivered by themselves."""

    bench: Bench
    manual: Bench
    runs: dict[str, Run] = field(default_factory=dict[str, Run])

    def start(self, name: str, **options: Any) -> Run:
        """Start a scene whose task messages are delivered."""
        self.runs[name] = SCENES[name].start(self.bench, **options)
        return self.runs[name]

    def start_manually(self, name: str, until_ready: str = "begin", **options: Any) -> Run:
        """Start a scene and run it until a node is ready; drop the task messages."""
        run = SCENES[name].start(self.manual, tenant_id=self.bench.tenant_id, **options)
        self.manual.play(until=lambda: run.statuses.get(until_ready) == "ready")
        self.manual.outbox.lose()
        self.runs[name] = run
        return run


def record(folder: Path) -> None:
    """Make a recording in this folder."""
    recording = Recording(folder)
    with shared_folder() as home, running(home) as servers:
        with migrated(servers) as url, bench_at(url, emptied_redis(servers.redis_url)) as bench:
            stage = Stage(bench, Bench(bench.database, bench.redis_url, NodeFunctions()))
            start_resting_runs(stage)
            facts = store_other_rows(bench, stage.runs)
            start_manual_runs(stage)
            with running_attempts(stage):
                recording.save(
                    url, engine=RULES_VERSION, facts=facts, runs={name: str(run.id) for name, run in stage.runs.items()}
                )
            stage.manual.close()
        with fresh_database(servers.database_url) as url:
            recording.make_tables(url)
            recording.write_rows(url)
            with bench_at(url, emptied_redis(servers.redis_url)) as bench:
                recording.save_expected(finish_runs(bench, recording.release["runs"]))


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
def start_resting_runs(stage: Stage) -> None:
    """Start runs that are over or wait for a person."""
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


def start_manual_runs(stage: Stage) -> None:
    """Start runs that do not continue: a message was lost, or a worker has died."""
    manual = stage.manual
    stage.start_manually("never claimed")
    manual.claim(stage.start_manually("claimed by a worker that died", "model"), "model", lease=timedelta(0))
    claimed = manual.claim(stage.start_manually("reported and seen by nobody", "model"), "model")
    assert manual.report(claimed, values=[values_of(claimed, {"content": "by hand"})])
    stopping = stage.start_manually("stopping", "model")
    manual.claim(stopping, "model")
    manual.lifecycle.cancel_run(stage.bench.tenant_id, stopping.id)
    assert stopping.status == "stopping"


@contextmanager
def running_attempts(stage: Stage) -> Generator[None]:
    """Start runs whose attempts are running until the block ends."""
    bench, manual = stage.bench, stage.manual
    bench.script = Script([SLOW, *slow_helper_rules(), *RULES])
    with hanging_model() as provider, pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_stream, "WRITE_INTERVAL", 0.0)
        manual.accounts = [provider.account]
        workers = bench.a_worker(), manual.a_worker()
        with at_work(bench, workers[0], threads=20), at_work(manual, workers[1], threads=1):
            stage.runs["half said"] = SCENES["half said"].start(manual, tenant_id=bench.tenant_id)
            until(lambda: text_of(bench, stage.runs["half said"]) == PROGRESS["half said"])
            for name in [it for it in SCENES if it not in (*stage.runs, "queued behind it")]:
                stage.start(name)
            options = {"conversation_id": stage.runs["at work"].conversation_id, "on_busy": "enqueue"}
            stage.start_manually("queued behind it", "", **options)
            until(lambda: progress_of(stage) == PROGRESS)
            yield
            for worker in workers:
                worker.close()


def slow_helper_rules() -> list[Mapping[str, Any]]:
    """Return model rules: an agent asks its helper, gets the answer, and then waits for its model without end."""
    call = {"name": "Helper_0", "arguments": {"user_prompt": "help"}}
    return [
        {"last": "I was asked to help", "delay_ms": 10**9},
        {"last_role": "user", "user": "lead on", "system": "You lead", "tool_calls": [call]},
    ]


def progress_of(stage: Stage) -> dict[str, Any]:
    """Return the progress of the running scenes, in the form of `PROGRESS`."""
    bench, runs = stage.bench, stage.runs
    return {
        "half said": text_of(bench, runs["half said"]),
        "item after item": model_statuses(runs["item after item"]),
        "items that overlap": model_statuses(runs["items that overlap"]),
        "items side by side": model_statuses(runs["items side by side"]),
        "an agent that has asked its helper": count_journal_entries(bench, runs["an agent that has asked its helper"]),
        "said before its turn": runs["said before its turn"].statuses.get("sayd"),
        "at work": model_statuses(runs["at work"]),
        "queued behind it": runs["queued behind it"].status,
    }


def model_statuses(run: Run) -> list[str]:
    return [row.status for row in run.activations if row.node_id == "model"]


def text_of(bench: Bench, run: Run) -> str:
    with bench.database.transaction() as tx:
        return tx.scalar(select(turns.c.text).where(turns.c.run_id == run.id)) or ""


def count_journal_entries(bench: Bench, run: Run) -> int:
    with bench.database.transaction() as tx:
        return tx.scalar(select(func.count()).select_from(journal).where(journal.c.run_id == run.id))


# -- rows beside them ------------------------------------------------------------------------------------------------
def store_other_rows(bench: Bench, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Store a token, an account, a file and citations; return what the restored database must contain."""
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
