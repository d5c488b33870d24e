"""The product as it is deployed: processes that know each other through PostgreSQL and Redis only.

cluster.start("sweeper"); cluster.start("worker", FAULT_STOP="after the claim, 3, SIGKILL")
runs = cluster.begin(20)
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
from tests.builders import says
from tests.faults.canvases import model, posts
from tests.faults.outside import Outside, outside
from tests.faults.table import Tally
from tests.integration.engine import dsl_of

ROOT = Path(__file__).parent.parent.parent
SHORT_LEASES = {"EASEL_LEASE": "2s", "EASEL_RENEW_EVERY": "500ms"}
LONG_LEASES = {"EASEL_LEASE": "60s", "EASEL_RENEW_EVERY": "1s"}  # none runs out because a machine is busy
FEW_CONNECTIONS = {"EASEL_WORKER_POOL": "4", "EASEL_API_POOL": "3", "EASEL_SCHEDULER_THREADS": "3"}
THREADS = {"worker": ("-c", "16"), "scheduler": ("-c", "3")}
NODES = ("begin", "model1", "model2", "post", "say")

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
    select r.id as run_id, r.request ->> 'query' as query, a.node_id, a.status, a.attempt, a.strikes, a.worker,
        a.created_at, a.started_at, a.finished_at
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
BUSY = text("""
    select application_name, state, wait_event_type, now() - xact_start as since, left(query, 80) as query
    from pg_stat_activity where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
""")
REMAINS = text("""
    select s.run_id from scopes s join runs r on r.id = s.run_id where r.tenant_id = :tenant_id
        and r.status in ('succeeded', 'failed', 'cancelled')
""")


@dataclass
class Cluster:
    """Processes, and a hand on the rows that they share."""

    database: Database
    redis_url: str
    outside: Outside
    home: Path
    environment: Mapping[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    mark: str = ""  # in every question of this test's runs, and so in whatever they ask and do
    _steady: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    def __post_init__(self) -> None:
        self.app = make_app(self.redis_url)
        self.bus = Bus(self.redis_url)
        coordinator = Coordinator(self.database, Dispatch(self.app, self.bus), VersionCache())
        self.lifecycle = Lifecycle(coordinator)
        self.renew()

    def renew(self) -> None:
        """A tenant and a canvas that no run of an earlier test belongs to: two models in a row, beside them an act."""
        document = dsl_of(
            "begin -> model1, post; model1 -> model2; model2, post -> say",
            model1=model("first {sys.query}"),
            model2=model("then {sys.query} {model1@content}"),
            post=posts(self.outside.url),
            say=says("Heard: {model2@content}."),
        )
        with self.database.transaction() as tx:
            self.tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
            self.canvas_id = canvases.create(tx, self.tenant_id, "two ways", document)
            self.version_id = versions.lock_draft_version(tx, self.tenant_id, self.canvas_id).id
            self.token = tenants.create_token(tx, self.tenant_id, "tests")[1]
        self.mark = f"m{self.tenant_id.hex[-8:]}"
        self.outside.forget()
        self.outside.takes = Outside.takes

    # -- processes ---------------------------------------------------------------------------------------------------
    def start(self, program: str, *more: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a program, maybe with more arguments; it writes into a file beside the others'.

        FAULT_STOP=str(Stop(...)) stops it somewhere; others of that name harm it elsewhere (tests/faults/process.py).
        """
        arguments = [sys.executable, "-m", "tests.faults.process", program, *THREADS.get(program, ()), *more]
        given = {**self.environment, **environment}
        with (self.home / f"{len(self.processes):02}-{program}.log").open("wb") as log:
            process = subprocess.Popen(arguments, cwd=ROOT, env=given, stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(process)
        return process

    def have(self, program: str, **environment: str) -> None:
        """See to it that a program of this kind is there, now and in the next tests."""
        known = self._steady.get(program)
        if known is None or known.poll() is not None:
            self._steady[program] = self.start(program, **environment)

    def have_no(self, program: str) -> None:
        """The opposite."""
        known = self._steady.pop(program, None)
        if known is not None:
            self.kill(known)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """As an out-of-memory killer does it."""
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_what_is_not_steady(self) -> None:
        """Whatever a test has left behind."""
        for process in self.processes:
            if process not in self._steady.values() and process.poll() is None:
                self.kill(process)

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
        """Start so many runs; the number of each is in its question."""
        return [
            self.lifecycle.start_run(
                Start(self.tenant_id, self.canvas_id, self.version_id, RunRequest(query=self.question(number)))
            ).run_id
            for number in range(count)
        ]

    def question(self, number: int) -> str:
        """What run `number` of this test is asked."""
        return f"{self.mark}n{number}"

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
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {self.told()}\n{self.logs()}"
            time.sleep(0.02)

    def told(self) -> str:
        """How the runs stand, if the database tells."""
        try:
            return f"{self.statuses}\n{self.stuck()}"
        except SQLAlchemyError as error:
            return f"the database is away: {error}"

    def wait_until_stopped(self, process: subprocess.Popen[bytes], seconds: float) -> float:
        """Wait until a process has killed or stopped itself; the time of day at which that was seen."""
        self.wait_for(lambda: process.poll() is not None or is_stopped(process.pid), seconds)
        return time.time()

    # -- what must be so in the end ----------------------------------------------------------------------------------
    def assert_everything_happened_once(self, count: int) -> None:
        """Whatever was repeated: every result was committed once, and every answer was heard once and whole."""
        tally, wrong = self.tally(count)
        assert not wrong, "\n".join(wrong)
        assert tally.is_kept

    def tally(self, count: int, since: float | None = None) -> tuple[Tally, list[str]]:
        """What came of so many runs, and a line for each thing that is wrong; stalls `since` a time of day."""
        wrong: list[str] = []
        heard = {row.query: row.said for row in self.rows(SAID)}
        expected = {q: f"Heard: answer to then {q} answer to first {q}." for q in map(self.question, range(count))}
        twice, gaps, remains = self.rows(TWICE), self.rows(GAPS), self.rows(REMAINS)
        activations = self.rows(ACTIVATIONS)
        answers = Counter(row[1] for row in self.rows(ANSWERS))
        keys = self.outside.done(self.mark)
        acted = Counter(effects[0].body for effects in keys.values())
        statuses = self.statuses
        wrong += [f"not succeeded: {statuses}"] if statuses != {"succeeded": count} else []
        wrong += [f"told twice: {row}" for row in twice] + [f"events with gaps: {row}" for row in gaps]
        wrong += [f"a scope remains of {row}" for row in remains]
        wrong += [f"run {n}: heard {heard.get(n)!r}" for n in expected if heard.get(n) != expected[n]]
        wrong += [f"answers of conversations: {answers}"] if answers != {1: count} else []
        wrong += [f"{row.node_id} of {row.query} is {row.status}" for row in activations if row.status != "done"]
        wrong += [f"{len(activations)} activations"] if len(activations) != len(NODES) * count else []
        wrong += [f"under {key}: two bodies" for key in self.outside.keys_with_two_bodies()]
        wrong += [f"{body!r} under {times} keys" for body, times in acted.items() if times > 1]
        wrong += [f"{len(acted)} effects of {count}"] if len(acted) != count else []
        wrong += [f"asked more often than tried: {prompt}" for prompt in self._asked_too_often(activations)]
        tally = Tally(
            started=count,
            ended=sum(statuses.get(it, 0) for it in ("succeeded", "failed", "cancelled")),
            lost=count - statuses.get("succeeded", 0) + sum(heard.get(n) != expected[n] for n in expected),
            committed_twice=len(twice) + max(0, len(activations) - len(NODES) * count),
            effects=count,
            effects_doubled=sum(acted.values()) - len(acted) + len(self.outside.keys_with_two_bodies()),
            effects_repeated=sum(map(len, keys.values())) - len(keys),
            requests_doubled=max(0, sum(statuses.values()) - count),
            stall=_stall(activations, since) if since is not None else 0.0,
        )
        return tally, wrong

    def _asked_too_often(self, activations: Sequence[Any]) -> list[str]:
        """Prompts that a model was asked more often than there were attempts, or never."""
        found: list[str] = []
        for row in activations:
            prompt = {"model1": f"first {row.query}", "model2": f"then {row.query} answer to first {row.query}"}
            if row.node_id in prompt and not 1 <= self.outside.asked[prompt[row.node_id]] <= row.attempt:
                found.append(prompt[row.node_id])
        return found

    def stuck(self) -> str:
        """What stands still, and who holds what, for whoever reads why a test has failed."""
        rows = [row for row in self.rows(ACTIVATIONS) if row.status not in ("done", "closed")]
        with self.database.transaction() as tx:
            rows += tx.rows(BUSY)
        return "\n".join(map(str, rows))

    def logs(self) -> str:
        return "\n".join(f"== {log.name}\n{log.read_text()[-2000:]}" for log in sorted(self.home.glob("*.log")))


def is_stopped(pid: int) -> bool:
    """Whether a process stands still by a signal."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def _stall(activations: Sequence[Any], since: float) -> float:
    """The longest time after a moment in which nothing of a run moved, in seconds."""
    moves: dict[UUID, list[float]] = {}
    for row in activations:
        times = (row.created_at, row.started_at, row.finished_at)
        moves.setdefault(row.run_id, []).extend(it.timestamp() for it in times if it is not None)
    longest = 0.0
    for times in moves.values():
        later = [since, *sorted(it for it in times if it > since)]
        longest = max([longest, *(after - before for before, after in pairwise(later))])
    return longest


@contextmanager
def cluster_on(database_url: str, redis_url: str, home: Path, **environment: str) -> Generator[Cluster]:
    """A cluster without any process yet; all are gone when the block ends."""
    with outside() as world:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("EASEL_", "CELERY_"))}
        cluster = Cluster(
            Database(database_url, pool_size=2),
            redis_url,
            world,
            home,
            {
                **given,
                "DATABASE_URL": database_url,
                "REDIS_URL": redis_url,
                "EASEL_HOME": str(home),
                "EASEL_MODELS_FILE": str(world.accounts(home)),
                "EASEL_SSRF_ALLOW": "127.0.0.1",
                **FEW_CONNECTIONS,
                **environment,
            },
        )
        try:
            yield cluster
        finally:
            cluster.close()
