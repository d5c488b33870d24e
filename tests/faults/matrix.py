"""Every point at which a process can stop, in every program that passes it, by SIGKILL or SIGSTOP.

A cell: runs continue, one process stops itself at the point, and another replaces it; all runs must succeed. A process
that was stopped by SIGSTOP continues when all runs are over, and must change nothing.
"""

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import httpx2
import redis

from scheduler.messaging.celery_app import RUNS as RUNS_QUEUE
from scheduler.messaging.celery_app import START
from store.primitives.ids import new_id
from tests.faults.cluster import Cluster, is_stopped
from tests.faults.critical_points import POINTS, SIGNALS, Stop
from tests.faults.easel_up import data_of
from tests.faults.table import Tally

RUNS = 6
TIMEOUT = 90.0  # seconds for anything that must happen; the stall itself is measured
MAX_PASSAGE = 4  # the highest number of the passage at which a process stops
NO_INLINE_ADVANCE = {"EASEL_INLINE_ADVANCE": "0"}  # so that schedulers advance
TRUSTING_SWEEPER = {"FAULT_TRUST": "1"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the matrix."""

    program: str
    point: str
    how: signal.Signals

    def __str__(self) -> str:
        return f"{self.program} {self.point}, {self.how.name}"


CELLS = [
    Cell(program, point, how) for program, points in POINTS.items() for point in points for how in SIGNALS.values()
]


def sample(count: int, seed: int) -> list[Cell]:
    """Choose some cells: at least one of each program, half of them with each signal."""
    rng = random.Random(seed)
    programs = list(POINTS)
    cells: list[Cell] = []
    while len(cells) < count:
        program, how = programs[len(cells) % len(programs)], list(SIGNALS.values())[len(cells) // len(programs) % 2]
        cell = Cell(program, rng.choice(POINTS[program]), how)
        if cell not in cells:
            cells.append(cell)
    return cells


def run_cell(cluster: Cluster, cell: Cell, seed: int) -> tuple[Tally, list[str]]:
    """Run a cell; return the tally of its runs and a line per problem."""
    nth = random.Random(f"{seed} {cell}").randint(1, 2 if cell.point == "at a renewal" else MAX_PASSAGE)
    cluster.start_new_test()
    if cell.point == "at a renewal":  # a run that ends before it has nothing to renew
        cluster.external.hold_answers()
    try:
        return _run_armed(cluster, cell, Stop(cell.point, nth, cell.how))
    finally:
        cluster.external.release_answers()
        cluster.kill_temporary_processes()


def _run_armed(cluster: Cluster, cell: Cell, stop: Stop) -> tuple[Tally, list[str]]:
    started = {"worker": _worker, "scheduler": _scheduler, "sweeper": _sweeper, "api": _api}[cell.program]
    steps = iter(started(cluster, stop))
    victim = next(steps)
    stopped_at = cluster.wait_until_stopped(victim, TIMEOUT)
    cluster.external.release_answers()
    for _ in steps:  # another process replaces it
        pass
    cluster.wait_until_all_succeeded(RUNS, seconds=TIMEOUT)
    if cell.how is signal.SIGSTOP:
        victim.send_signal(signal.SIGCONT)
        cluster.terminate(victim)
        try:
            victim.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            tally, wrong = cluster.tally(RUNS, stopped_at)
            return tally, [*wrong, "it did not end at SIGTERM after SIGCONT"]
    tally, wrong = cluster.tally(RUNS, stopped_at)
    tally.kills = 1
    return tally, wrong


# -- processes of a cell ----------------------------------------------------------------------------------------------
def _worker(cluster: Cluster, stop: Stop) -> Iterator[subprocess.Popen[bytes]]:
    _reset(cluster)
    cluster.ensure_running("sweeper", **TRUSTING_SWEEPER)
    yield cluster.start("worker", FAULT_STOP=str(stop))
    cluster.ensure_running("worker")


def _scheduler(cluster: Cluster, stop: Stop) -> Iterator[subprocess.Popen[bytes]]:
    _reset(cluster, starts_runs="start" not in stop.point)
    cluster.ensure_running("sweeper", **TRUSTING_SWEEPER)
    victim = cluster.start("scheduler", FAULT_STOP=str(stop))
    cluster.start("worker", **NO_INLINE_ADVANCE)
    if "start" not in stop.point:
        yield victim
        cluster.start("scheduler")
    else:
        ids = [new_id() for _ in range(RUNS)]
        _send_starts(cluster, ids)
        yield victim
        cluster.start("scheduler")
        _send_starts(cluster, ids)  # as a service that found no such run; it starts one run only


def _sweeper(cluster: Cluster, stop: Stop) -> Iterator[subprocess.Popen[bytes]]:
    _reset(cluster)
    cluster.ensure_stopped("sweeper")
    victim = cluster.start("sweeper", FAULT_STOP=str(Stop(stop.point, 1, stop.how)), **TRUSTING_SWEEPER)
    lost = cluster.start("worker", FAULT_STOP="at work, 2, SIGKILL")
    cluster.wait_until_stopped(lost, TIMEOUT)
    if "task message" in stop.point or "repair" in stop.point:
        with redis.Redis.from_url(cluster.redis_url) as client:
            client.flushdb()
    cluster.ensure_running("worker")
    yield victim
    cluster.ensure_running("sweeper", **TRUSTING_SWEEPER)


def _api(cluster: Cluster, stop: Stop) -> Iterator[subprocess.Popen[bytes]]:
    _reset(cluster, starts_runs=False)
    cluster.ensure_running("sweeper", **TRUSTING_SWEEPER)
    cluster.ensure_running("worker")
    first, second = 22000 + random.randrange(4000), 27000 + random.randrange(4000)
    victim = cluster.start("api", str(first), FAULT_STOP=str(stop))
    cluster.start("api", str(second))
    for number in range(RUNS):
        _post(cluster, number, first, second, victim)
    yield victim


def _reset(cluster: Cluster, *, starts_runs: bool = True) -> None:
    """Stop the worker and empty its queue; optionally start runs."""
    cluster.ensure_stopped("worker")
    with redis.Redis.from_url(cluster.redis_url) as client:
        client.flushdb()
    if starts_runs:
        cluster.start_runs(RUNS)


def _send_starts(cluster: Cluster, ids: list[UUID]) -> None:
    for number, run_id in enumerate(ids):
        arguments = (str(cluster.tenant_id), str(run_id), str(cluster.canvas_id))
        cluster.app.send_task(START, args=arguments, kwargs={"query": cluster.question(number)}, queue=RUNS_QUEUE)


def _post(cluster: Cluster, number: int, first: int, second: int, victim: subprocess.Popen[bytes]) -> None:
    """Start a run as a careful client does: with a key, and from another process if the first does not answer."""
    headers = {
        "Authorization": f"Bearer {cluster.token}",
        "Idempotency-Key": f"run {number}",
        "X-Http-Status": "strict",
    }
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        port = second if victim.poll() is not None or is_stopped(victim.pid) else first
        try:
            reply = httpx2.post(
                f"http://127.0.0.1:{port}/api/v1/agents/{cluster.canvas_id.hex}/runs",
                json={"query": cluster.question(number)},
                headers=headers,
                timeout=3,
            )
            if reply.status_code == 202:
                assert data_of(reply)["run_id"]
                return
            assert reply.status_code >= 500, reply.text
        except httpx2.HTTPError:  # not there yet, or not any more
            time.sleep(0.1)
    raise AssertionError(f"no process has accepted run {number}\n{cluster.logs()}")
