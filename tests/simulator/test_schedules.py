"""Ten thousand random schedules: the invariants hold under every combination of faults. 2,000 run in every test run."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from tests.simulator.__main__ import chunk, replay
from tests.simulator.schedule import Schedule, patched_modules

SCHEDULES = 10_000
CHUNKS = 20
BRIEF = 4  # chunks in every test run
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[pytest.mark.long] if part >= BRIEF else []) for part in range(CHUNKS)]
)
def test_no_run_is_lost_or_doubled_under_random_faults(part: int):
    size = SCHEDULES // CHUNKS

    _, failures = chunk((part * size, size))

    assert not failures, "\n".join(failures)


def test_seed_gives_the_same_schedule_in_every_process():
    command = [sys.executable, "-m", "tests.simulator", "--seed", "11"]

    output = [
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, check=True)
        for salt in ("1", "2")
    ]

    assert output[0].stdout == output[1].stdout
    assert output[0].stdout.count(b"\n") > 50


def test_finished_schedule_is_garbage_collected():
    with patched_modules():
        schedule = Schedule(7)
        schedule.run()
    simulation = weakref.ref(schedule.simulation)

    del schedule
    with patched_modules():
        Schedule(8).run()
    gc.collect()

    assert simulation() is None


def test_replay_prints_the_trace_of_a_schedule(capsys: pytest.CaptureFixture[str]):
    assert replay(13) == 0

    output = capsys.readouterr().out
    assert "receives worker.execute" in output
    assert "seed 13: everything held" in output
