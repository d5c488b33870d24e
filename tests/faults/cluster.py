"""The product as it is deployed: processes that know each other through PostgreSQL and Redis only.

cluster.start("sweeper"); cluster.start("worker")
runs = cluster.begin(20)
cluster.kill(worker)
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import text

from scheduler.broker import make_app
from scheduler.bus import Bus
from scheduler.coordinator import Coordinator
from scheduler.dispatch import Dispatch
from scheduler.lifecycle import Lifecycle, Start
from scheduler.turn_start import Request
from scheduler.versions import Versions
from store import canvases, tenants, versions
from store.database import Database
from store.ids import new_id
from tests.builders import says
from tests.integration.engine import dsl_of

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = {
    "worker": ("celery", "-A", "worker.tasks", "worker", "-Q", "nodes", "-P", "threads", "-c", "16"),
    "scheduler": ("celery", "-A", "scheduler.tasks", "worker", "-Q", "runs", "-P", "threads", "-c", "4"),
    "sweeper": ("scheduler.sweep",),
}
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
SHORT_LEASES = {"EASEL_LEASE": "2s", "EASEL_RENEW_EVERY": "500ms"}

LINE = "begin -> model1 -> model2 -> say"
ASKS = {"llm_id": "m@OpenAI-API-Compatible"}

STATUSES = text("select status, count(*) from runs where tenant_id = :tenant_id group by status")
TWICE = text("""
    select e.run_id, e.activation_id, e.event from run_events e join runs r on r.id = e.run_id
    where r.tenant_id = :tenant_id and e.activation_id is not null and e.event in ('node_finished', 'message_end')
    group by 1, 2, 3 having count(*) > 1
""")
GAPS = text("""
    select r.id from runs r join run_events e on e.run_id = r.id where r.tenant_id = :tenant_id
    group by r.id, r.last_event having count(*) <> r.last_event or max(e.number) <> r.last_event
""")
ACTIVATIONS = text("""
    select r.request ->> 'query' as query, a.node_id, a.status, a.attempt, a.strikes
    from activations a join runs r on r.id = a.run_id where r.tenant_id = :tenant_id
""")
SAID = text("""
    select r.request ->> 'query' as query, string_agg(t.text, '' order by t.opened_at) as said
    from runs r join turns t on t.run_id = r.id where r.tenant_id = :tenant_id group by 1
""")
ANSWERS = text("""
    select m.run_id, count(*) from conversation_messages m join runs r on r.id = m.run_id
    where r.tenant_id = :tenant_id and m.role = 'assistant' group by 1
""")


@dataclass
class Model:
    """A model provider that remembers who asked: each answer takes a moment, so that something is always in flight."""

    port: int = 0
    takes: float = 0.25  # seconds
    asked: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def requests(self) -> int:
        """How many there were."""
        with self._lock:
            return sum(self.asked.values())

    def note(self, prompt: str) -> None:
        with self._lock:
            self.asked[prompt] += 1


@dataclass
class Cluster:
    """Processes, and a hand on the rows that they share."""

    database: Database
    redis_url: str
    model: Model
    home: Path
    environment: Mapping[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.app = make_app(self.redis_url)
        self.bus = Bus(self.redis_url)
        coordinator = Coordinator(self.database, Dispatch(self.app, self.bus), Versions())
        self.lifecycle = Lifecycle(coordinator)
        self.renew()

    def renew(self) -> None:
        """A tenant and a canvas that no run of an earlier test belongs to."""
        document = dsl_of(
            LINE,
            model1={**ASKS, "prompts": [{"role": "user", "content": "first {sys.query}"}]},
            model2={**ASKS, "prompts": [{"role": "user", "content": "then {sys.query} {model1@content}"}]},
            say=says("Heard: {model2@content}."),
        )
        with self.database.transaction() as tx:
            self.tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
            self.canvas_id = canvases.create(tx, self.tenant_id, "a line", document)
            self.version_id = versions.snapshot(tx, self.tenant_id, self.canvas_id).id
        self.model.asked.clear()
        self.model.takes = Model.takes

    # -- processes ---------------------------------------------------------------------------------------------------
    def start(self, program: str, *more: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a program, maybe with more arguments; it writes into a file beside the others'."""
        named = PROGRAMS[program]
        arguments = [sys.executable, "-m", *named, *(QUIET if named[0] == "celery" else ()), *more]
        with (self.home / f"{program}-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                arguments, cwd=ROOT, env={**self.environment, **environment}, stdout=log, stderr=subprocess.STDOUT
            )
        self.processes.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """As an out-of-memory killer does it."""
        process.send_signal(signal.SIGKILL)
        process.wait()

    def tell_to_go(self, process: subprocess.Popen[bytes]) -> None:
        """As a deployment does it."""
        process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()
        self.bus.close()
        self.app.close()
        self.database.close()

    # -- runs --------------------------------------------------------------------------------------------------------
    def begin(self, count: int) -> list[UUID]:
        """Start so many runs; the query of each is its number."""
        return [
            self.lifecycle.start_run(
                Start(self.tenant_id, self.canvas_id, self.version_id, Request(query=str(number)))
            ).run_id
            for number in range(count)
        ]

    def rows(self, statement: Any) -> Sequence[Any]:
        with self.database.transaction() as tx:
            return tx.rows(statement, tenant_id=self.tenant_id)

    @property
    def statuses(self) -> dict[str, int]:
        """How many runs are where."""
        return {row[0]: row[1] for row in self.rows(STATUSES)}

    def wait_until_all_have_succeeded(self, count: int, *, seconds: float) -> float:
        """Wait for all runs; how long it took."""
        began = time.monotonic()
        self.wait_for(lambda: self.statuses == {"succeeded": count}, seconds)
        return time.monotonic() - began

    def wait_for(self, fact: Callable[[], Any], seconds: float) -> None:
        """Wait for a fact, with a deadline; what the processes said is told if it does not come."""
        deadline = time.monotonic() + seconds
        while not fact():
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {self.statuses}\n{self.logs()}"
            time.sleep(0.02)

    def assert_everything_happened_once(self, count: int) -> None:
        """Whatever was repeated: every result was committed once, and every answer was heard once and whole."""
        assert self.rows(TWICE) == []
        assert self.rows(GAPS) == []
        activations = self.rows(ACTIVATIONS)
        assert len(activations) == 4 * count
        assert {row.status for row in activations} == {"done"}
        heard = {row.query: row.said for row in self.rows(SAID)}
        assert heard == {str(n): f"Heard: answer to then {n} answer to first {n}." for n in range(count)}
        assert Counter(row[1] for row in self.rows(ANSWERS)) == {1: count}
        for row in activations:
            prompt = {"model1": f"first {row.query}", "model2": f"then {row.query} answer to first {row.query}"}
            if row.node_id in prompt:
                assert 1 <= self.model.asked[prompt[row.node_id]] <= row.attempt

    def logs(self) -> str:
        return "\n".join(f"== {log.name}\n{log.read_text()[-2000:]}" for log in sorted(self.home.glob("*.log")))


@contextmanager
def cluster_on(database_url: str, redis_url: str, home: Path, **environment: str) -> Generator[Cluster]:
    """A cluster without any process yet; all are gone when the block ends."""
    with model_server() as model:
        accounts = home / "models.toml"
        accounts.write_text(
            '[[account]]\nfactory = "OpenAI-API-Compatible"\napi_key = "key"\n'
            f'base_url = "http://127.0.0.1:{model.port}/v1"\n[account.models.m]\nkinds = ["chat"]\n'
        )
        given = {name: value for name, value in os.environ.items() if not name.startswith(("EASEL_", "CELERY_"))}
        cluster = Cluster(
            Database(database_url, pool_size=2),
            redis_url,
            model,
            home,
            {
                **given,
                "DATABASE_URL": database_url,
                "REDIS_URL": redis_url,
                "EASEL_HOME": str(home),
                "EASEL_MODELS_FILE": str(accounts),
                **environment,
            },
        )
        try:
            yield cluster
        finally:
            cluster.close()


@contextmanager
def model_server() -> Generator[Model]:
    """An OpenAI-like server that answers `answer to <prompt>`."""
    model = Model()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            prompt = body["messages"][-1]["content"]
            model.note(prompt)
            time.sleep(model.takes)
            try:
                self._answer(f"answer to {prompt}", is_streamed=bool(body.get("stream")))
            except OSError:  # the asker was killed
                self.close_connection = True

        def _answer(self, text: str, *, is_streamed: bool) -> None:
            if is_streamed:
                half = len(text) // 2
                chunks = [
                    {"choices": [{"index": 0, "delta": {"content": part}}]} for part in (text[:half], text[half:])
                ]
                payload = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
            else:
                message = {"role": "assistant", "content": text}
                payload = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if is_streamed else "application/json")
            self.send_header("content-length", str(len(payload.encode())))
            self.end_headers()
            self.wfile.write(payload.encode())

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    model.port = server.server_port
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
