"""Every point at which a process can stop, by every program that passes it, killed or standing still.

A cell: runs go on, one process stops itself at the point, another takes its place; all runs end as if nothing had
happened. One that stood still is let go on when everything is over, and must change nothing any more.
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
from tests.faults.easel_up import data_of
from tests.faults.points import HOW, POINTS, Stop
from tests.faults.table import Tally

RUNS = 6
PATIENCE = 90.0  # seconds for anything that must happen; the stall itself is measured
LATEST = 4  # how manieth passage of a point is the last, at most
ALONE = {"EASEL_INLINE_ADVANCE": "0"}  # so that schedulers fold
TRUSTING = {"FAULT_TRUST": "1"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One of the matrix."""

    program: str
    point: str
    how: signal.Signals

    def __str__(self) -> str:
        return f"{self.program} {self.point}, {self.how.name}"


CELLS = [Cell(program, point, how) for program, points in POINTS.items() for point in points for how in HOW.values()]


def sample(count: int, seed: int) -> list[Cell]:
    """Some cells, of each program at least one, half of them of each signal."""
    chance = random.Random(seed)
    programs = list(POINTS)
    found: list[Cell] = []
    while len(found) < count:
        program, how = programs[len(found) % len(programs)], list(HOW.values())[len(found) // len(programs) % 2]
        cell = Cell(program, chance.choice(POINTS[program]), how)
        if cell not in found:
            found.append(cell)
    return found


def run_cell(cluster: Cluster, cell: Cell, seed: int) -> tuple[Tally, list[str]]:
    """Carry out a cell; what came of its runs, and what was wrong."""
    nth = random.Random(f"{seed} {cell}").randint(1, 2 if cell.point == "at a renewal" else LATEST)
    cluster.renew()
    try:
        return _carried_out(cluster, cell, Stop(cell.point, nth, cell.how))
    finally:
        cluster.kill_what_is_not_steady()


def _carried_out(cluster: Cluster, cell: Cell, stop: Stop) -> tuple[Tally, list[str]]:
    started = {"worker": _worker, "scheduler": _scheduler, "sweeper": _sweeper, "api": _api}[cell.program]
    disturbed = iter(started(cluster, stop))
    doomed = next(disturbed)
    at = cluster.wait_until_stopped(doomed, PATIENCE)
    for _ in disturbed:  # another takes its place
        pass
    cluster.wait_until_all_have_succeeded(RUNS, seconds=PATIENCE)
    if cell.how is signal.SIGSTOP:
        doomed.send_signal(signal.SIGCONT)
        cluster.tell_to_go(doomed)
        try:
            doomed.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            tally, wrong = cluster.tally(RUNS, at)
            return tally, [*wrong, "told to go after it had stood still, it stayed"]
    tally, wrong = cluster.tally(RUNS, at)
    tally.kills = 1
    return tally, wrong


# -- who is there, who stops, and who takes its place ----------------------------------------------------------------
def _worker(cluster: Cluster, stop: Stop) -> Iterator[subprocess.Popen[bytes]]:
    _clear(cluster)
    cluster.have("sweeper", **TRUSTING)
    yield cluster.start("worker", FAULT_STOP=str(stop))
    cluster.have("worker")


def _scheduler(cluster: Cluster, stop: Stop) -> Iterator[subprocess.Popen[bytes]]:
    _clear(cluster, begins="start" not in stop.point)
    cluster.have("sweeper", **TRUSTING)
    doomed = cluster.start("scheduler", FAULT_STOP=str(stop))
    cluster.start("worker", **ALONE)
    if "start" not in stop.point:
        yield doomed
        cluster.start("scheduler")
    else:
        ids = [new_id() for _ in range(RUNS)]
        _send_starts(cluster, ids)
        yield doomed
        cluster.start("scheduler")
        _send_starts(cluster, ids)  # as a service does that found no such run: sending it twice starts one


def _sweeper(cluster: Cluster, stop: Stop) -> Iterator[subprocess.Popen[bytes]]:
    _clear(cluster)
    cluster.have_no("sweeper")
    doomed = cluster.start("sweeper", FAULT_STOP=str(Stop(stop.point, 1, stop.how)), **TRUSTING)
    lost = cluster.start("worker", FAULT_STOP="at work, 2, SIGKILL")
    cluster.wait_until_stopped(lost, PATIENCE)
    if "hint" in stop.point or "repair" in stop.point:
        with redis.Redis.from_url(cluster.redis_url) as client:
            client.flushdb()
    cluster.have("worker")
    yield doomed
    cluster.have("sweeper", **TRUSTING)


def _api(cluster: Cluster, stop: Stop) -> Iterator[subprocess.Popen[bytes]]:
    _clear(cluster, begins=False)
    cluster.have("sweeper", **TRUSTING)
    cluster.have("worker")
    first, second = 22000 + random.randrange(4000), 27000 + random.randrange(4000)
    doomed = cluster.start("api", str(first), FAULT_STOP=str(stop))
    cluster.start("api", str(second))
    for number in range(RUNS):
        _post(cluster, number, first, second, doomed)
    yield doomed


def _clear(cluster: Cluster, *, begins: bool = True) -> None:
    """No worker, nothing in its queue; maybe runs that wait for one."""
    cluster.have_no("worker")
    with redis.Redis.from_url(cluster.redis_url) as client:
        client.flushdb()
    if begins:
        cluster.begin(RUNS)


def _send_starts(cluster: Cluster, ids: list[UUID]) -> None:
    for number, run_id in enumerate(ids):
        asked = (str(cluster.tenant_id), str(run_id), str(cluster.canvas_id))
        cluster.app.send_task(START, args=asked, kwargs={"query": cluster.question(number)}, queue=RUNS_QUEUE)


def _post(cluster: Cluster, number: int, first: int, second: int, doomed: subprocess.Popen[bytes]) -> None:
    """Start a run as a careful client does: with a key, and from another process if the first does not answer."""
    headers = {
        "Authorization": f"Bearer {cluster.token}",
        "Idempotency-Key": f"run {number}",
        "X-Http-Status": "strict",
    }
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        port = second if doomed.poll() is not None or is_stopped(doomed.pid) else first
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
    raise AssertionError(f"nobody has accepted run {number}\n{cluster.logs()}")
