"""Programs of a deployment, and children that are kept running."""

import asyncio
import os
import socket
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

import settings
from canvas.errors import Conflict, ExecutorError, InvalidRequest
from cli.__main__ import main
from cli.server import supervisor
from cli.server.checks import Level, clocks, connections, secret_key
from cli.server.processes import api, environment, scheduler_program, worker_program
from cli.server.supervisor import ChildProcess
from cli.server.up import free_port, metrics_ports
from cli.shell import home
from settings import InvalidSettings, Settings
from telemetry import VERSION

PATIENCE = 10.0  # seconds


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings that name servers, which nobody asks in these tests."""
    for name in ("EASEL_DATABASE_URL", "EASEL_REDIS_URL", "CELERY_BROKER_URL", "EASEL_BROKER_URL", "EASEL_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EASEL_HOME", str(tmp_path))
    monkeypatch.setenv("DATABASE_URL", "postgresql://h/d")
    monkeypatch.setenv("REDIS_URL", "redis://h/0")
    return Settings()


def test_workers_and_schedulers_are_plain_celery_on_their_queues(named: Settings):
    worker, scheduler = " ".join(worker_program(named)), " ".join(scheduler_program(named))

    assert "celery -A worker.tasks worker -Q nodes -P threads -c 128 --without-gossip --without-mingle" in worker
    assert "celery -A scheduler.tasks worker -Q runs -P threads -c 4 --without-gossip --without-mingle" in scheduler


def test_variables_for_a_process_override_other_server_urls(named: Settings):
    told = environment(named)

    assert told["EASEL_DATABASE_URL"] == "postgresql+psycopg://h/d"
    assert told["EASEL_REDIS_URL"] == "redis://h/0"


def test_api_command_refuses_an_endless_request_head(named: Settings, monkeypatch: pytest.MonkeyPatch):
    seen: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: seen.update(options))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    api(port=0)
    config = uvicorn.Config(nobody, http=seen["http"], log_config=None)
    config.load()
    sent = Sent()
    asyncio.run(fed(config, sent, b"GET / HTTP/1.1\r\nHost: h\r\nX: ", *[b"x" * 65_536] * 4))

    assert (sent.written[:12], sent.is_closed) == (b"HTTP/1.1 400", True)


class Sent(asyncio.Transport):
    """A connection that keeps what is sent over it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


async def nobody(*_: object) -> None:
    """An application that nobody reaches."""


async def fed(config: uvicorn.Config, over: Sent, *pieces: bytes) -> None:
    """Give a server's connection something to read, until it closes."""
    protocol: Any = config.http_protocol_class
    connection = protocol(config=config, server_state=ServerState(), app_state={})
    connection.connection_made(over)
    for piece in pieces:
        if not over.is_closed:
            connection.data_received(piece)


def test_process_without_servers_advises_how_to_get_some(named: Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DATABASE_URL")

    with pytest.raises(InvalidSettings, match=r"DATABASE_URL.*easel up"):
        environment(Settings())


@pytest.mark.parametrize("address", ["0.0.0.0", "192.168.0.7", "::", "example.org"])
def test_flower_beyond_this_machine_needs_a_password(
    named: Settings, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("FLOWER_BASIC_AUTH", raising=False)
    settings.load.cache_clear()

    with pytest.raises(SystemExit) as ended:
        main(["flower", "--address", address])

    assert ended.value.code == 2
    assert "FLOWER_BASIC_AUTH" in capsys.readouterr().err


def test_flower_on_this_machine_needs_none_and_further_arguments_reach_it(
    named: Settings, monkeypatch: pytest.MonkeyPatch
):
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda _, program, __: became.append(program))
    settings.load.cache_clear()

    with pytest.raises(SystemExit):
        main(["flower", "--port", "5556", "--persistent=true"])

    settings.load.cache_clear()
    assert became[0][-3:] == ["--address=127.0.0.1", "--port=5556", "--persistent=true"]


def tend_until(child: ChildProcess, starts: int) -> None:
    """Tend a child until it has been started so often and has ended again."""
    give_up = time.monotonic() + PATIENCE
    while child.starts < starts or child.is_running:
        assert time.monotonic() < give_up
        child.ensure_running()
        time.sleep(0.005)


def test_child_that_ends_is_restarted_and_has_its_own_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    child = ChildProcess(
        "worker", [sys.executable, "-c", "print('here')"], os.environ, tmp_path / "logs" / "worker.log"
    )

    tend_until(child, 2)

    assert child.log.read_text() == "here\nhere\n"
    assert child.log.stat().st_mode & 0o777 == 0o600
    assert "the worker exited with code 0 and is restarted" in capsys.readouterr().err


def pauses(child: ChildProcess, count: int, *, lasting: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a child is away each time, if each of its lives lasts so long; on a clock of our own."""
    now, away = 1000.0, list[float]()
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: now)
    child.ensure_running()
    for _ in range(count):
        assert child._process is not None
        child._process.wait(PATIENCE)
        now += lasting
        ended, starts = now, child.starts
        while child.starts == starts:
            child.ensure_running()
            now += 0.05
        away.append(round(now - 0.05 - ended, 2))
    return away


def test_repeatedly_killed_child_is_restarted_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    killed = ChildProcess("worker", ["/bin/sh", "-c", "kill -9 $$"], os.environ, tmp_path / "worker.log")

    away = pauses(killed, 8, lasting=0.5, monkeypatch=monkeypatch)

    assert max(away) <= 0.3
    assert "the worker was killed by signal 9" in capsys.readouterr().err
    killed.raise_if_failing()


def test_child_that_ends_after_it_came_up_is_restarted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    child = ChildProcess("worker", ["/bin/sh", "-c", "exit 1"], os.environ, tmp_path / "worker.log")

    assert max(pauses(child, 8, lasting=6.0, monkeypatch=monkeypatch)) <= 0.3


def test_child_that_requests_a_restart_is_restarted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    child = ChildProcess("sweeper", ["/bin/sh", "-c", "exit 75"], os.environ, tmp_path / "sweeper.log")

    assert max(pauses(child, 8, lasting=0.5, monkeypatch=monkeypatch)) <= 0.3


def test_child_that_fails_to_start_is_retried_at_growing_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    failing = ChildProcess("worker", ["/bin/sh", "-c", "exit 1"], os.environ, tmp_path / "worker.log")

    away = pauses(failing, 8, lasting=0.5, monkeypatch=monkeypatch)

    assert away == sorted(away)
    assert away[0] < 0.5
    assert 4.9 < away[-1] < 5.2
    failing._process = None
    with pytest.raises(ExecutorError, match="does not start"):
        failing.raise_if_failing()


def test_a_child_that_never_comes_up_is_reported_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "MIN_PAUSE", 0.01)
    child = ChildProcess(
        "api", [sys.executable, "-c", "raise SystemExit('no such port')"], os.environ, tmp_path / "api.log"
    )

    child.raise_if_failing()
    tend_until(child, 3)
    child.ensure_running()  # its third end is seen

    with pytest.raises(ExecutorError, match="no such port"):
        child.raise_if_failing()


def test_child_stops_on_request(tmp_path: Path):
    waiting = "import sys, time; print('up', flush=True); time.sleep(60)"
    child = ChildProcess("worker", [sys.executable, "-c", waiting], os.environ, tmp_path / "worker.log")
    child.ensure_running()

    child.stop()

    assert not child.is_running


def test_a_port_that_is_taken_is_refused_with_advice():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        with pytest.raises(Conflict, match="--port"):
            free_port("127.0.0.1", taken.getsockname()[1])

    assert free_port("127.0.0.1", 0) > 0


def test_a_port_that_the_api_of_a_killed_up_still_holds_is_waited_for():
    with socket.socket() as leaving:
        leaving.bind(("127.0.0.1", 0))
        leaving.listen()
        port = leaving.getsockname()[1]
        letting_go = threading.Timer(0.1, leaving.close)
        letting_go.start()

        assert free_port("127.0.0.1", port, wait=PATIENCE) == port


def test_up_knows_whether_the_previous_one_was_killed(tmp_path: Path):
    with home.lock_home(tmp_path) as first:
        first.write(home.Up("http://here", 1, "token", "postgresql://h/d", "redis://h/0"))
        left = (tmp_path / home.STATE_FILE).read_bytes()
    with home.lock_home(tmp_path) as after_an_end_in_order:
        pass
    (tmp_path / home.STATE_FILE).write_bytes(left)
    with home.lock_home(tmp_path) as after_a_kill:
        pass

    assert [it.was_killed for it in (first, after_an_end_in_order, after_a_kill)] == [False, False, True]


def test_the_doctor_counts_connections_before_the_database_refuses_them(named: Settings):
    enough = named.worker_pool + 1 + named.api_pool + 4 + named.scheduler_threads + 2 + 10

    assert connections(enough, named).level is Level.OK
    too_few = connections(enough - 1, named)
    assert too_few.level is Level.FAIL
    assert f"max_connections to {enough}" in too_few.advice


def test_the_doctor_warns_of_clocks_apart_and_of_a_key_that_others_lack(named: Settings):
    assert clocks(timedelta(seconds=-1)).level is Level.OK
    assert clocks(timedelta(seconds=-3)).level is Level.WARN
    assert secret_key(named).level is Level.WARN
    assert secret_key(named.model_copy(update={"database_url": None})).level is Level.OK


def test_up_gives_the_counters_of_each_process_a_port() -> None:
    assert metrics_ports(Settings(metrics_port=9100)) == {"worker": 9100, "scheduler": 9101, "sweeper": 9102}
    assert metrics_ports(Settings(metrics_port=None)) == {}


def test_up_refuses_counters_on_ports_that_there_are_not() -> None:
    assert metrics_ports(Settings(metrics_port=65533))["sweeper"] == 65535
    with pytest.raises(InvalidRequest, match="Use a port up to 65533"):
        metrics_ports(Settings(metrics_port=65534))


def test_version_option_shows_the_release(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"easel {VERSION}\n"
