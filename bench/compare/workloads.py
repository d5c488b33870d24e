"""The workloads W1 to W6: their work, figures and targets.

W1  20 nodes in a row, one run at a time          time of a hop
W2  200 runs of 20 nodes at once                  nodes per second
W3  one node, 1000 branches, their join           nodes per second
W4  1000 nodes in a row, also behind 1 MB         whether late nodes cost more than early ones
W5  200 branches that wait 100 ms                 how many waits run at the same time
W6  50 runs of 20 nodes of 50 ms, kill -9 at 40 % lost runs, repeated nodes, and the longest stall
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from bench.compare.counters import CostCounters, cost_per_node
from bench.compare.processes import Deadline
from bench.compare.side import MODES, RunWork, Side

TIMEOUT = 60.0  # seconds without the end of a run or an event
DOWN_TIME = 1.0  # seconds between kill and restart
KILL_AT = 0.4  # share of all nodes
POLL_INTERVAL = 0.02  # seconds
SETTLE_TIME = 0.3  # seconds before a measurement, so that the previous one has finished its clean-up

Figures: TypeAlias = Mapping[str, float]
"""Figures by name; cpu_ms, transactions, wal and commands are per node."""


class Incomplete(Exception):
    """Raised when a side has not completed the work in time, so that there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class FigureTarget:
    """A limit for a figure, or for its ratio to the control's figure."""

    limit: float
    is_ratio: bool = True
    is_minimum: bool = False  # whether the limit is a minimum; else it is a maximum

    def is_met(self, found: float) -> bool:
        """Whether a ratio, or a figure, meets the target."""
        return found >= self.limit if self.is_minimum else found <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.is_minimum else '≤'} {self.limit:g}{' ×' if self.is_ratio else ''}"


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A row of the table: a figure, its title and its target."""

    figure: str
    title: str
    target: FigureTarget | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload: the work, the function that measures it, and its rows in the table."""

    name: str
    title: str
    work: RunWork
    measure: Callable[[Side, CostCounters], Figures]
    rows: Sequence[FigureRow]
    is_crash: bool = False


@dataclass
class WorkloadResult:
    """A workload and its figures; a repetition has the same index in the lists of both sides."""

    workload: Workload
    figures: dict[str, list[Figures]] = field(default_factory=lambda: defaultdict[str, list[Figures]](list))
    problem: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether there are figures of all sides to compare."""
        return not self.problem and bool(self.modes) and all(self.figures[mode] for mode in self.modes)

    @property
    def modes(self) -> Sequence[str]:
        """The modes of Easel that were measured, in the order of their columns."""
        return [mode for mode in MODES if mode in self.figures]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the workloads. The targets are for the full size."""

    alone: int = 30  # runs of W1
    chain: int = 20
    runs: int = 200
    width: int = 1000
    steps: int = 1000
    waiting: int = 200
    crashed: int = 50


FULL = Sizes()
QUICK = Sizes(alone=3, chain=6, runs=5, width=20, steps=40, waiting=20, crashed=5)


def build_workloads(sizes: Sizes) -> Mapping[str, Workload]:
    """Return all workloads by name."""
    chain, fan = RunWork(sizes.chain), RunWork(sizes.width, is_fan=True)
    steps, large = RunWork(sizes.steps), RunWork(sizes.steps, has_large_output=True)
    waiting, crash = RunWork(sizes.waiting, is_fan=True, wait_ms=100), RunWork(sizes.chain, wait_ms=50)
    growth = (
        FigureRow("growth", "last / first hundred steps", FigureTarget(1.1, is_ratio=False)),
        FigureRow("bytes_per_step", "PostgreSQL bytes a step", FigureTarget(2560, is_ratio=False)),
        FigureRow("kept_per_step", "of them not free again after a vacuum"),
        FigureRow("step_ms", "ms a step"),
    )
    known = (
        Workload(
            "W1", f"{sizes.chain} nodes in a row, alone", chain, _measure_one_at_a_time(chain, sizes.alone),
            (FigureRow("hop_ms", "hop p50, ms", FigureTarget(1.3)), FigureRow("hop_ms_p99", "hop p99, ms")),
        ),
        Workload(
            "W2", f"{sizes.runs} runs of {sizes.chain} nodes", chain, _measure_at_once(chain, sizes.runs),
            (
                FigureRow("nodes_per_s", "nodes/s", FigureTarget(1.0, is_minimum=True)),
                FigureRow("cpu_ms", "CPU ms per node", FigureTarget(1.3)),
            ),
        ),
        Workload(
            "W3", f"1 → {sizes.width} → join", fan, _measure_at_once(fan, 1),
            (FigureRow("nodes_per_s", "nodes/s", FigureTarget(1.3, is_minimum=True)),),
        ),
        Workload("W4", f"{sizes.steps} nodes in a row", steps, _measure_growth(steps), growth),
        Workload("W4-1MB", f"{sizes.steps} nodes behind one of 1 MB", large, _measure_growth(large), growth),
        Workload(
            "W5", f"1 → {sizes.waiting} × 100 ms → join", waiting, _measure_at_once(waiting, 1),
            (FigureRow("seconds", "s", FigureTarget(0.7)),),
        ),
        Workload(
            "W6", f"{sizes.crashed} runs of {sizes.chain} × 50 ms, kill -9", crash, _measure_kill(crash, sizes.crashed),
            (
                FigureRow("lost", "runs lost", FigureTarget(0, is_ratio=False)),
                FigureRow("twice", "nodes committed twice", FigureTarget(0, is_ratio=False)),
                FigureRow("stall_s", "longest stall, s"),
                FigureRow("after_kill_s", "s from the kill to the end"),
            ),
            is_crash=True,
        ),
    )  # fmt: skip
    return {each.name: each for each in known}


def _measure_one_at_a_time(work: RunWork, runs: int) -> Callable[[Side, CostCounters], Figures]:
    def measure(side: Side, counters: CostCounters) -> Figures:
        hop_ms: list[float] = []

        def go() -> Sequence[str]:
            names: list[str] = []
            for _ in range(runs):
                began = time.monotonic()
                names += (new := side.start_runs(work, 1))
                _await_all(side, new)
                hop_ms.append(1000 * (time.monotonic() - began) / work.nodes)
            return names

        figures, _ = _measure_runs(side, counters, work, go)
        return {**figures, "hop_ms": statistics.median(hop_ms), "hop_ms_p99": _quantile(hop_ms, 0.99)}

    return measure


def _measure_at_once(work: RunWork, runs: int) -> Callable[[Side, CostCounters], Figures]:
    def measure(side: Side, counters: CostCounters) -> Figures:
        figures, _ = _measure_runs(side, counters, work, lambda: _run_all(side, work, runs))
        return figures

    return measure


def _measure_growth(work: RunWork) -> Callable[[Side, CostCounters], Figures]:
    part = min(100, work.size // 3)

    def measure(side: Side, counters: CostCounters) -> Figures:
        counters.rewrite_tables()
        before = counters.table_bytes()
        figures, names = _measure_runs(side, counters, work, lambda: _run_all(side, work, 1))
        grown = counters.table_bytes() - before
        counters.rewrite_tables()
        retained = counters.table_bytes() - before
        moments = side.commit_times(names)
        first = (moments[part] - moments[0]) / part
        last = (moments[-1] - moments[-1 - part]) / part
        return {
            **figures,
            "growth": last / first,
            "first_ms": 1000 * first,
            "last_ms": 1000 * last,
            "step_ms": 1000 * figures["seconds"] / work.nodes,
            "bytes_per_step": grown / work.nodes,
            "kept_per_step": retained / work.nodes,
        }

    return measure


def _measure_kill(work: RunWork, runs: int) -> Callable[[Side, CostCounters], Figures]:
    def measure(side: Side, counters: CostCounters) -> Figures:
        nodes = runs * work.nodes
        before, began = counters.snapshot(side.sessions), time.monotonic()
        names = side.start_runs(work, runs)
        deadline = Deadline(TIMEOUT, f"{side.name} makes no progress.")
        while len(side.commit_times(names)) < KILL_AT * nodes:
            deadline.check()
            time.sleep(POLL_INTERVAL)
        cpu = counters.snapshot(side.sessions).cpu  # before the kill: the kernel forgets ended processes
        side.kill()
        killed = time.monotonic()
        time.sleep(DOWN_TIME)
        again = counters.snapshot(())
        side.restart()
        finished = side.await_end(names, TIMEOUT / 2)
        after, ended = counters.snapshot(side.sessions), time.monotonic()
        moments = side.commit_times(names)
        costs = cost_per_node(before, after, nodes)
        return {
            "seconds": ended - began,
            "finished": finished,
            "lost": runs - finished,
            "missing_nodes": nodes - len(moments),
            "twice": side.count_committed_twice(names),
            "stall_s": max(later - earlier for earlier, later in pairwise(moments)),
            "after_kill_s": ended - killed,
            "cpu_ms": 1000 * (cpu - before.cpu + after.cpu - again.cpu) / nodes,
            "transactions": costs.transactions,
            "wal": costs.wal,
            "commands": costs.commands,
        }

    return measure


def _measure_runs(
    side: Side, counters: CostCounters, work: RunWork, go: Callable[[], Sequence[str]]
) -> tuple[Figures, Sequence[str]]:
    """Run `go`; return time and cost of its runs, and their names. Raises Incomplete unless all nodes are done."""
    time.sleep(SETTLE_TIME)
    before, began = counters.snapshot(side.sessions), time.monotonic()
    names = go()
    seconds = time.monotonic() - began
    after = counters.snapshot(side.sessions)
    nodes, done = len(names) * work.nodes, len(side.commit_times(names))
    if done != nodes:
        raise Incomplete(f"{side.name} has completed {done} of {nodes} nodes.")
    costs = cost_per_node(before, after, nodes)
    figures = {
        "seconds": seconds,
        "nodes_per_s": nodes / seconds,
        "cpu_ms": costs.cpu_ms,
        "transactions": costs.transactions,
        "wal": costs.wal,
        "commands": costs.commands,
    }
    return figures, names


def _run_all(side: Side, work: RunWork, runs: int) -> Sequence[str]:
    names = side.start_runs(work, runs)
    _await_all(side, names)
    return names


def _await_all(side: Side, names: Sequence[str]) -> None:
    finished = side.await_end(names, TIMEOUT)
    if finished < len(names):
        raise Incomplete(f"{side.name} has finished {finished} of {len(names)} runs and makes no more progress.")


def _quantile(values: Sequence[float], part: float) -> float:
    """Return the quantile of values; `part` is from 0 to 1."""
    return sorted(values)[min(len(values) - 1, round(part * (len(values) - 1)))]
