"""Metrics of processes, each on a port of its own, and the first line of their logs."""

import json
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import telemetry
from cli.server import checks
from cli.server.checks import Level
from settings import Settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def port() -> Iterator[int]:
    """Yield a port that is in use while the next one is free."""
    for _ in range(100):
        with socket.create_server(("127.0.0.1", 0)) as in_use, socket.socket() as next_one:
            first = in_use.getsockname()[1]
            try:
                next_one.bind(("127.0.0.1", first + 1))
            except (OSError, OverflowError):
                continue
            next_one.close()
            yield first
            return
    pytest.fail("no two ports in a row are free")


def test_metrics_use_the_next_port_if_one_is_in_use(port: int) -> None:
    with capture_logs() as lines:
        chosen = telemetry.serve_metrics(port)

    assert chosen is not None
    assert chosen > port
    assert {"event": "metrics_served", "host": "127.0.0.1", "port": chosen, "log_level": "info"} in lines
    assert b"easel_activations" in page("127.0.0.1", chosen)


def test_metrics_are_served_on_the_configured_address(port: int) -> None:
    chosen = telemetry.serve_metrics(port, "127.0.0.2")

    assert chosen is not None
    assert b"easel_activations" in page("127.0.0.2", chosen)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.3", chosen), timeout=5)


def test_process_continues_without_metrics_if_every_port_is_in_use(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "METRICS_PORTS", 1)

    with capture_logs() as lines:
        chosen = telemetry.serve_metrics(port)

    assert chosen is None
    assert [line["event"] for line in lines] == ["metrics_not_served"]


def test_process_continues_without_metrics_on_a_foreign_address(port: int) -> None:
    with capture_logs() as lines:
        chosen = telemetry.serve_metrics(port + 1, "192.0.2.1")

    assert chosen is None
    assert [line["event"] for line in lines] == ["metrics_not_served"]


def test_doctor_lists_processes_that_serve_metrics(port: int) -> None:
    telemetry.introduce("worker")
    chosen = telemetry.serve_metrics(port)

    finding = checks.metrics(Settings(metrics_port=port))

    assert finding.level is Level.OK
    assert re.search(rf"\w+ {re.escape(telemetry.VERSION)} at 127\.0\.0\.1:{chosen}\b", finding.found)


def test_doctor_warns_if_no_process_serves_metrics(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "METRICS_PORTS", 1)

    finding = checks.metrics(Settings(metrics_port=port + 1))

    assert finding.level is Level.WARN
    assert "EASEL_METRICS_HOST" in finding.advice


def test_first_log_line_of_a_process_has_its_name_and_release() -> None:
    with capture_logs() as lines:
        telemetry.introduce("worker")

    assert lines == [
        {"event": "process_started", "process": "worker", "version": telemetry.VERSION, "log_level": "info"}
    ]


def test_process_warns_of_each_setting_with_a_former_name() -> None:
    with capture_logs() as lines:
        telemetry.introduce("worker", {"EASEL_GRACE": "EASEL_SHUTDOWN_GRACE"})

    assert lines[1:] == [
        {
            "event": "setting_renamed", "setting": "EASEL_GRACE", "use": "EASEL_SHUTDOWN_GRACE", "log_level": "warning"
        }
    ]  # fmt: skip


def test_log_line_of_a_renamed_event_has_its_former_name() -> None:
    program = (
        "import structlog, telemetry; telemetry.configure('info', 'json'); log = structlog.get_logger();"
        "log.warning('run_stalled', run_id='r'); log.info('process_started')"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    first, second = (json.loads(line) for line in ended.stderr.splitlines())
    assert (first["event"], first["formerly"], first["run_id"]) == ("run_stalled", "run_stands_still", "r")
    assert "formerly" not in second


def test_every_renamed_event_is_one_that_the_code_logs() -> None:
    packages = ("api", "cli", "components", "knowledge", "providers", "scheduler", "store", "worker")
    sources = [path.read_text("utf-8") for package in packages for path in (ROOT / package).rglob("*.py")]
    logged = {name for source in sources for name in re.findall(r'"([a-z_]+)"', source)}

    assert set(telemetry.FORMER_EVENTS) - logged == set()
    assert set(telemetry.FORMER_EVENTS.values()) & logged == set()


def test_renamed_metrics_are_shown_under_both_names() -> None:
    telemetry.count_advance(0.004)
    telemetry.count_probe(0.004)

    text = telemetry.metrics_page()[0].decode()

    for name, former in (
        ("easel_advance_seconds", "easel_fold_seconds"),
        ("easel_probe_seconds", "easel_canary_seconds"),
    ):
        assert f"# HELP {former} Deprecated: use {name}" in text
        (count, old_count) = (re.search(rf"^{each}_count (\S+)", text, re.MULTILINE) for each in (name, former))
        assert count
        assert old_count
        assert count[1] == old_count[1] != "0.0"


def page(host: str, port: int) -> bytes:
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as reply:
        return reply.read()
