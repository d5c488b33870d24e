"""A comparison: the control and Easel run each workload in turn, because the speed of a machine varies."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg
import redis

from bench.compare.control_side import ControlSide
from bench.compare.counters import CostCounters
from bench.compare.easel_side import EaselSide
from bench.compare.servers import run_comparison_servers
from bench.compare.side import EASEL, Side
from bench.compare.workloads import Incomplete, Workload, WorkloadResult

WARM_UP_RUNS, WARM_UP_SIZE = 4, 5
WARM_UP_TIMEOUT = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """All sides, and the counters of their costs."""

    sides: Sequence[Side]
    counters: CostCounters

    def run(
        self, workloads: Sequence[Workload], repetitions: int, report: Callable[[str], None]
    ) -> list[WorkloadResult]:
        """Measure all workloads `repetitions` times; a workload that a side cannot complete is skipped from then on.

        `report` is called with a line of progress before each workload.
        """
        played = [WorkloadResult(workload) for workload in workloads]
        for number in range(repetitions):
            for one in played:
                if not one.problem:
                    report(f"{one.workload.name} ({number + 1} of {repetitions})")
                    self._run_once(one)
        return played

    def _run_once(self, one: WorkloadResult) -> None:
        workload = one.workload
        for side in self.sides:
            try:
                side.start(workload.work, is_safe=workload.is_crash)
                self._warm_up(side, workload)
                one.figures[side.name].append(workload.measure(side, self.counters))
                if len(self.sides) > 2:
                    side.pause()
            except (Incomplete, TimeoutError) as problem:
                one.problem = str(problem)
                return

    def _warm_up(self, side: Side, workload: Workload) -> None:
        """Do some small runs of the same kind, so that imports and first query plans are not measured."""
        small = replace(workload.work, size=WARM_UP_SIZE, has_large_output=False)
        side.start(small, is_safe=workload.is_crash)
        side.await_end(side.start_runs(small, WARM_UP_RUNS), WARM_UP_TIMEOUT)


@contextmanager
def open_comparison(
    database_url: str | None, redis_url: str | None, workers: int, modes: Sequence[str] = (EASEL,)
) -> Generator[Comparison]:
    """Start servers for the control and for Easel in each mode; stop all when the block ends.

    Call it from the main thread, because the processes end with the thread that starts them.
    """
    with (
        run_comparison_servers(database_url, redis_url) as place,
        psycopg.connect(place.psycopg_database_url, autocommit=True) as postgres,
        redis.Redis.from_url(place.redis_url, socket_timeout=None) as broker,
    ):
        sides: list[ControlSide | EaselSide] = []
        try:
            sides.append(ControlSide(place, postgres, broker))
            for mode in modes:
                sides.append(EaselSide(place, postgres, broker, workers, mode))
            yield Comparison(sides, CostCounters(postgres, broker))
        finally:
            for side in sides:
                side.stop()
