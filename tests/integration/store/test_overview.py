"""Figures of runs, compared with what Python computes from the same rows."""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, update

from store.db.database import Database
from store.monitoring import overview
from store.monitoring.overview import Overview, RunFigures, RunRange
from store.primitives.ids import first_id_at, new_id
from store.tables.runs import activations, runs
from store.tenants import tenants
from tests.integration.store.rows import add_run

FIRST = datetime(2026, 3, 2, tzinfo=UTC)
DAY = timedelta(days=1)
OVER = ("succeeded", "failed", "cancelled")
AGENTS = [new_id() for _ in range(3)]

usages = st.fixed_dictionaries(
    {},
    optional={
        "total_tokens": st.integers(0, 10**9),
        "cost_USD": st.integers(0, 10**12),
        "cost_EUR": st.integers(0, 10**12),
        "unpriced_calls": st.integers(0, 9),
        "warning_truncated": st.integers(0, 9),
    },
)


@dataclass(frozen=True)
class SomeRun:
    """A run as a test inserts it. `at`: seconds after FIRST."""

    at: float
    agent: int
    status: str
    usage: dict[str, int]
    elapsed: float | None

    @property
    def is_measured(self) -> bool:
        return self.status in ("succeeded", "failed") and self.elapsed is not None


some_runs = st.builds(
    SomeRun,
    at=st.integers(-100, 86_500).map(float),
    agent=st.integers(0, 2),
    status=st.sampled_from([*OVER, "running", "waiting", "queued", "stopping", "refused"]),
    usage=usages,
    elapsed=st.none() | st.floats(0, 10_000).map(lambda seconds: round(seconds, 3)),
)


@pytest.fixture
def new_tenant(database: Database) -> Callable[[], UUID]:
    def create() -> UUID:
        with database.transaction() as tx:
            return tenants.create_tenant(tx, f"tenant {new_id()}")

    return create


def insert_runs(database: Database, tenant_id: UUID, made: Sequence[SomeRun]) -> list[UUID]:
    ids: list[UUID] = []
    with database.transaction() as tx:
        for each in made:
            run_id = UUID(int=first_id_at(FIRST + timedelta(seconds=each.at)).int | new_id().int & (1 << 62) - 1)
            ids.append(add_run(tx, tenant_id, run_id=run_id, canvas_id=AGENTS[each.agent], status=each.status))
            times: dict[str, Any] = {"usage": each.usage}
            if each.elapsed is not None:
                times |= {"started_at": FIRST, "finished_at": FIRST + timedelta(seconds=each.elapsed)}
            tx.execute(update(runs).where(runs.c.id == run_id).values(**times))
    return ids


def load(database: Database, tenant_id: UUID, **changes: Any) -> Overview:
    chosen = RunRange(**{"first": FIRST, "end": FIRST + DAY, "buckets": 24, **changes})
    with database.transaction() as tx:
        return overview.load_overview(tx, tenant_id, chosen)


def expected_figures(made: Sequence[SomeRun]) -> RunFigures:
    """Return the figures of runs that are in the range."""
    counts = Counter(each.status for each in made)
    elapsed = sorted((each.elapsed or 0) * 1000 for each in made if each.is_measured)
    costs = {
        currency: sum(each.usage.get(f"cost_{currency}", 0) for each in made)
        for currency in ("USD", "EUR")
        if any(f"cost_{currency}" in each.usage for each in made)
    }
    return RunFigures(
        runs=len(made),
        succeeded=counts["succeeded"],
        failed=counts["failed"],
        cancelled=counts["cancelled"],
        p50_ms=pytest.approx(percentile(elapsed, 0.5), abs=0.01) if elapsed else None,
        p95_ms=pytest.approx(percentile(elapsed, 0.95), abs=0.01) if elapsed else None,
        tokens=sum(each.usage.get("total_tokens", 0) for each in made),
        costs=costs,
        unpriced_calls=sum(each.usage.get("unpriced_calls", 0) for each in made),
    )


def percentile(values: Sequence[float], part: float) -> float:
    """Return a percentile as `percentile_cont` defines it: between two values if it is not one of them."""
    place = part * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(some_runs, max_size=25), st.integers(1, 120), st.sampled_from([None, 0, 1]))
def test_figures_are_those_of_the_rows(
    database: Database, new_tenant: Callable[[], UUID], made: list[SomeRun], buckets: int, agent: int | None
) -> None:
    tenant_id = new_tenant()
    insert_runs(database, tenant_id, made)
    insert_runs(database, new_tenant(), made)

    found = load(database, tenant_id, buckets=buckets, canvas_id=AGENTS[agent] if agent is not None else None)

    counted = [
        each for each in made if 0 <= each.at < 86_400 and each.status != "refused" and agent in (None, each.agent)
    ]
    assert found.total == expected_figures(counted)
    by_bucket: dict[int, list[SomeRun]] = {}
    for each in counted:
        starts = RunRange(FIRST, FIRST + DAY, buckets).starts
        number = sum(FIRST + timedelta(seconds=each.at) >= start for start in starts) - 1
        by_bucket.setdefault(number, []).append(each)
    assert found.buckets == {number: expected_figures(those) for number, those in by_bucket.items()}
    assert {each.canvas_id: each.figures for each in found.agents} == {
        AGENTS[number]: expected_figures([each for each in counted if each.agent == number])
        for number in {each.agent for each in counted}
    }
    assert [each.figures.runs for each in found.agents] == sorted(
        (each.figures.runs for each in found.agents), reverse=True
    )
    assert found.oldest is None


def run_at(second: float, **changes: Any) -> SomeRun:
    return SomeRun(**{"at": second, "agent": 0, "status": "succeeded", "usage": {}, "elapsed": 1.0, **changes})


@pytest.mark.parametrize("runs_in_range", [2, 3])
def test_only_the_newest_runs_are_counted_if_there_are_too_many(
    database: Database, new_tenant: Callable[[], UUID], runs_in_range: int
) -> None:
    tenant_id = new_tenant()
    ids = insert_runs(database, tenant_id, [run_at(-10), *(run_at(number) for number in range(runs_in_range))])

    with database.transaction() as tx:
        found = overview.load_overview(tx, tenant_id, RunRange(FIRST, FIRST + DAY, 1), 2)

    assert found.total.runs == 2
    assert found.oldest == (ids[-2] if runs_in_range > 2 else None)


def test_agents_with_the_most_runs_are_listed_with_one_more_than_the_limit(
    database: Database, new_tenant: Callable[[], UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant_id = new_tenant()
    monkeypatch.setattr(overview, "MAX_AGENTS", 1)
    insert_runs(database, tenant_id, [run_at(n, agent=agent) for n, agent in enumerate([0, 1, 1, 2, 2, 2])])

    found = load(database, tenant_id)

    assert [(each.canvas_id, each.figures.runs) for each in found.agents] == [(AGENTS[2], 3), (AGENTS[1], 2)]
    assert found.total.runs == 6


def add_step(tx: Any, run_id: UUID, node_id: str, elapsed: float | None, *, failed: bool = False) -> None:
    times = {"started_at": FIRST, "finished_at": FIRST + timedelta(seconds=elapsed)} if elapsed is not None else {}
    tx.execute(
        insert(activations).values(
            run_id=run_id, id=new_id(), node_id=node_id, component="LLM", scope="", ordinal=0, order_key=b"",
            region=b"", level=0, trail=[], status="done" if elapsed is not None else "running", activated_rev=1,
            outcome={"is": "Failed" if failed else "Finished"}, usage={"total_tokens": 5}, **times,
        )
    )  # fmt: skip


def test_nodes_are_measured_over_the_latest_runs(
    database: Database, new_tenant: Callable[[], UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant_id = new_tenant()
    monkeypatch.setattr(overview, "MAX_RUNS_OF_NODES", 2)
    ids = insert_runs(database, tenant_id, [run_at(number) for number in range(3)])
    with database.transaction() as tx:
        version_id = new_id()
        tx.execute(update(runs).where(runs.c.tenant_id == tenant_id).values(version_id=version_id))
        for run_id in ids:
            add_step(tx, run_id, "slow", 5)
            add_step(tx, run_id, "slow", 7)
            add_step(tx, run_id, "bad", 1, failed=True)
            add_step(tx, run_id, "open", None)

    found = load(database, tenant_id)

    assert found.runs_of_nodes == 2
    assert [(each.node_id, each.steps, each.failed, each.tokens) for each in found.nodes] == [
        ("bad", 2, 2, 10),
        ("slow", 4, 0, 20),
        ("open", 2, 0, 10),
    ]
    assert {(each.canvas_id, each.version_id) for each in found.nodes} == {(AGENTS[0], version_id)}
    slow, still_open = found.nodes[1], found.nodes[2]
    assert slow.p50_ms == pytest.approx(statistics.median([5000, 7000, 5000, 7000]))
    assert slow.p95_ms == pytest.approx(7000)
    assert (still_open.p50_ms, still_open.p95_ms) == (None, None)


def test_oldest_waiting_runs_are_listed_whenever_they_began(
    database: Database, new_tenant: Callable[[], UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant_id = new_tenant()
    monkeypatch.setattr(overview, "MAX_WAITING", 2)
    made = [run_at(-900_000 + number, status=status) for number, status in enumerate(["running", *["waiting"] * 3])]
    ids = insert_runs(database, tenant_id, [*reversed(made), run_at(5, status="waiting", agent=1)])
    insert_runs(database, new_tenant(), made)

    found, of_agent = load(database, tenant_id), load(database, tenant_id, canvas_id=AGENTS[1])

    assert [each.run_id for each in found.waiting] == [ids[2], ids[1]]
    assert (found.waiting_total, of_agent.waiting_total) == (4, 1)
