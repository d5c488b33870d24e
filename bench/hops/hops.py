"""Chains of cheap nodes on real processes, with counting proxies before the servers.

    with run_hop_bench(folder) as bench:
        bench.start_workers(2)
        measured = bench.measure_chains(runs=20, at_once=1)
        measured.tally("worker", "PostgreSQL").round_trips

Scheduler, worker and sweeper are the processes `easel scheduler`, `worker` and `sweeper`, as deployed. This process
starts the runs, past the proxies. Times are the database's, so the observing process is not measured.
"""

import os
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import redis
from sqlalchemy import text

import embedded
from bench.compare.canvases import QUERY, chain_canvas
from bench.compare.processes import Process, stop_all
from bench.measuring import cpu
from bench.measuring.counting_proxy import CountingProxies, CountingProxy, run_proxies
from bench.measuring.postgres_protocol import PostgresObserver
from bench.measuring.redis_protocol import RedisObserver
from bench.measuring.tally import Tally
from canvas.ids import RunId
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
from store.maintenance import migrate
from store.tenants import tenants

ROOT = Path(__file__).resolve().parents[2]
HOPS = 20  # nodes of a chain, Begin among them
POLL_INTERVAL = 0.05  # seconds
TIMEOUT = 90.0  # seconds to wait for any condition
CONNECTIONS = 36  # of the embedded PostgreSQL's 60, for all workers together
ROLES, SERVERS = ("worker", "scheduler", "sweeper"), ("PostgreSQL", "Redis")

OPEN = text("select count(*) from runs where tenant_id = :tenant_id and status not in ('succeeded', 'failed')")
FAILED = text("select id, error from runs where tenant_id = :tenant_id and status = 'failed' limit 1")
WRITE_COUNTERS = text("""
    select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as transactions,
        (pg_current_wal_insert_lsn() - '0/0')::bigint as wal
""")
ACTIVATION_TIMES = text("""
    select run_id, started_at, finished_at from activations where run_id = any(:runs) order by run_id, started_at
""")


@dataclass(frozen=True, slots=True)
class CounterReading:
    """All counters at one moment."""

    at: float
    tallies: Mapping[tuple[str, str], Tally]  # by (role, server)
    cpu: Mapping[str, float]  # milliseconds, by role and server
    transactions: int  # that wrote
    wal: int  # bytes
    commands: Mapping[str, int]  # by name, as Redis counts them
    command_us: float  # time that Redis spent in commands

    def __sub__(self, earlier: "CounterReading") -> "CounterReading":
        return CounterReading(
            self.at - earlier.at,
            {key: tally - earlier.tallies[key] for key, tally in self.tallies.items()},
            {key: used - earlier.cpu[key] for key, used in self.cpu.items()},
            self.transactions - earlier.transactions,
            self.wal - earlier.wal,
            {name: n - earlier.commands.get(name, 0) for name, n in self.commands.items()},
            self.command_us - earlier.command_us,
        )


@dataclass(frozen=True, slots=True)
class HopMeasurement:
    """The cost of some chains. `idle` is the reading of the same processes while nothing ran."""

    hops: int
    seconds: float  # from the first claim to the last report
    hop_ms: Sequence[float]  # from one claim to the next
    reading: CounterReading
    idle: CounterReading

    @property
    def hops_per_second(self) -> float:
        return self.hops / self.seconds

    def tally(self, role: str, server: str) -> Tally:
        """Return the traffic of a kind of process to a server for each hop, without its idle traffic."""
        key = (role, server)
        return (self.reading.tallies[key] - self._idle_share(self.idle.tallies[key])) * (1 / self.hops)

    def cpu_ms(self, who: str) -> float:
        """Return the milliseconds of processor time for each hop."""
        return self._per_hop(self.reading.cpu[who], self.idle.cpu[who])

    @property
    def transactions(self) -> float:
        """Writing transactions of each hop."""
        return self._per_hop(self.reading.transactions, self.idle.transactions)

    @property
    def wal(self) -> float:
        """Bytes of WAL of each hop."""
        return self._per_hop(self.reading.wal, self.idle.wal)

    def _per_hop(self, counted: float, idle: float) -> float:
        """Return a count per hop, without the idle count of the same time."""
        return (counted - idle / self.idle.at * self.reading.at) / self.hops

    def _idle_share(self, tally: Tally) -> Tally:
        return tally * (self.reading.at / self.idle.at)


@dataclass
class HopBench:
    """Servers behind proxies, processes, and a canvas to run."""

    database: Database
    lifecycle: Lifecycle
    redis: "redis.Redis"
    servers: embedded.EmbeddedServers
    proxies: CountingProxies
    proxy_by_route: Mapping[tuple[str, str], CountingProxy]
    environment: Mapping[str, str]
    folder: Path
    processes: dict[str, list[Process]] = field(default_factory=dict[str, list[Process]])
    idle: CounterReading | None = None

    def __post_init__(self) -> None:
        with self.database.transaction() as tx:
            self.tenant_id = tenants.ensure_tenant(tx, "distance")
            self.canvas_id = canvases.create(tx, self.tenant_id, "a chain", chain_canvas(HOPS))
            self.version_id = versions.lock_draft_version(tx, self.tenant_id, self.canvas_id).id

    # -- processes ---------------------------------------------------------------------------------------------------
    def start(self, role: str, count: int = 1, **environment: str) -> None:
        """Start processes of a kind; they reach the servers through the proxies of that kind."""
        given = {
            **self.environment,
            "EASEL_DATABASE_URL": self.proxy_by_route[role, "PostgreSQL"].proxied_url(self.servers.database_url),
            "EASEL_REDIS_URL": self.proxy_by_route[role, "Redis"].proxied_url(self.servers.redis_url),
            **environment,
        }
        for _ in range(count):
            number = len(self.processes.setdefault(role, []))
            more = () if role == "sweeper" else ("-n", f"{role}{number}@%h", "-l", "WARNING")
            argv = [sys.executable, "-m", "cli", role, *more]
            log = self.folder / f"{role}-{number}.log"
            self.processes[role].append(Process(role, argv, given, log))

    def stop(self, role: str) -> None:
        """Stop all processes of a kind in order."""
        stop_all(self.processes.pop(role, []))

    def start_workers(self, count: int, *, idle: float = 5.0) -> None:
        """Start workers, warm them up with some runs, and read their idle counters over `idle` seconds."""
        self.start("worker", count, EASEL_WORKER_POOL=str(min(8, CONNECTIONS // count - 1)))
        for _ in range(3):
            self.run_all(4 * count, 4 * count)
        self.idle = self._read_idle(idle)

    def _read_idle(self, seconds: float) -> CounterReading:
        before = self.read_counters()
        time.sleep(seconds)
        return self.read_counters() - before

    # -- runs --------------------------------------------------------------------------------------------------------
    def measure_chains(self, runs: int, at_once: int) -> HopMeasurement:
        """Run `runs` chains, `at_once` at a time, and return their cost."""
        assert self.idle is not None
        before = self.read_counters()
        started = self.run_all(runs, at_once)
        after = self.read_counters()
        with self.database.transaction() as tx:
            rows = tx.rows(ACTIVATION_TIMES, runs=started)
        hop_ms = [
            (then.started_at - now.started_at).total_seconds() * 1000
            for now, then in pairwise(rows)
            if now.run_id == then.run_id
        ]
        took = max(row.finished_at for row in rows) - min(row.started_at for row in rows)
        return HopMeasurement(len(rows), took.total_seconds(), hop_ms, after - before, self.idle)

    def run_all(self, runs: int, at_once: int) -> list[RunId]:
        """Start `runs` runs with at most `at_once` open at a time; return their ids when all have succeeded."""
        started: list[RunId] = []
        deadline = time.monotonic() + TIMEOUT
        while (still_open := self._count_open()) or len(started) < runs:
            for _ in range(min(at_once - still_open, runs - len(started))):
                start = Start(self.tenant_id, self.canvas_id, self.version_id, RunRequest(query=QUERY))
                started.append(self.lifecycle.start_run(start).run_id)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{still_open} runs are still open: {self.log_ends()}")
            time.sleep(POLL_INTERVAL)
        with self.database.transaction() as tx:
            if failed := tx.one_or_none(FAILED, tenant_id=self.tenant_id):
                raise RuntimeError(f"A run failed: {failed['error']}")
        return started

    def _count_open(self) -> int:
        with self.database.transaction() as tx:
            return int(tx.scalar(OPEN, tenant_id=self.tenant_id))

    def log_ends(self) -> str:
        """Return the ends of all processes' logs."""
        return "\n".join(f"{path.name}: {path.read_text()[-1000:]}" for path in sorted(self.folder.glob("*.log")))

    # -- counters ----------------------------------------------------------------------------------------------------
    def read_counters(self) -> CounterReading:
        """Read all counters."""
        with self.database.transaction() as tx:
            written = tx.one_or_none(WRITE_COUNTERS)
        assert written is not None
        stats: Mapping[str, Mapping[str, Any]] = self.redis.info("commandstats")  # pyright: ignore[reportAssignmentType] (it also has an async twin)
        pids = {role: [process.session for process in processes] for role, processes in self.processes.items()}
        pids |= {server.name: [server.pid] for server in self.servers.owned}
        return CounterReading(
            time.monotonic(),
            {key: self.proxies.read(wire) for key, wire in self.proxy_by_route.items()},
            {who: cpu.cpu_ms_of(found) for who, found in pids.items()},
            written["transactions"],
            written["wal"],
            {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()},
            sum(stat["usec"] for stat in stats.values()),
        )


@contextmanager
def run_hop_bench(folder: Path) -> Generator[HopBench]:
    """Run scheduler and sweeper on embedded servers until the block ends. The caller starts workers."""
    with ExitStack() as until_end:
        servers = until_end.enter_context(embedded.run_servers(folder, durable=True))
        migrate.upgrade(servers.database_url)
        laid = until_end.enter_context(run_proxies())
        talks: Mapping[str, tuple[str, Callable[[Tally], Any]]] = {
            "PostgreSQL": (servers.database_url, PostgresObserver),
            "Redis": (servers.redis_url, RedisObserver),
        }
        found = {(role, server): laid.open(url, talk) for role in ROLES for server, (url, talk) in talks.items()}
        database = Database(servers.database_url, pool_size=2, application="easel-bench")
        until_end.callback(database.close)
        app, bus = make_app(servers.redis_url), Bus(servers.redis_url)
        until_end.callback(app.close)
        until_end.callback(bus.close)
        lifecycle = Lifecycle(Coordinator(database, Dispatch(app, bus), VersionCache()))
        client = until_end.enter_context(redis.Redis.from_url(servers.redis_url))
        stand = HopBench(database, lifecycle, client, servers, laid, found, _environment(folder), folder)
        for role in reversed(ROLES):
            until_end.callback(stand.stop, role)
        stand.start("scheduler")
        stand.start("sweeper")
        yield stand


def _environment(folder: Path) -> Mapping[str, str]:
    """Return the environment of the processes, without the server URLs and settings of the caller."""
    others = ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL")
    inherited = {
        name: value for name, value in os.environ.items() if name not in others and not name.startswith("EASEL_")
    }
    return {**inherited, "EASEL_HOME": str(folder), "PYTHONPATH": str(ROOT)}
