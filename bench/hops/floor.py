"""The lower bound of a hop on this machine: the cost of its parts by themselves.

for part in measure_floor(servers, folder): part.name, part.ms, part.client_ms, part.server_ms
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis

import embedded
from bench.compare.canvases import QUERY
from bench.hops import bare
from bench.hops.hops import ROOT
from bench.measuring import cpu

TASK, COMMIT = "Celery: a task that sends the next", "PostgreSQL: insert of 1 KB, committed to disk"
REPETITIONS = 400  # of each operation
HOPS = 100  # of a chain of bare tasks
CHAINS = 4
CHAIN_TIMEOUT = 30.0  # seconds for a chain


@dataclass(frozen=True, slots=True)
class FloorPart:
    """One operation: its duration and its processor time, in milliseconds."""

    name: str
    ms: float  # median of the wall clock
    client_ms: float  # processor time of the client
    server_ms: float  # processor time of PostgreSQL or Redis


def measure_floor(servers: embedded.EmbeddedServers, folder: Path) -> Sequence[FloorPart]:
    """Measure the parts one after another on these servers."""
    pids = {server.name: server.pid for server in servers.owned}
    postgres, valkey = pids["PostgreSQL"], pids["Valkey"]
    plain_url = servers.database_url.replace("+psycopg", "")
    with (
        psycopg.connect(plain_url, autocommit=True) as connection,
        redis.Redis.from_url(servers.redis_url) as client,
    ):
        connection.execute("create table floor (number int, output jsonb)")
        insert = "insert into floor values (%s, to_jsonb(%s::text))"

        def select(_: int) -> None:
            connection.execute("select 1")

        def commit(number: int) -> None:
            connection.execute(insert, (number, QUERY))

        def commit_soon(number: int) -> None:
            with connection.transaction(), connection.pipeline():
                connection.execute("set local synchronous_commit = off")
                connection.execute(insert, (number, QUERY))

        def ping(_: int) -> None:
            client.ping()

        parts = [
            _time_operation("PostgreSQL: `select 1`", select, postgres),
            _time_operation(COMMIT, commit, postgres),
            _time_operation(
                "PostgreSQL: the same, the disk not awaited (4 statements, 2 round trips)", commit_soon, postgres
            ),
            _time_operation("Redis: `ping`", ping, valkey),
            _measure_bare_hop(servers.redis_url, folder, valkey),
        ]
        connection.execute("drop table floor")
    return parts


def _time_operation(name: str, act: Callable[[int], None], server: int, times: int = REPETITIONS) -> FloorPart:
    for number in range(times // 10):
        act(number)
    took: list[float] = []
    own, theirs = time.process_time(), cpu.cpu_ms_of([server])
    for number in range(times):
        began = time.perf_counter()
        act(number)
        took.append(time.perf_counter() - began)
    own, theirs = time.process_time() - own, cpu.cpu_ms_of([server]) - theirs
    return FloorPart(name, statistics.median(took) * 1000, own / times * 1000, theirs / times)


def _measure_bare_hop(redis_url: str, folder: Path, valkey: int) -> FloorPart:
    """Measure a chain of tasks, each of which sends the next one, in a worker with threads."""
    bare.app.conf.update(broker_url=redis_url)
    environment: Mapping[str, str] = {**os.environ, "BARE_BROKER_URL": redis_url, "PYTHONPATH": str(ROOT)}
    argv = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "bench.hops.bare",
        "worker",
        "-P",
        "threads",
        "-c",
        "8",
        "-l",
        "ERROR",
    ]
    argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    with (folder / "bare.log").open("wb") as log:
        worker = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=log, stderr=log)  # noqa: S603 (ours)
    try:
        with redis.Redis.from_url(redis_url, socket_timeout=CHAIN_TIMEOUT + 5) as client:
            _run_bare_chain(client, "bare-end-warm")
            took: list[float] = []
            own, theirs = cpu.cpu_ms_of([worker.pid]), cpu.cpu_ms_of([valkey])
            for number in range(CHAINS):
                took.append(_run_bare_chain(client, f"bare-end-{number}"))
            own, theirs = cpu.cpu_ms_of([worker.pid]) - own, cpu.cpu_ms_of([valkey]) - theirs
        hops = HOPS * CHAINS
        return FloorPart(TASK, statistics.median(took) / HOPS * 1000, own / hops, theirs / hops)
    finally:
        worker.terminate()
        worker.wait(CHAIN_TIMEOUT)


def _run_bare_chain(client: "redis.Redis", end: str) -> float:
    """Run a chain of bare tasks; return its seconds."""
    began = time.perf_counter()
    bare.app.send_task("bare.hop", (HOPS, end), queue=bare.QUEUE)
    if client.brpop([end], timeout=int(CHAIN_TIMEOUT)) is None:
        raise RuntimeError(f"The chain of bare tasks did not end within {CHAIN_TIMEOUT:g} s.")
    return time.perf_counter() - began
