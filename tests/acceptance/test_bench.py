"""`easel bench` works: every workload is done by both sides and told of. How fast they are is not judged here."""

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
SHORT_LEASE = {"EASEL_LEASE": "3", "EASEL_RENEW_EVERY": "1"}  # what the killed workers' nodes wait for


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short name that PostgreSQL's own user may pass."""
    folder = Path(tempfile.mkdtemp(prefix="easel-bench-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def surroundings(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in SERVERS and not name.startswith("EASEL_")}
    return {**kept, **SHORT_LEASE, "TMPDIR": str(home), "EASEL_HOME": str(home)}


@pytest.mark.timeout(240)
def test_quick_bench_reports_every_workload_and_leaves_no_files(short_folder: Path):
    file = short_folder / "figures.json"
    command = [sys.executable, "-m", "cli", "bench", "--quick", "--workers", "1", "--json", str(file)]

    done = subprocess.run(command, env=surroundings(short_folder), capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stderr + done.stdout
    told = json.loads(file.read_text())["workloads"]
    known = build_workloads(QUICK)
    assert [each["name"] for each in told] == list(known)
    assert all(len(each["rows"]) == len(known[each["name"]].rows) for each in told)
    assert all(f"| {name} | {each.title}" in done.stdout for name, each in known.items())
    lost = next(each for each in told if each["name"] == "W6")["rows"][0]
    assert (lost["figure"], lost["easel"]) == ("lost", 0)
    assert [path.name for path in short_folder.iterdir()] == [file.name]


def test_a_workload_that_is_unknown_is_refused_before_anything_starts(short_folder: Path):
    command = [sys.executable, "-m", "cli", "bench", "--only", "W1,W9"]

    done = subprocess.run(command, env=surroundings(short_folder), capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert "W9" in done.stderr
    assert "W4-1MB" in done.stderr
