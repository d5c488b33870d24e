"""Processes that make no progress end themselves, so that their supervisor starts new ones."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

import embedded
from canvas.outcome import Finished
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.version_cache import VersionCache
from scheduler.health.broker_probe import QUEUE_TTL
from scheduler.health.watchdog import EXIT_RESTART, LOCK_HELD
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_bus import Bus
from tests.integration.engine import Bench, Run, until
from worker.fastpath.admission import Admission
from worker.leases import leases
from worker.threads.computing_threads import ComputingThreads

ROOT = Path(__file__).parents[3]
SOON = 80.0  # seconds to wait for a process, on a busy machine
QUEUES, TABLES = "alive.*", "_kombu.binding.alive.*"  # Redis keys of the queues of single processes
FAST = {
    "EASEL_PROBE_INTERVAL": "200ms",
    "EASEL_UNRESPONSIVE_AFTER": "2s",
    "EASEL_SHUTDOWN_GRACE": "300ms",
    "EASEL_LOG_FORMAT": "json",
}


@dataclass
class Program:
    """A process that can be made to hang."""

    process: "subprocess.Popen[bytes]"
    hang_file: Path
    log: Path

    def count_events(self, event: str) -> int:
        """Return how often the process has logged an event."""
        return self.log.read_text().count(f'"event": "{event}"')

    def count_failed_probes(self) -> int:
        """Return how many queue probes could not be sent to the broker."""
        return self.log.read_text().count('"task": "easel.alive"')

    def hang(self) -> None:
        self.hang_file.touch()

    def wait_for_exit(self) -> int:
        """Wait until the process ends by itself; return its exit code."""
        try:
            return self.process.wait(SOON)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the process does not end:\n{self.log.read_text()[-3000:]}") from None

    def wait_for(self, fact: Callable[[], object]) -> None:
        deadline = time.monotonic() + SOON
        while not fact():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.02)


@dataclass
class Programs:
    """Easel processes on the database of the bench; all are killed when the test ends."""

    bench: Bench
    folder: Path
    started: list[Program] = field(default_factory=list[Program])

    def start(self, *arguments: str, redis_url: str = "", **more: str) -> Program:
        at = self.folder / str(len(self.started))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EASEL_", "CELERY_"))}
        own = {
            "DATABASE_URL": self.bench.database.url,
            "REDIS_URL": redis_url or self.bench.redis_url,
            "EASEL_HOME": str(self.folder),
        }
        with at.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.worker.hung_process", str(at), *arguments],
                cwd=ROOT, env={**inherited, **own, **FAST, **more}, stdout=log, stderr=log,
            )  # fmt: skip
        program = Program(process, at, at.with_suffix(".log"))
        self.started.append(program)
        return program

    def send(self, *parts: str, redis_url: str = "") -> Run:
        """Start a run whose task messages are sent to the broker."""
        url = redis_url or self.bench.redis_url
        coordinator = Coordinator(self.bench.database, Dispatch(make_app(url), Bus(url)), VersionCache())
        return Run(self.bench, Lifecycle(coordinator).start_run(self.bench.a_start(*parts)))


@pytest.fixture
def programs(bench: Bench, tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(bench, tmp_path)
    yield programs
    for program in programs.started:
        program.process.kill()
        program.process.wait()


def test_worker_that_receives_no_messages_releases_its_attempts_and_exits(programs: Programs):
    worker = programs.start("worker", "-c", "4")
    run = programs.send("begin -> wait_60")
    worker.wait_for(lambda: run.statuses.get("wait_60") == "running")

    worker.hang()
    code = worker.wait_for_exit()

    released = run.activation("wait_60")
    assert code == EXIT_RESTART
    assert worker.count_events("process_exiting_unresponsive") == 1
    assert (released.status, released.attempt, released.crash_count) == ("ready", 1, 0)


def test_scheduler_that_receives_no_messages_exits(programs: Programs, bench: Bench):
    scheduler = programs.start("scheduler", "-c", "2")
    scheduler.wait_for(lambda: keys(bench, TABLES))

    scheduler.hang()

    assert scheduler.wait_for_exit() == EXIT_RESTART


def test_worker_with_a_blocked_loop_exits_and_only_the_blocking_attempt_counts_a_crash(programs: Programs):
    worker = programs.start("worker", "-c", "4")
    run = programs.send("begin -> wait_60, block")
    worker.wait_for(lambda: set(run.statuses) == {"begin", "wait_60", "block"})
    worker.wait_for(lambda: run.statuses["wait_60"] == "running" == run.statuses["block"])

    code = worker.wait_for_exit()

    released, blocking = run.activation("wait_60"), run.activation("block")
    assert code == EXIT_RESTART
    assert (released.status, released.crash_count) == ("ready", 0)
    assert blocking.status == "running", "its lease must expire, which counts a crash"


def test_worker_whose_interpreter_lock_is_held_exits(programs: Programs):
    # a deferred claim could not be written while the lock is held
    worker = programs.start("worker", "-c", "4", EASEL_DEFER_CLAIMS="false")
    run = programs.send("begin -> wait_60, compute_c")
    worker.wait_for(lambda: run.statuses.get("compute_c") == "running")

    code = worker.wait_for_exit()

    held = run.activation("compute_c")
    assert code == LOCK_HELD
    assert "Timeout" in worker.log.read_text()
    assert "re/__init__.py" in worker.log.read_text()
    assert held.status == "running", "its lease must expire, which counts a crash"


def test_abandoned_threads_are_counted_until_they_return(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    may_end = threading.Event()
    bench.does(compute=lambda ctx: may_end.wait(SOON) and Finished())
    run = bench.start("begin -> compute")
    worker = bench.a_worker(time_limit=short_time_limit)
    bench.play(until=lambda: "compute" in run.statuses)
    computing_threads = ComputingThreads()
    monkeypatch.setattr(leases, "COMPUTING_THREADS", computing_threads)

    def execute() -> None:
        computing_threads.task_started()
        worker.execute(run.id, run.activation("compute").id)

    threading.Thread(target=execute, daemon=True).start()

    until(lambda: worker.leases.abandoned_threads() == 1)
    assert Admission(computing_threads, 2).capacity(lambda: None) == 2  # it occupies no place of another task
    held = worker.leases.attempts()
    may_end.set()

    assert held == []
    until(lambda: worker.leases.abandoned_threads() == 0)


def test_sweeper_that_hangs_in_a_tick_exits(programs: Programs):
    sweeper = programs.start("sweeper")
    sweeper.wait_for(lambda: sweeper.count_events("sweeper_started"))

    sweeper.hang()

    assert sweeper.wait_for_exit() == EXIT_RESTART


@pytest.mark.long
def test_worker_that_is_full_or_without_broker_does_not_exit(programs: Programs, bench: Bench):
    with Broker(bench.redis_url) as broker:
        worker = programs.start("worker", "-c", "1", redis_url=broker.url, EASEL_UNRESPONSIVE_AFTER="4s")

        full = programs.send("begin -> wait_5", redis_url=bench.redis_url)
        worker.wait_for(lambda: full.status == "succeeded")
        broker.close_all()
        worker.wait_for(lambda: worker.count_failed_probes() >= 16)
        broker.open()
        later = programs.send("begin -> work", redis_url=bench.redis_url)
        worker.wait_for(lambda: later.status == "succeeded")

        worker.process.terminate()
        code = worker.wait_for_exit()

    assert {row.attempt for row in (*full.activations, *later.activations)} == {1}
    assert (code, worker.count_events("process_exiting_unresponsive")) == (0, 0)
    assert keys(bench, QUEUES) + keys(bench, TABLES) == []


def test_worker_survives_a_redis_that_is_a_replica_for_a_while(programs: Programs):
    with embedded.run_servers(programs.folder, need_database=False) as servers:
        worker = programs.start("worker", "-c", "2", redis_url=servers.redis_url)
        first = programs.send("begin -> work", redis_url=servers.redis_url)
        worker.wait_for(lambda: first.status == "succeeded")

        with redis.Redis.from_url(servers.redis_url) as client:
            client.replicaof("127.0.0.1", 1)  # pyright: ignore[reportUnknownMemberType]
            worker.wait_for(lambda: worker.count_failed_probes() >= 3)
            worker.wait_for(lambda: "read only replica" in worker.log.read_text())
            client.replicaof("NO", "ONE")  # pyright: ignore[reportUnknownMemberType]

        later = programs.send("begin -> work", redis_url=servers.redis_url)
        worker.wait_for(lambda: later.status == "succeeded")
        worker.process.terminate()
        assert worker.wait_for_exit() == 0


def test_redis_keys_of_a_killed_process_expire(programs: Programs, bench: Bench):
    worker = programs.start("worker", "-c", "1")
    worker.wait_for(lambda: keys(bench, TABLES))

    worker.process.kill()
    worker.process.wait(SOON)

    with redis.Redis.from_url(bench.redis_url) as client:
        swept_at = [
            client.zscore("_kombu.binding_deadlines", table.removeprefix(b"_kombu.binding."))
            for table in keys(bench, TABLES)
        ]
        assert all(0 < client.ttl(queue) <= QUEUE_TTL for queue in keys(bench, QUEUES))
    assert None not in swept_at, "other processes delete the keys after an hour without use"


# -- helpers ---------------------------------------------------------------------------------------------------------
def keys(bench: Bench, pattern: str) -> list[bytes]:
    with redis.Redis.from_url(bench.redis_url) as client:
        return list(client.scan_iter(pattern))


def short_time_limit(component: str, requested: float | None = None) -> float:
    return 0.1


class Broker:
    """A TCP proxy to Redis that can be closed and opened again."""

    def __init__(self, redis_url: str) -> None:
        parts = urlsplit(redis_url)
        self._to = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []
        self._port = 0
        self.open()
        login, _, _ = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=f"{login + '@' if login else ''}127.0.0.1:{self._port}").geturl()

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self._port))
        self._listener, self._port = listener, listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close_all(self) -> None:
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._connections.clear()

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close_all()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._to)
                self._connections += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
