"""The log and the metrics of a process that starts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.server import checks
from cli.server.checks import Level
from settings import Settings
from telemetry import VERSION
from tests.pgbouncer import free_port

STARTUP_DEADLINE_S = 90.0  # seconds


class Process:
    """A process of ours whose log is JSON."""

    def __init__(self, running: "subprocess.Popen[bytes]", log: Path) -> None:
        self.running = running
        self.log = log

    @property
    def lines(self) -> list[str]:
        """Return the complete lines of the log."""
        return [line for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log lines of an event."""
        entries = [json.loads(line) for line in self.lines]
        return [line for line in entries if line["event"] == name]


@pytest.mark.parametrize("process", ["worker", "scheduler", "sweeper"])
def test_json_log_is_json_from_its_first_line_which_names_the_release(
    process: str, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    with running_processes([process], database_url, redis_url, tmp_path, free_port()) as (started,):
        wait_for(lambda: bool(started.events("metrics_served")), started)

        first = json.loads(started.lines[0])

    entries = [json.loads(line) for line in started.lines]
    assert (first["event"], first["process"], first["version"]) == ("process_started", process, VERSION)
    assert not any("SecurityWarning" in line["event"] for line in entries)


def test_processes_with_the_same_metrics_port_setting_serve_metrics_on_different_ports(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    port, kinds = free_port(), ["sweeper", "worker", "scheduler"]

    with running_processes(kinds, database_url, redis_url, tmp_path, port) as processes:
        for each in processes:
            wait_for(lambda each=each: bool(each.events("metrics_served")), each)
        ports = {each.events("metrics_served")[0]["port"] for each in processes}

        finding = checks.metrics(Settings(metrics_port=port))

        assert [each.running.poll() for each in processes] == [None, None, None]
    assert len(ports) == 3
    assert finding.level is Level.OK
    for kind in kinds:
        assert f"{kind} {VERSION} at 127.0.0.1:" in finding.found


@contextmanager
def running_processes(
    kinds: Sequence[str], database_url: str, redis_url: str, home: Path, port: int
) -> Generator[list[Process]]:
    environment = {
        **os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "EASEL_HOME": str(home),
        "EASEL_LOG_FORMAT": "json", "EASEL_METRICS_PORT": str(port), "EASEL_WORKER_THREADS": "2",
    }  # fmt: skip
    with ExitStack() as stack:
        processes: list[Process] = []
        for kind in kinds:
            log = home / f"{kind}.log"
            with log.open("wb") as out:
                running = subprocess.Popen([sys.executable, "-m", "cli", kind], env=environment, stdout=out, stderr=out)
            stack.callback(terminate, running)
            processes.append(Process(running, log))
        yield processes


def terminate(running: "subprocess.Popen[bytes]") -> None:
    running.send_signal(signal.SIGTERM)
    try:
        running.wait(60)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()


def wait_for(holds: Callable[[], bool], process: Process) -> None:
    deadline = time.monotonic() + STARTUP_DEADLINE_S
    while not holds():
        assert process.running.poll() is None, process.log.read_text()
        assert time.monotonic() < deadline, process.log.read_text()
        time.sleep(0.1)
