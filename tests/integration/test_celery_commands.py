"""A worker that is started with Celery's own command answers Celery's commands."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.messaging.celery_app import make_app
from tests.integration.engine import until

ROOT = Path(__file__).parents[2]
COMMAND_TIMEOUT = 60.0  # seconds: a command imports the worker, on a busy machine


class CeleryCommands:
    """The `celery` command for one app, on the services of a test."""

    def __init__(self, app: str, environment: dict[str, str]) -> None:
        self.app = app
        self.environment = environment

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "celery", "-A", self.app, *arguments]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments), env=self.environment, cwd=ROOT, capture_output=True, text=True,
            timeout=COMMAND_TIMEOUT,
        )  # fmt: skip

    def answers(self, *arguments: str) -> dict[str, Any]:
        """Return the answers to a command, by worker."""
        # with a destination Celery waits for its answer only, else until the timeout is over
        destination = f"celery@{socket.gethostname()}"
        completed = self.run(*arguments, "--json", "--timeout", "20", "--destination", destination)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return json.loads(completed.stdout)


@contextmanager
def running(commands: CeleryCommands, queue: str, redis_url: str, log: Path) -> Generator["subprocess.Popen[bytes]"]:
    """Run a process as docs/operations.md starts it with `celery`, until the block ends."""
    start = commands.command("worker", "-Q", queue, "-P", "threads", "-c", "2")
    with log.open("wb") as out:
        process = subprocess.Popen(start, env=commands.environment, cwd=ROOT, stdout=out, stderr=out)
    inspect = make_app(redis_url).control.inspect(timeout=1)
    try:
        until(lambda: process.poll() is not None or inspect.ping(), seconds=90)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.parametrize(
    ("app", "queue", "task"),
    [
        ("worker.tasks", "nodes", "worker.execute"),
        ("scheduler.tasks", "runs", "scheduler.advance"),
    ],
)
def test_process_started_with_celery_answers_its_commands(
    app: str, queue: str, task: str, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "EASEL_HOME": str(tmp_path)}
    commands, log = CeleryCommands(app, environment), tmp_path / "process.log"

    with running(commands, queue, redis_url, log) as process:
        (stats,) = commands.answers("inspect", "stats").values()
        (active,) = commands.answers("inspect", "active").values()
        (registered,) = commands.answers("inspect", "registered").values()
        commands.run("control", "shutdown")  # its code is 69: a worker of Celery ends without an answer
        process.wait(COMMAND_TIMEOUT)

    assert (stats["pool"]["max-concurrency"], active) == (2, [])
    assert task in registered
    assert process.returncode == 0
    assert "Control command error" not in log.read_text()
