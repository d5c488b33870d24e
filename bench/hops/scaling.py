"""Tables about scaling: more workers on this machine, measured; larger databases, computed."""

from collections.abc import Iterator, Sequence

from bench.hops.capacity import MACHINES, MAX_UTILISATION, ROUND_TRIP, HopCost, capacity_of
from bench.hops.hops import HopBench
from bench.measuring.cells import table_row


def scale_table(stand: HopBench, runs: int, workers: Sequence[int] = (1, 2, 4, 8)) -> Iterator[str]:
    """Yield the throughput and cost of the same work with a growing number of worker processes."""
    yield "| workers | hops a second | ms of processor a hop: workers | PostgreSQL | Redis | trips to PostgreSQL |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for count in workers:
        stand.stop("worker")
        stand.start_workers(count)
        passed = stand.measure_chains(4 * runs, 4 * runs)
        costs = (passed.cpu_ms(who) for who in ("worker", "PostgreSQL", "Valkey"))
        trips = passed.tally("worker", "PostgreSQL").round_trips
        yield table_row(str(count), passed.hops_per_second, *costs, trips)


def capacity_table(stand: HopBench, runs: int) -> Iterator[str]:
    """Yield the capacity of one PostgreSQL, from the cost of a hop on this machine."""
    passed = stand.measure_chains(4 * runs, 2 * runs)
    cost = HopCost(
        worker_ms=passed.cpu_ms("worker"),
        postgres_ms=passed.cpu_ms("PostgreSQL"),
        redis_ms=passed.cpu_ms("Valkey"),
        wal_bytes=passed.wal,
        commits=1.0,  # the report's; a claim does not wait for the disk
        round_trips=passed.tally("worker", "PostgreSQL").round_trips,
    )
    yield (
        f"A hop costs {cost.worker_ms:.2f} ms of a worker's processor, {cost.postgres_ms:.2f} ms of PostgreSQL's, "
        f"{cost.redis_ms:.2f} ms of Redis', {cost.wal_bytes:,.0f} bytes of log and {cost.round_trips:.1f} round trips "
        f"to PostgreSQL. A processor is saturated at {MAX_UTILISATION:.0%}; "
        f"a round trip takes {ROUND_TRIP * 1000:g} ms."
    )
    yield ""
    reaches = [capacity_of(cost, machine) for machine in MACHINES]
    yield "| PostgreSQL with | " + " | ".join(f"{it.machine.cores} cores" for it in reaches) + " |"
    yield "|---|" + "---:|" * len(reaches)
    for limit in reaches[0].limits:
        yield table_row(f"hops a second until saturated: {limit}", *(it.limits[limit] for it in reaches))
    yield table_row("**hops a second**", *(it.hops for it in reaches))
    yield "| saturated first | " + " | ".join(it.limited_by for it in reaches) + " |"
    yield table_row(
        "hops a second with a second Redis for the bus", *(capacity_of(cost, it.machine, 2).hops for it in reaches)
    )
    yield table_row("cores for workers", *(it.worker_cores for it in reaches))
    yield table_row("busy connections", *(it.busy_connections for it in reaches))
    yield table_row("commits that share a write to the disk", *(it.commits_a_sync for it in reaches))
    yield table_row("GB of WAL a day", *(it.wal_gb_a_day for it in reaches))
