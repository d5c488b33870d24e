"""Ten thousand schedules: whatever is killed, stopped, lost, doubled or delayed, promises are kept."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from tests.simulator.__main__ import chunk, replay
from tests.simulator.schedule import Schedule, playing

SCHEDULES = 10_000
CHUNKS = 20
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("part", range(CHUNKS))
def test_whatever_goes_wrong_nothing_is_lost_and_nothing_is_done_twice(part: int):
    size = SCHEDULES // CHUNKS

    _, broken = chunk((part * size, size))

    assert not broken, "\n".join(broken)


def test_a_seed_names_one_schedule_in_every_process():
    asked = [sys.executable, "-m", "tests.simulator", "--seed", "11"]

    told = [
        subprocess.run(asked, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, check=True)
        for salt in ("1", "2")
    ]

    assert told[0].stdout == told[1].stdout
    assert told[0].stdout.count(b"\n") > 50


def test_a_schedule_that_has_ended_is_freed():
    with playing():
        schedule = Schedule(7)
        schedule.play()
    world = weakref.ref(schedule.world)

    del schedule
    with playing():
        Schedule(8).play()
    gc.collect()

    assert world() is None


def test_a_schedule_can_be_replayed_with_its_trace(capsys: pytest.CaptureFixture[str]):
    assert replay(13) == 0

    told = capsys.readouterr().out
    assert "receives worker.execute" in told
    assert "seed 13: everything held" in told
