"""The product as it is deployed: processes that communicate only through PostgreSQL and Redis.

cluster.start("sweeper"); cluster.start("worker", FAULT_STOP="after the claim, 3, SIGKILL")
runs = cluster.start_runs(20)
cluster.kill(worker)
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.run_start import RunRequest
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle.accept import Start
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_bus import Bus
from store.agents import canvases, versions
from store.db.database import Database
from store.primitives.ids import new_id
from store.tenants import tenants
from tests.builders import content
from tests.faults.canvases import llm_params, post_params
from tests.faults.outside import ExternalServices, external_services
from tests.faults.table import Tally
from tests.integration.engine import dsl_of

ROOT = Path(__file__).parent.parent.parent
SHORT_LEASES = {"EASEL_LEASE": "5s", "EASEL_RENEW_EVERY": "1s"}
LONG_LEASES = {"EASEL_LEASE": "60s", "EASEL_RENEW_EVERY": "1s"}  # none expires because a machine is busy
FEW_CONNECTIONS = {"EASEL_WORKER_POOL": "4", "EASEL_API_POOL": "3", "EASEL_SCHEDULER_THREADS": "3"}
THREADS = {"worker": ("-c", "16"), "scheduler": ("-c", "3")}
NODES = ("begin", "model1", "model2", "post", "say")

STATUSES = text("select status, count(*) from runs where tenant_id = :tenant_id group by status")
DUPLICATE_EVENTS = text("""
    select e.run_id, e.activation_id, e.event from run_events e join runs r on r.id = e.run_id
    where r.tenant_id = :tenant_id and e.activation_id is not null and e.event in ('node_finished', 'message_end')
    group by 1, 2, 3 having count(*) > 1
""")
EVENT_GAPS = text("""
    select r.id from runs r join run_events e on e.run_id = r.id where r.tenant_id = :tenant_id
    group by r.id, r.last_event having count(*) <> r.last_event or max(e.number) <> r.last_event
""")
ACTIVATIONS = text("""
    select r.id as run_id, r.request ->> 'query' as query, a.node_id, a.status, a.attempt, a.crash_count, a.worker,
        a.created_at, a.started_at, a.finished_at
    from activations a join runs r on r.id = a.run_id where r.tenant_id = :tenant_id
""")
STREAM_TEXTS = text("""
    select r.request ->> 'query' as query, string_agg(t.text, '' order by t.opened_at) as said
    from runs r join turns t on t.run_id = r.id where r.tenant_id = :tenant_id group by 1
""")
ANSWERS = text("""
    select m.run_id, count(*) from conversation_messages m join runs r on r.id = m.run_id
    where r.tenant_id = :tenant_id and m.role = 'assistant' group by 1
""")
OPEN_TRANSACTIONS = text("""
    select application_name, state, wait_event_type, now() - xact_start as since, left(query, 80) as query
    from pg_stat_activity where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
""")
LEFTOVER_SCOPES = text("""
    select s.run_id from scopes s join runs r on r.id = s.run_id where r.tenant_id = :tenant_id
        and r.status in ('succeeded', 'failed', 'cancelled')
""")


@dataclass
class Cluster:
    """The processes of a deployment, and access to the rows that they share."""

    database: Database
    redis_url: str
    external: ExternalServices
    home: Path
    environment: Mapping[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    mark: str = ""  # in every query of this test, and so in its prompts and effects
    _shared: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    def __post_init__(self) -> None:
        self.app = make_app(self.redis_url)
        self.bus = Bus(self.redis_url)
        coordinator = Coordinator(self.database, Dispatch(self.app, self.bus), VersionCache())
        self.lifecycle = Lifecycle(coordinator)
        self.start_new_test()

    def start_new_test(self) -> None:
        """Create a tenant and a canvas for a new test: two models in a row, in parallel with a side effect."""
        document = dsl_of(
            "begin -> model1, post; model1 -> model2; model2, post -> say",
            model1=llm_params("first {sys.query}"),
            model2=llm_params("then {sys.query} {model1@content}"),
            post=post_params(self.external.url),
            say=content("Heard: {model2@content}."),
        )
        with self.database.transaction() as tx:
            self.tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
            self.canvas_id = canvases.create(tx, self.tenant_id, "two ways", document)
            self.version_id = versions.lock_draft_version(tx, self.tenant_id, self.canvas_id).id
            self.token = tenants.create_token(tx, self.tenant_id, "tests")[1]
        self.mark = f"m{self.tenant_id.hex[-8:]}"
        self.external.clear()
        self.external.answer_delay = ExternalServices.answer_delay

    # -- processes ---------------------------------------------------------------------------------------------------
    def start(self, program: str, *more: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a program; its output goes to a file in the cluster's home.

        FAULT_STOP=str(Stop(...)) stops it at a point; tests/faults/process.py lists the other FAULT_ variables.
        """
        arguments = [sys.executable, "-m", "tests.faults.process", program, *THREADS.get(program, ()), *more]
        environment = {**self.environment, **environment}
        with (self.home / f"{len(self.processes):02}-{program}.log").open("wb") as log:
            process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(process)
        return process

    def ensure_running(self, program: str, **environment: str) -> None:
        """Start a program unless one runs; later tests share it."""
        known = self._shared.get(program)
        if known is None or known.poll() is not None:
            self._shared[program] = self.start(program, **environment)

    def ensure_stopped(self, program: str) -> None:
        """Kill the shared program of this kind, if there is one."""
        known = self._shared.pop(program, None)
        if known is not None:
            self.kill(known)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process with SIGKILL, as an out-of-memory killer does."""
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_temporary_processes(self) -> None:
        """Kill the processes that only an earlier test used."""
        for process in self.processes:
            if process not in self._shared.values() and process.poll() is None:
                self.kill(process)

    def terminate(self, process: subprocess.Popen[bytes]) -> None:
        """Send SIGTERM to a process, as a deployment does."""
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
    def start_runs(self, count: int) -> list[UUID]:
        """Start so many runs; the query of each contains its number."""
        return [
            self.lifecycle.start_run(
                Start(self.tenant_id, self.canvas_id, self.version_id, RunRequest(query=self.question(number)))
            ).run_id
            for number in range(count)
        ]

    def question(self, number: int) -> str:
        """The query of run `number` of this test."""
        return f"{self.mark}n{number}"

    def rows(self, statement: Any) -> Sequence[Any]:
        with self.database.transaction() as tx:
            return tx.rows(statement, tenant_id=self.tenant_id)

    @property
    def statuses(self) -> dict[str, int]:
        """The number of runs by status."""
        return {row[0]: row[1] for row in self.rows(STATUSES)}

    def wait_until_all_succeeded(self, count: int, *, seconds: float) -> float:
        """Wait until all runs have succeeded; return the seconds that it took."""
        began = time.monotonic()
        self.wait_for(lambda: self.statuses == {"succeeded": count}, seconds)
        return time.monotonic() - began

    def wait_for(self, fact: Callable[[], Any], seconds: float) -> None:
        """Wait for a fact, with a deadline; the error contains the logs of the processes."""
        deadline = time.monotonic() + seconds
        while not fact():
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {self.describe_state()}\n{self.logs()}"
            time.sleep(0.02)

    def describe_state(self) -> str:
        """Describe the state of the runs, if the database answers."""
        try:
            return f"{self.statuses}\n{self.stuck()}"
        except SQLAlchemyError as error:
            return f"the database is away: {error}"

    def wait_until_stopped(self, process: subprocess.Popen[bytes], seconds: float) -> float:
        """Wait until a process has killed or stopped itself; return the time of day."""
        self.wait_for(lambda: process.poll() is not None or is_stopped(process.pid), seconds)
        return time.time()

    # -- results -----------------------------------------------------------------------------------------------------
    def assert_everything_happened_once(self, count: int, *, lost_claims: int = 0) -> None:
        """Assert that every result was committed once, and every answer was streamed once and completely.

        `lost_claims`: how often the database has ended without writing claims to disk. The attempt of such a claim may
        have asked its model, and is not counted.
        """
        tally, wrong = self.tally(count, lost_claims=lost_claims)
        assert not wrong, "\n".join(wrong)
        assert tally.is_ok

    def tally(self, count: int, since: float | None = None, *, lost_claims: int = 0) -> tuple[Tally, list[str]]:
        """Return the tally of so many runs, and a line per problem; stalls count `since` a time of day."""
        wrong: list[str] = []
        texts = {row.query: row.said for row in self.rows(STREAM_TEXTS)}
        expected = {q: f"Heard: answer to then {q} answer to first {q}." for q in map(self.question, range(count))}
        twice, gaps, remains = self.rows(DUPLICATE_EVENTS), self.rows(EVENT_GAPS), self.rows(LEFTOVER_SCOPES)
        activations = self.rows(ACTIVATIONS)
        answers = Counter(row[1] for row in self.rows(ANSWERS))
        keys = self.external.effects_by_key(self.mark)
        effects = Counter(effects[0].body for effects in keys.values())
        statuses = self.statuses
        wrong += [f"not succeeded: {statuses}"] if statuses != {"succeeded": count} else []
        wrong += [f"stored twice: {row}" for row in twice] + [f"events with gaps: {row}" for row in gaps]
        wrong += [f"a scope remains of {row}" for row in remains]
        wrong += [f"run {n}: streamed {texts.get(n)!r}" for n in expected if texts.get(n) != expected[n]]
        wrong += [f"answers of conversations: {answers}"] if answers != {1: count} else []
        wrong += [f"{row.node_id} of {row.query} is {row.status}" for row in activations if row.status != "done"]
        wrong += [f"{len(activations)} activations"] if len(activations) != len(NODES) * count else []
        wrong += [f"under {key}: two bodies" for key in self.external.keys_with_two_bodies()]
        wrong += [f"{body!r} under {times} keys" for body, times in effects.items() if times > 1]
        wrong += [f"{len(effects)} effects of {count}"] if len(effects) != count else []
        too_often = self._prompts_sent_too_often(activations, lost_claims)
        wrong += [f"sent more often than attempted: {prompt}" for prompt in too_often]
        tally = Tally(
            started=count,
            ended=sum(statuses.get(each, 0) for each in ("succeeded", "failed", "cancelled")),
            lost=count - statuses.get("succeeded", 0) + sum(texts.get(n) != expected[n] for n in expected),
            committed_twice=len(twice) + max(0, len(activations) - len(NODES) * count),
            effects=count,
            effects_doubled=sum(effects.values()) - len(effects) + len(self.external.keys_with_two_bodies()),
            effects_repeated=sum(map(len, keys.values())) - len(keys),
            requests_doubled=max(0, sum(statuses.values()) - count),
            stall=_stall(activations, since) if since is not None else 0.0,
        )
        return tally, wrong

    def _prompts_sent_too_often(self, activations: Sequence[Any], lost_claims: int) -> list[str]:
        """Return the prompts that were sent more often than there were attempts and lost claims, or never."""
        found: list[str] = []
        for row in activations:
            prompt = {"model1": f"first {row.query}", "model2": f"then {row.query} answer to first {row.query}"}
            most = row.attempt + lost_claims
            if row.node_id in prompt and not 1 <= self.external.prompts[prompt[row.node_id]] <= most:
                found.append(prompt[row.node_id])
        return found

    def stuck(self) -> str:
        """Describe unfinished activations and open transactions, for the message of a failed test."""
        rows = [row for row in self.rows(ACTIVATIONS) if row.status not in ("done", "closed")]
        with self.database.transaction() as tx:
            rows += tx.rows(OPEN_TRANSACTIONS)
        return "\n".join(map(str, rows))

    def logs(self) -> str:
        return "\n".join(f"== {log.name}\n{log.read_text()[-2000:]}" for log in sorted(self.home.glob("*.log")))


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def _stall(activations: Sequence[Any], since: float) -> float:
    """Return the longest time without progress of a run after a moment, in seconds."""
    moves: dict[UUID, list[float]] = {}
    for row in activations:
        times = (row.created_at, row.started_at, row.finished_at)
        moves.setdefault(row.run_id, []).extend(each.timestamp() for each in times if each is not None)
    longest = 0.0
    for times in moves.values():
        later = [since, *sorted(each for each in times if each > since)]
        longest = max([longest, *(after - before for before, after in pairwise(later))])
    return longest


@contextmanager
def cluster_on(database_url: str, redis_url: str, home: Path, **environment: str) -> Generator[Cluster]:
    """A cluster without processes; those that are started end with the block."""
    with external_services() as external:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EASEL_", "CELERY_"))}
        cluster = Cluster(
            Database(database_url, pool_size=2),
            redis_url,
            external,
            home,
            {
                **inherited,
                "DATABASE_URL": database_url,
                "REDIS_URL": redis_url,
                "EASEL_HOME": str(home),
                "EASEL_MODELS_FILE": str(external.write_models_file(home)),
                "EASEL_SSRF_ALLOW": "127.0.0.1",
                **FEW_CONNECTIONS,
                **environment,
            },
        )
        try:
            yield cluster
        finally:
            cluster.close()
