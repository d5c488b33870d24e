"""The capacity of one database, computed from the cost of a hop. This module does not measure.

The assumptions about machines are in `MACHINES` and in the constants, each with its reason. A result is an upper bound
for planning, not a promise: it says which part is saturated first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_UTILISATION = 0.7  # utilisation of a core; above it, queues grow faster than the work
DAY = 86_400
ROUND_TRIP = 0.0005  # seconds between machines of one data centre
BYTES_WRITTEN_PER_WAL_BYTE = 2.0  # bytes written for a byte of WAL: the WAL itself, and later the pages that it changed


@dataclass(frozen=True, slots=True)
class HopCost:
    """The measured cost of one hop."""

    worker_ms: float  # processor time
    postgres_ms: float
    redis_ms: float
    wal_bytes: float
    commits: float  # that wait for the disk
    round_trips: float  # to PostgreSQL


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with one PostgreSQL. `last_core_share`: the throughput of its last core relative to its first."""

    cores: int
    disk_mb: float  # MB/s of sustained writes
    sync_ms: float  # until a write is on disk
    last_core_share: float  # lower on large machines: all backends share one WAL, one lock table, one snapshot


MACHINES: Sequence[Machine] = (
    Machine(8, disk_mb=250, sync_ms=1.0, last_core_share=0.95),
    Machine(32, disk_mb=600, sync_ms=0.7, last_core_share=0.8),
    Machine(96, disk_mb=1200, sync_ms=0.5, last_core_share=0.6),
)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a machine, and the resources that it needs around it."""

    machine: Machine
    limits: Mapping[str, float]  # hops a second, by the part that limits them
    hops: float  # a second: the smallest of the limits
    limited_by: str
    worker_cores: float
    busy_connections: float
    wal_gb_a_day: float
    commits_a_sync: float  # commits that share one write to the disk


def capacity_of(cost: HopCost, machine: Machine, redis_servers: int = 1) -> Capacity:
    """Return the capacity of a machine with one Redis server, or two: one for task messages and one for the bus."""
    limits = {
        "PostgreSQL's processors": machine.cores * machine.last_core_share * MAX_UTILISATION * 1000 / cost.postgres_ms,
        "PostgreSQL's disk": machine.disk_mb * 1e6 / (cost.wal_bytes * BYTES_WRITTEN_PER_WAL_BYTE),
        "Redis' one core": redis_servers * MAX_UTILISATION * 1000 / cost.redis_ms,
    }
    stops_at = min(limits, key=lambda name: limits[name])
    hops = limits[stops_at]
    in_database = cost.round_trips * ROUND_TRIP + cost.postgres_ms / 1000 + cost.commits * machine.sync_ms / 1000
    return Capacity(
        machine,
        limits,
        hops,
        stops_at,
        worker_cores=hops * cost.worker_ms / 1000 / MAX_UTILISATION,
        busy_connections=hops * in_database,
        wal_gb_a_day=hops * cost.wal_bytes * DAY / 1e9,
        commits_a_sync=hops * cost.commits * machine.sync_ms / 1000,
    )
