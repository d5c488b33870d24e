"""`easel bench` runs every workload on both sides and reports it. The figures are not checked."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.compare.workloads import QUICK, build_workloads

SERVERS = ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL")
SHORT_LEASE = {"EASEL_LEASE": "3", "EASEL_RENEW_EVERY": "1"}  # until nodes of killed workers are executed again


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short name that PostgreSQL's user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="easel-bench-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def environment(home: Path) -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if name not in SERVERS and not name.startswith("EASEL_")
    }
    return {**inherited, **SHORT_LEASE, "TMPDIR": str(home), "EASEL_HOME": str(home)}


@pytest.mark.timeout(240)
@pytest.mark.long
def test_quick_bench_reports_every_workload_and_leaves_no_files(short_folder: Path):
    file = short_folder / "figures.json"
    command = [
        sys.executable,
        "-m",
        "cli",
        "bench",
        "--quick",
        "--modes",
        "easel",
        "--workers",
        "1",
        "--json",
        str(file),
    ]

    done = subprocess.run(command, env=environment(short_folder), capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stderr + done.stdout
    workloads = json.loads(file.read_text())["workloads"]
    expected = build_workloads(QUICK)
    assert [each["name"] for each in workloads] == list(expected)
    assert all(len(each["rows"]) == len(expected[each["name"]].rows) for each in workloads)
    assert all(f"| {name} | {each.title}" in done.stdout for name, each in expected.items())
    lost = next(each for each in workloads if each["name"] == "W6")["rows"][0]
    assert (lost["figure"], lost["easel"]) == ("lost", 0)
    assert [path.name for path in short_folder.iterdir()] == [file.name]


def test_bench_refuses_an_unknown_workload_before_it_starts_anything(short_folder: Path):
    command = [sys.executable, "-m", "cli", "bench", "--only", "W1,W9"]

    done = subprocess.run(command, env=environment(short_folder), capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert "W9" in done.stderr
    assert "W4-1MB" in done.stderr
