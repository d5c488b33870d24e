"""How far one database goes: from what a hop costs to what a machine carries. Arithmetic, no measurement.

What is assumed about machines stands in `MACHINES` and in the constants, each with its reason. A figure that comes out
is a ceiling to plan with, not a promise: it says which part is full first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FULL = 0.7  # of a core: queues before a processor that is busier than this grow faster than the work
DAY = 86_400
ROUND_TRIP = 0.0005  # seconds between machines of one data centre
CHECKPOINT_SHARE = 2.0  # bytes that reach the disk for a byte of log: the log itself, and the pages it changed, later


@dataclass(frozen=True, slots=True)
class Cost:
    """What one hop costs, as measured."""

    worker_ms: float  # processor
    postgres_ms: float
    redis_ms: float
    wal_bytes: float
    commits: float  # that wait for the disk
    round_trips: float  # to PostgreSQL


@dataclass(frozen=True, slots=True)
class Machine:
    """A PostgreSQL of its own. `scales`: what its last core is worth beside its first."""

    cores: int
    disk_mb: float  # MB/s that it writes for hours
    sync_ms: float  # until a write is on disk
    scales: float  # less on large machines: all backends share one log, one lock table, one snapshot


MACHINES: Sequence[Machine] = (
    Machine(8, disk_mb=250, sync_ms=1.0, scales=0.95),
    Machine(32, disk_mb=600, sync_ms=0.7, scales=0.8),
    Machine(96, disk_mb=1200, sync_ms=0.5, scales=0.6),
)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a machine carries, and what it takes around it."""

    machine: Machine
    limits: Mapping[str, float]  # hops a second, by what would be full then
    hops: float  # a second: the smallest of them
    stops_at: str
    worker_cores: float
    busy_connections: float
    wal_gb_a_day: float
    commits_a_sync: float  # that have to share one write to the disk


def reach(cost: Cost, machine: Machine, redis_servers: int = 1) -> Reach:
    """How many hops a second a machine carries, with so many Redis servers: one for all, or one more for the bus."""
    limits = {
        "PostgreSQL's processors": machine.cores * machine.scales * FULL * 1000 / cost.postgres_ms,
        "PostgreSQL's disk": machine.disk_mb * 1e6 / (cost.wal_bytes * CHECKPOINT_SHARE),
        "Redis' one core": redis_servers * FULL * 1000 / cost.redis_ms,
    }
    stops_at = min(limits, key=lambda name: limits[name])
    hops = limits[stops_at]
    in_database = cost.round_trips * ROUND_TRIP + cost.postgres_ms / 1000 + cost.commits * machine.sync_ms / 1000
    return Reach(
        machine,
        limits,
        hops,
        stops_at,
        worker_cores=hops * cost.worker_ms / 1000 / FULL,
        busy_connections=hops * in_database,
        wal_gb_a_day=hops * cost.wal_bytes * DAY / 1e9,
        commits_a_sync=hops * cost.commits * machine.sync_ms / 1000,
    )
