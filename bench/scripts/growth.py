"""The cost of a unit of work as the work grows: `python -m bench.scripts.growth [--full] [--only chain,past]`.

Each row of the table is one kind of growth: the cost of a unit at a small size and at a large one. A ratio of 1.0 is
flat; other ratios are explained beside it. It takes two minutes, with `--full` (production sizes) half an hour.
"""

import argparse
import gc
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from bench.fixtures import run_history
from bench.fixtures.growth_engine import (
    CanvasVersion,
    GrowthEngine,
    chain_components,
    component_node,
    fan_components,
    growth_engine,
    iteration_components,
    merge_node,
)
from bench.measuring.cells import format_number
from canvas.document import parsing
from canvas.graph.canvas import compile_canvas
from canvas.ids import ActivationId, CanvasId, LeaseId, RunId
from scheduler.sweeper.maintenance import apply_retention
from store.agents import conversations
from store.db.database import Database
from store.db.pipeline import PREPARE_AFTER_USES
from store.monitoring import sweep_queries
from store.primitives.ids import new_id
from store.runs import activations, events, reports, run_queries, run_rows, scopes, values

END_STEPS = 100  # steps that are compared at both ends of a long run
MS_PER_STEP, STEP_LOCKS, CONNECTION_MEMORY = "ms a step", "locks of a step", "MB of a connection"
COUNT_LOCKS = text("select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'relation'")
COUNT_MEMORY = text("select sum(total_bytes) from pg_backend_memory_contexts")
REPETITIONS = 5  # repetitions of short operations
MASKS_REASON = "sets of nodes are masks with a bit for each of 100 and of 2,000 nodes"


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """One kind of growth: a unit's cost at a small size and at a large one."""

    grows: str
    unit: str
    small: str
    at_small: float
    large: str
    at_large: float
    reason: str = ""  # why the cost may grow

    @property
    def ratio(self) -> float:
        """The cost at the large size divided by that at the small size."""
        return self.at_large / self.at_small if self.at_small else 0.0


GrowthWorkload = Callable[[GrowthEngine, bool], Iterator[GrowthRow]]


def growth_markdown(lines: Sequence[GrowthRow]) -> str:
    """Return the table."""
    rows = ["| grows | unit | from | cost | to | cost | ratio | |", "|---|---|---:|---:|---:|---:|---:|---|"]
    for line in lines:
        cells = (
            line.grows,
            line.unit,
            line.small,
            format_number(line.at_small),
            line.large,
            format_number(line.at_large),
        )
        rows.append(f"| {' | '.join(cells)} | {line.ratio:.2f} | {line.reason} |")
    return "\n".join(rows)


# -- one run ---------------------------------------------------------------------------------------------------------
def measure_chain(growing: GrowthEngine, full: bool) -> Iterator[GrowthRow]:
    """Measure steps in a row in one run."""
    length = 2000 if full else 400
    version = growing.create_version(chain_components(length))
    finished = growing.finish_times(growing.run_to_end(version))
    first = (finished[END_STEPS] - finished[0]) / END_STEPS
    last = (finished[-1] - finished[-1 - END_STEPS]) / END_STEPS
    yield GrowthRow(
        "steps of a run, in a row", "ms a step", "first 100", first * 1000, f"last of {length}", last * 1000
    )


def measure_fan(growing: GrowthEngine, full: bool) -> Iterator[GrowthRow]:
    """Measure nodes side by side with a join."""
    small, large = 100, 2000 if full else 400
    at_small, at_large = (
        growing.run_seconds(growing.run_to_end(growing.create_version(fan_components(width)))) / width
        for width in (small, large)
    )
    yield GrowthRow("nodes side by side", "ms a node", str(small), at_small * 1000, str(large), at_large * 1000)


def measure_items(growing: GrowthEngine, full: bool) -> Iterator[GrowthRow]:
    """Measure items of an Iteration, one after another and eight at a time."""
    small, large = 50, 10_000 if full else 300
    for concurrency, order in ((1, "one after another"), (8, "side by side")):
        version = growing.create_version(iteration_components(concurrency))
        at_small = growing.run_seconds(growing.run_to_end(version, _items(small))) / small
        run_id = growing.run_to_end(version, _items(large))
        yield GrowthRow(
            f"items, {order}", "ms an item", str(small), at_small * 1000, str(large),
            growing.run_seconds(run_id) / large * 1000,
        )  # fmt: skip
        finished = growing.finish_times(run_id)
        tenth = large // 10
        first, last = finished[tenth + 1] - finished[1], finished[-1] - finished[-1 - tenth]
        yield GrowthRow(
            f"items, {order}",
            "ms an item",
            "first tenth",
            first / tenth * 1000,
            f"last of {large}",
            last / tenth * 1000,
        )


def measure_outputs(growing: GrowthEngine, full: bool) -> Iterator[GrowthRow]:
    """Measure large outputs upstream that no node reads, and the cost of storing and reading one."""
    length = 40
    costs: dict[int, tuple[float, float, float]] = {}
    for size in (1 << 10, 64 << 10, 1 << 20, *((10 << 20,) if full else ())):
        repeated = 64
        query = "x" * (size // repeated)
        beside = growing.create_version(chain_components(length, script="text", first="{sys.query}" * repeated))
        reading = growing.create_version(
            chain_components(5, script="{StringTransform:0@result}", first="{sys.query}" * repeated)
        )
        growing.run_to_end(beside, query)
        before, finished = growing.stored_bytes(), growing.finish_times(growing.run_to_end(beside, query))
        stored = (growing.stored_bytes() - before) / length / 1e6  # megabytes, as the others are seconds
        read = growing.finish_times(growing.run_to_end(reading, query))
        costs[size] = ((finished[-1] - finished[0]) / (length - 1), (read[-1] - read[0]) / 4, stored)
    least, *more = sorted(costs)
    for size in more:
        for title, unit, position, because in (
            ("an output upstream that is not read", "ms a step", 0, f"the query is {_format_bytes(size // 64)}"),
            ("an output upstream that is not read", "KB stored a step", 2, "the output itself, over 40 steps"),
            ("an output that every step reads and writes", "ms a step", 1, "proportional to what is read and written"),
        ):
            at_small, at_large = costs[least][position] * 1000, costs[size][position] * 1000
            yield GrowthRow(title, unit, "1 KB", at_small, _format_bytes(size), at_large, because)


# -- a conversation --------------------------------------------------------------------------------------------------
def measure_turns(growing: GrowthEngine, full: bool) -> Iterator[GrowthRow]:
    """Measure turns of one conversation."""
    many = 500 if full else 60
    version = growing.create_version(chain_components(2))
    run_id, conversation = growing.start_run(version)
    growing.await_end(run_id)
    took: list[float] = []
    starts: list[float] = []
    first = run_id
    for _ in range(many):
        began = time.perf_counter()
        run_id, _ = growing.start_run(version, conversation=conversation)
        starts.append(time.perf_counter() - began)
        growing.await_end(run_id)
        took.append(growing.run_seconds(run_id))
    for title, costs in (("ms a turn of two nodes", took), ("ms to start one", starts)):
        yield GrowthRow(
            "turns of a conversation", title, "first 20", min(costs[:20]) * 1000, f"last of {many}",
            min(costs[-20:]) * 1000,
        )  # fmt: skip
    yield GrowthRow(
        "turns of a conversation",
        "bytes a run begins with",
        "1",
        growing.base_bytes(first),
        str(many),
        growing.base_bytes(run_id),
    )


# -- rows in the tables ----------------------------------------------------------------------------------------------
def measure_finished_runs(growing: GrowthEngine, full: bool) -> Iterator[GrowthRow]:
    """Measure operations with many finished runs in the tables, and the retention of old runs."""
    many = 100_000 if full else 5_000
    version = growing.create_version(chain_components(20))
    growing.run_to_end(version)
    little = _measure_operations(growing, version)
    long_ago = datetime.now(UTC) - timedelta(days=60)
    growing.create_partitions(long_ago)
    for at in (long_ago, datetime.now(UTC) - timedelta(minutes=30)):
        run_history.add(growing.database.url, growing.tenant, version.canvas_id, version.id, many, at)
    much = _measure_operations(growing, version)
    for title, small in little.items():
        because = "the reply tells how many there are in all" if "page" in title else ""
        yield GrowthRow("finished runs in the tables", title, "3", small, f"{2 * many:,}", much[title], because)
    rows = many * run_history.NODES
    began = time.perf_counter()
    longest = _measure_retention(growing)
    yield GrowthRow(
        "activations of a week that leaves", "ms in which others wait, at most", "0", 0, f"{rows:,}", longest * 1000,
        f"leaving took {time.perf_counter() - began:.1f} s with their {many:,} conversations",
    )  # fmt: skip


def measure_weeks(growing: GrowthEngine, full: bool) -> Iterator[GrowthRow]:
    """Measure operations with many stored weeks, each of which is a partition of every table."""
    version = growing.create_version(chain_components(20))
    growing.run_to_end(version)
    little = {**_measure_operations(growing, version), **_measure_connection(growing, version)}
    many = 104
    for week in range(1, many + 1):
        growing.create_partitions(datetime.now(UTC) - timedelta(weeks=week))
    growing.database.pruning.invalidate()
    growing.run_to_end(version)
    much = {**_measure_operations(growing, version), **_measure_connection(growing, version)}
    for title, small in little.items():
        names_its_week = title in (MS_PER_STEP, STEP_LOCKS, CONNECTION_MEMORY)
        because = "" if names_its_week else "a query without a run's id reads every week's partition"
        yield GrowthRow("weeks that are kept", title, "1", small, str(many), much[title], because)


def _measure_operations(growing: GrowthEngine, version: CanvasVersion) -> dict[str, float]:
    """Measure common operations."""
    hops = [growing.finish_times(growing.run_to_end(version)) for _ in range(REPETITIONS)]
    tenant, canvas, database, api = growing.tenant, version.canvas_id, growing.database, growing.api
    started: list[RunId] = []

    def start() -> None:
        started.append(growing.start_run(version)[0])

    def page() -> Any:
        with api.transaction() as tx:
            return run_queries.page(tx, tenant)

    def page_without_runs() -> Any:
        with api.transaction() as tx:
            return run_queries.page(tx, tenant, canvas_id=CanvasId(new_id()))

    def sessions() -> Any:
        with api.transaction() as tx:
            return conversations.page(tx, tenant, canvas, conversations.ConversationFilter())

    def sweep() -> None:
        with database.transaction() as tx:
            sweep_queries.expire_leases(tx)
            sweep_queries.redispatch_unclaimed(tx, datetime(1970, 1, 1, tzinfo=UTC))
            sweep_queries.runs_with_unapplied_reports(tx)
            sweep_queries.open_runs(tx)

    to_start = _fastest_ms(start)
    for run_id in started:
        growing.await_end(run_id)
    return {
        MS_PER_STEP: min((run[-1] - run[0]) / (len(run) - 1) for run in hops) * 1000,
        "ms to start a run": to_start,
        "ms a page of runs": _fastest_ms(page),
        "ms a page of a canvas without runs": _fastest_ms(page_without_runs),
        "ms a page of sessions": _fastest_ms(sessions),
        "ms a tick of the sweeper": _fastest_ms(sweep),
    }


def _measure_connection(growing: GrowthEngine, version: CanvasVersion) -> dict[str, float]:
    """Return the locks and memory of a worker's connection after the statements of a step, with prepared plans."""
    run_id = growing.run_to_end(version)
    database = Database(growing.database.url, pool_size=1, generic_plans=True)
    try:
        with database.transaction() as tx:
            for _ in range(PREPARE_AFTER_USES + 1):
                activations.renew(tx, [(run_id, ActivationId(new_id()), LeaseId(new_id()))], timedelta(seconds=10))
                reports.unapplied_reports(tx, run_id)()
                run_rows.try_lock(tx, run_id)()
                scopes.prefetch(tx, run_id, None).load_rows()
                values.load_final(tx, run_id)
                events.read_after(tx, run_id, 0)
            return {STEP_LOCKS: tx.scalar(COUNT_LOCKS), CONNECTION_MEMORY: float(tx.scalar(COUNT_MEMORY)) / 1e6}
    finally:
        database.close()


def _measure_retention(growing: GrowthEngine) -> float:
    """Apply retention; return the longest time in seconds that a concurrent query waited."""
    longest = 0.0
    ending = threading.Event()

    def work() -> None:
        nonlocal longest
        while not ending.is_set():
            began = time.perf_counter()
            with growing.database.statements() as tx:
                reports.has_unapplied_reports(tx, RunId(new_id()))
            longest = max(longest, time.perf_counter() - began)

    beside = threading.Thread(target=work)
    beside.start()
    try:
        apply_retention(growing.database, datetime.now(UTC) - timedelta(days=30), None)
    finally:
        ending.set()
        beside.join()
    return longest


def _fastest_ms(work: Callable[[], Any]) -> float:
    """Return the fastest of some repetitions, in milliseconds, to exclude the load of other processes."""
    took: list[float] = []
    for _ in range(4 * REPETITIONS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took) * 1000


# -- a canvas --------------------------------------------------------------------------------------------------------
def measure_compiling() -> Iterator[GrowthRow]:
    """Measure compiling a version, done once per process: nodes, and references between siblings."""
    for title, unit, sizes, made, because in (
        ("nodes of a canvas, in a row", "ms a hundred nodes", (200, 2000), chain_components, ""),
        ("nodes of a canvas, side by side", "ms a hundred nodes", (200, 2000), fan_components, ""),
        (
            "references between siblings",
            "ms a hundred references",
            (2_500, 50_000),
            _referring_components,
            MASKS_REASON,
        ),
    ):
        small, large = (_compile_ms(made(size)) / size * END_STEPS for size in sizes)
        yield GrowthRow(title, unit, f"{sizes[0]:,}", small, f"{sizes[1]:,}", large, because)


def _compile_ms(components: dict[str, Any]) -> float:
    """Return the milliseconds of this thread to parse and compile a canvas, without garbage collection."""
    took: list[float] = []
    gc.disable()
    try:
        for _ in range(REPETITIONS):
            began = time.thread_time()
            compile_canvas(parsing.parse({"components": components}))
            took.append(time.thread_time() - began)
    finally:
        gc.enable()
    return statistics.median(took) * 1000


def _referring_components(references: int, each: int = 25) -> dict[str, Any]:
    """Return siblings that each refer to `each` others."""
    width = references // each
    others = [[(number * 7 + step * 13) % width for step in range(each)] for number in range(width)]
    nodes = {
        f"StringTransform:{number}": merge_node("".join(f"{{StringTransform:{other}@result}}" for other in those))
        for number, those in enumerate(others)
    }
    return {"begin": component_node("Begin", {}, *nodes), **nodes}


def _items(many: int) -> str:
    return ",".join(["item"] * many)


def _format_bytes(size: int) -> str:
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size / 1024:g} KB"


WORKLOADS: dict[str, GrowthWorkload] = {
    "chain": measure_chain,
    "wide": measure_fan,
    "items": measure_items,
    "outputs": measure_outputs,
    "turns": measure_turns,
    "weeks": measure_weeks,
    "past": measure_finished_runs,
}


COMPILING = "compiling"


def measure_workload(name: str, full: bool) -> Iterator[GrowthRow]:
    """Yield the rows of one workload, measured on new servers."""
    if name == COMPILING:
        yield from measure_compiling()
        return
    with growth_engine() as growing:
        yield from WORKLOADS[name](growing, full)


def main() -> None:
    """Measure, and print the table."""
    names = [COMPILING, *WORKLOADS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the large sizes: half an hour")
    parser.add_argument("--only", default=",".join(names), help=f"some of {', '.join(names)}")
    options = parser.parse_args()
    lines: list[GrowthRow] = []
    for name in options.only.split(","):
        for line in measure_workload(name, options.full):
            lines.append(line)
            sys.stderr.write(f"{name}: {line}\n")
    sys.stdout.write(f"{growth_markdown(lines)}\n")


if __name__ == "__main__":
    main()
