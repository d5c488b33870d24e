"""A hop is counted on real processes."""

from pathlib import Path

import pytest

from bench.hops.hops import HOPS, run_hop_bench
from bench.measuring.tally import Tally

CHAINS = 10  # together they take longer than the second over which idle processes are counted


@pytest.mark.long
def test_requests_of_a_hop_are_counted(tmp_path: Path):
    with run_hop_bench(tmp_path) as stand:
        stand.start_workers(1, idle=1.0)

        counted = stand.measure_chains(CHAINS, 1)

    postgres, redis = counted.tally("worker", "PostgreSQL"), counted.tally("worker", "Redis")
    assert counted.hops == CHAINS * HOPS
    assert len(counted.hop_ms) == CHAINS * (HOPS - 1)
    assert of_kind(postgres, "update runs") == pytest.approx(1.0, abs=0.2)
    assert 0 < postgres.round_trips <= sum(postgres.statements.values())
    assert of_kind(postgres, "insert activations") == pytest.approx((HOPS - 1) / HOPS, abs=0.2)
    assert 0 < redis.statements["publish"] <= 2.4  # to the streams of the API, and to subscribers outside
    assert redis.statements["lpush"] == pytest.approx((HOPS - 1) / HOPS, abs=0.2)  # each node is a task message
    assert of_kind(postgres, "update activations") < 1.5  # the report, which writes the claim, too
    assert 1.0 <= counted.transactions < 5.0
    assert counted.cpu_ms("worker") > 0


def of_kind(tally: Tally, write: str) -> float:
    """Return how many statements contain this write."""
    return sum(count for label, count in tally.statements.items() if write in label.split(" + "))
