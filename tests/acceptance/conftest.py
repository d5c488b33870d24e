"""`easel` in temporary homes, and one home with a running `easel up` for all tests that do not change it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 60.0  # seconds for anything that must happen
SERVERS = (
    "DATABASE_URL",
    "REDIS_URL",
    "CELERY_BROKER_URL",
    "EASEL_DATABASE_URL",
    "EASEL_REDIS_URL",
    "EASEL_BROKER_URL",
)

CommandResult: TypeAlias = "subprocess.CompletedProcess[str]"
Easel: TypeAlias = Callable[..., CommandResult]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "cli", *map(str, arguments)]


def environment(home: Path) -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in SERVERS}
    return {**inherited, "EASEL_HOME": str(home), "PYTHONPATH": str(ROOT)}


@contextmanager
def new_home() -> Iterator[Path]:
    """A temporary home that PostgreSQL can access when root runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="easel-home-"))
    folder.chmod(0o711)
    try:
        yield folder / "home"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def background_command(home: Path, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """Run a command in the background; kill it at the end of the block."""
    process = subprocess.Popen(
        command(*arguments), env=environment(home), cwd=home.parent, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def runner(home: Path) -> Easel:
    def run(*arguments: object, stdin: str = "") -> CommandResult:
        return subprocess.run(
            command(*arguments), env=environment(home), cwd=home.parent, input=stdin, text=True,
            capture_output=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip

    return run


@contextmanager
def run_easel_up() -> Iterator[Path]:
    """Run `easel up` in a home of its own, with the variables of this process's environment."""
    with new_home() as home:
        home.parent.mkdir(exist_ok=True)
        with background_command(home, "up", "--port", "0") as process:
            assert process.stdout
            ready = process.stdout.readline()
            assert re.fullmatch(r"ready http://127\.0\.0\.1:\d+ token=easel_\S+\n", ready), ready
            (home.parent / "rules.json").write_text(json.dumps([{"reply": "too late", "delay_ms": 120_000}]))
            added = runner(home)("models", "add", "Easel", "--rules", home.parent / "rules.json")
            assert added.returncode == 0, added.stderr  # before any run, since workers cache accounts
            yield home
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT) == 0
            assert process.stdout.read() == ""


@pytest.fixture(scope="package")
def up() -> Iterator[Path]:
    """A home in which `easel up` runs."""
    with run_easel_up() as home:
        yield home
