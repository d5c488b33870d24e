"""The capacity of one database, computed from the cost of a hop."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.hops.capacity import HopCost, Machine, capacity_of

COST = HopCost(worker_ms=2.0, postgres_ms=0.7, redis_ms=0.1, wal_bytes=2000, commits=1.0, round_trips=4.0)
MACHINE = Machine(cores=10, disk_mb=1000, sync_ms=1.0, last_core_share=1.0)


def test_processors_are_saturated_at_seven_tenths():
    capacity = capacity_of(COST, MACHINE, redis_servers=10)

    assert capacity.limited_by == "PostgreSQL's processors"
    assert capacity.hops == pytest.approx(10 * 1000 * 0.7 / 0.7)


def test_one_redis_is_saturated_before_a_large_database():
    capacity = capacity_of(COST, MACHINE)

    assert capacity.limited_by == "Redis' one core"
    assert capacity.hops == pytest.approx(7000)
    assert capacity_of(COST, MACHINE, redis_servers=2).hops == pytest.approx(10_000)


def test_large_outputs_saturate_the_disk_first():
    capacity = capacity_of(replace(COST, wal_bytes=1_000_000), MACHINE)

    assert capacity.limited_by == "PostgreSQL's disk"
    assert capacity.hops == pytest.approx(500)
    assert capacity.wal_gb_a_day == pytest.approx(500 * 86_400 / 1000)


def test_workers_and_connections_grow_with_the_hops():
    capacity = capacity_of(COST, MACHINE, redis_servers=10)

    assert capacity.worker_cores == pytest.approx(10_000 * 0.002 / 0.7)
    assert capacity.busy_connections == pytest.approx(10_000 * (4 * 0.0005 + 0.0007 + 0.001))
    assert capacity.commits_a_sync == pytest.approx(10)


@given(st.floats(1.0, 10.0))
def test_capacity_does_not_grow_with_the_cost_of_a_hop(factor: float):
    for part in ("worker_ms", "postgres_ms", "redis_ms", "wal_bytes", "commits", "round_trips"):
        costlier = replace(COST, **{part: getattr(COST, part) * factor})

        assert capacity_of(costlier, MACHINE).hops <= capacity_of(COST, MACHINE).hops
