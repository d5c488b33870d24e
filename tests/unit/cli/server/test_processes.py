"""Programs of a deployment, and restarts of child processes."""

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
from cli.server import processes, supervisor
from cli.server.checks import Level, clocks, connections, secret_key
from cli.server.processes import api, environment, scheduler_program, worker_program
from cli.server.supervisor import ChildProcess
from cli.server.up import free_port, metrics_ports
from cli.shell import home
from settings import InvalidSettings, Settings
from telemetry import VERSION

TIMEOUT = 10.0  # seconds


@pytest.fixture
def server_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings that name servers; no test connects to them."""
    for name in ("EASEL_DATABASE_URL", "EASEL_REDIS_URL", "CELERY_BROKER_URL", "EASEL_BROKER_URL", "EASEL_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EASEL_HOME", str(tmp_path))
    monkeypatch.setenv("DATABASE_URL", "postgresql://h/d")
    monkeypatch.setenv("REDIS_URL", "redis://h/0")
    return Settings()


def test_worker_and_scheduler_programs_are_celery_with_their_queues(server_settings: Settings):
    worker, scheduler = " ".join(worker_program(server_settings)), " ".join(scheduler_program(server_settings))

    assert "celery -A worker.tasks worker -Q nodes -P threads -c 128 --without-gossip --without-mingle" in worker
    assert "celery -A scheduler.tasks worker -Q runs -P threads -c 4 --without-gossip --without-mingle" in scheduler


def test_variables_for_a_process_override_other_server_urls(server_settings: Settings):
    variables = environment(server_settings)

    assert variables["EASEL_DATABASE_URL"] == "postgresql+psycopg://h/d"
    assert variables["EASEL_REDIS_URL"] == "redis://h/0"


def test_api_command_refuses_an_endless_request_head(server_settings: Settings, monkeypatch: pytest.MonkeyPatch):
    options: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda app, **given: options.update(given))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    api(port=0)
    config = uvicorn.Config(unreached_app, http=options["http"], log_config=None)
    config.load()
    transport = FakeTransport()
    asyncio.run(feed(config, transport, b"GET / HTTP/1.1\r\nHost: h\r\nX: ", *[b"x" * 65_536] * 4))

    assert (transport.written[:12], transport.is_closed) == (b"HTTP/1.1 400", True)


class FakeTransport(asyncio.Transport):
    """A connection that records what is written to it."""

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


async def unreached_app(*_: object) -> None:
    """An application that receives no request."""


async def feed(config: uvicorn.Config, transport: FakeTransport, *chunks: bytes) -> None:
    """Pass data to a server's connection until it closes."""
    protocol: Any = config.http_protocol_class
    connection = protocol(config=config, server_state=ServerState(), app_state={})
    connection.connection_made(transport)
    for chunk in chunks:
        if not transport.is_closed:
            connection.data_received(chunk)


def test_process_without_server_urls_is_refused_with_advice(server_settings: Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DATABASE_URL")

    with pytest.raises(InvalidSettings, match=r"DATABASE_URL.*easel up"):
        environment(Settings())


@pytest.mark.parametrize("address", ["0.0.0.0", "192.168.0.7", "::", "example.org"])
def test_flower_on_another_address_than_localhost_needs_a_password(
    server_settings: Settings, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("FLOWER_BASIC_AUTH", raising=False)
    settings.load.cache_clear()

    with pytest.raises(SystemExit) as ended:
        main(["flower", "--address", address])

    assert ended.value.code == 2
    assert "FLOWER_BASIC_AUTH" in capsys.readouterr().err


def test_flower_on_localhost_needs_no_password_and_gets_further_arguments(
    server_settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    programs: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda _, program, __: programs.append(program))
    settings.load.cache_clear()

    with pytest.raises(SystemExit):
        main(["flower", "--port", "5556", "--persistent=true"])

    settings.load.cache_clear()
    assert programs[0][-3:] == ["--address=127.0.0.1", "--port=5556", "--persistent=true"]


def test_flower_that_is_not_installed_is_refused_with_the_extra_that_has_it(
    server_settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(processes, "find_spec", lambda name: None)
    settings.load.cache_clear()

    with pytest.raises(SystemExit) as ended:
        main(["flower"])

    assert ended.value.code == 2
    assert "easel[flower]" in capsys.readouterr().err


def restart_until(child: ChildProcess, starts: int) -> None:
    """Restart a child until it has been started `starts` times and has ended again."""
    deadline = time.monotonic() + TIMEOUT
    while child.starts < starts or child.is_running:
        assert time.monotonic() < deadline
        child.ensure_running()
        time.sleep(0.005)


def test_child_that_ends_is_restarted_and_has_its_own_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    child = ChildProcess(
        "worker", [sys.executable, "-c", "print('here')"], os.environ, tmp_path / "logs" / "worker.log"
    )

    restart_until(child, 2)

    assert child.log.read_text() == "here\nhere\n"
    assert child.log.stat().st_mode & 0o777 == 0o600
    assert "the worker exited with code 0 and is restarted" in capsys.readouterr().err


def restart_delays(child: ChildProcess, count: int, *, lasting: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the delays before `count` restarts, on a fake clock, if the child runs `lasting` seconds each time."""
    now, delays = 1000.0, list[float]()
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: now)
    child.ensure_running()
    for _ in range(count):
        assert child._process is not None
        child._process.wait(TIMEOUT)
        now += lasting
        ended, starts = now, child.starts
        while child.starts == starts:
            child.ensure_running()
            now += 0.05
        delays.append(round(now - 0.05 - ended, 2))
    return delays


def test_repeatedly_killed_child_is_restarted_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    killed = ChildProcess("worker", ["/bin/sh", "-c", "kill -9 $$"], os.environ, tmp_path / "worker.log")

    delays = restart_delays(killed, 8, lasting=0.5, monkeypatch=monkeypatch)

    assert max(delays) <= 0.3
    assert "the worker was killed by signal 9" in capsys.readouterr().err
    killed.raise_if_failing()


def test_child_that_ends_after_it_came_up_is_restarted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    child = ChildProcess("worker", ["/bin/sh", "-c", "exit 1"], os.environ, tmp_path / "worker.log")

    assert max(restart_delays(child, 8, lasting=6.0, monkeypatch=monkeypatch)) <= 0.3


def test_child_that_requests_a_restart_is_restarted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    child = ChildProcess("sweeper", ["/bin/sh", "-c", "exit 75"], os.environ, tmp_path / "sweeper.log")

    assert max(restart_delays(child, 8, lasting=0.5, monkeypatch=monkeypatch)) <= 0.3


def test_child_that_fails_to_start_is_retried_at_growing_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    failing = ChildProcess("worker", ["/bin/sh", "-c", "exit 1"], os.environ, tmp_path / "worker.log")

    delays = restart_delays(failing, 8, lasting=0.5, monkeypatch=monkeypatch)

    assert delays == sorted(delays)
    assert delays[0] < 0.5
    assert 4.9 < delays[-1] < 5.2
    failing._process = None
    with pytest.raises(ExecutorError, match="does not start"):
        failing.raise_if_failing()


def test_child_that_never_starts_is_reported_with_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor, "MIN_PAUSE", 0.01)
    child = ChildProcess(
        "api", [sys.executable, "-c", "raise SystemExit('no such port')"], os.environ, tmp_path / "api.log"
    )

    child.raise_if_failing()
    restart_until(child, 3)
    child.ensure_running()  # notices that it ended a third time

    with pytest.raises(ExecutorError, match="no such port"):
        child.raise_if_failing()


def test_child_stops_on_request(tmp_path: Path):
    waiting = "import sys, time; print('up', flush=True); time.sleep(60)"
    child = ChildProcess("worker", [sys.executable, "-c", waiting], os.environ, tmp_path / "worker.log")
    child.ensure_running()

    child.stop()

    assert not child.is_running


def test_port_in_use_is_refused_with_advice():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        with pytest.raises(Conflict, match="--port"):
            free_port("127.0.0.1", listener.getsockname()[1])

    assert free_port("127.0.0.1", 0) > 0


def test_port_that_a_stopping_api_still_holds_is_awaited():
    with socket.socket() as old_listener:
        old_listener.bind(("127.0.0.1", 0))
        old_listener.listen()
        port = old_listener.getsockname()[1]
        release = threading.Timer(0.1, old_listener.close)
        release.start()

        assert free_port("127.0.0.1", port, wait=TIMEOUT) == port


def test_up_detects_whether_the_previous_up_was_killed(tmp_path: Path):
    with home.lock_home(tmp_path) as first:
        first.write(home.Up("http://here", 1, "token", "postgresql://h/d", "redis://h/0"))
        state_file = (tmp_path / home.STATE_FILE).read_bytes()
    with home.lock_home(tmp_path) as after_an_end_in_order:
        pass
    (tmp_path / home.STATE_FILE).write_bytes(state_file)
    with home.lock_home(tmp_path) as after_a_kill:
        pass

    assert [it.was_killed for it in (first, after_an_end_in_order, after_a_kill)] == [False, False, True]


def test_the_doctor_counts_connections_before_the_database_refuses_them(server_settings: Settings):
    enough = server_settings.worker_pool + 1 + server_settings.api_pool + 4 + server_settings.scheduler_threads + 2 + 10

    assert connections(enough, server_settings).level is Level.OK
    too_few = connections(enough - 1, server_settings)
    assert too_few.level is Level.FAIL
    assert f"max_connections to {enough}" in too_few.advice


def test_doctor_warns_of_clock_skew_and_of_a_secret_key_that_is_not_shared(server_settings: Settings):
    assert clocks(timedelta(seconds=-1)).level is Level.OK
    assert clocks(timedelta(seconds=-3)).level is Level.WARN
    assert secret_key(server_settings).level is Level.WARN
    assert secret_key(server_settings.model_copy(update={"database_url": None})).level is Level.OK


def test_up_assigns_a_metrics_port_to_each_process() -> None:
    assert metrics_ports(Settings(metrics_port=9100)) == {"worker": 9100, "scheduler": 9101, "sweeper": 9102}
    assert metrics_ports(Settings(metrics_port=None)) == {}


def test_up_refuses_metrics_ports_beyond_the_highest_port() -> None:
    assert metrics_ports(Settings(metrics_port=65533))["sweeper"] == 65535
    with pytest.raises(InvalidRequest, match="Use a port up to 65533"):
        metrics_ports(Settings(metrics_port=65534))


def test_version_option_shows_the_release(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"easel {VERSION}\n"
