"""Figures about a tenant's runs in a range of time: counts, durations and usage by time, by agent and by node.

Everything is computed from the rows when it is asked for, within limits: of runs, of activations, and of time for each
statement. A run belongs to the time in its id, as in lists of runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text

from canvas.budget import COST, UNPRICED
from canvas.ids import CanvasId, RunId, TenantId, VersionId
from store.db.transaction import Transaction
from store.primitives.ids import first_id_at

MAX_RUNS = 200_000
FEWER_RUNS = 20_000  # for a second try, if figures of MAX_RUNS take too long
MAX_RUNS_OF_NODES = 200
MAX_ACTIVATIONS = 2_000  # of each of those runs
MAX_AGENTS = 20
MAX_NODES = 100
MAX_WAITING = 20
MAX_COUNTED_WAITING = 10_000
MAX_TIME = timedelta(seconds=3)  # of one statement

SET_LIMITS = text("select set_config('statement_timeout', :milliseconds, true), set_config('work_mem', '32MB', true)")
FIGURES = text(f"""
    with chosen as materialized (
        select id, canvas_id, status, width_bucket(id, cast(:starts as uuid[])) - 1 as bucket,
            case when status in ('succeeded', 'failed')
                then cast(extract(epoch from finished_at - started_at) * 1000 as float8) end as elapsed_ms,
            cast(usage ->> 'total_tokens' as int8) as tokens,
            case when position('{COST}' in cast(usage as text)) > 0 or position('{UNPRICED}' in cast(usage as text)) > 0
                then usage end as priced
        from runs
        where tenant_id = :tenant_id and id >= :first and id < :end and status <> 'refused'
            and (cast(:canvas_id as uuid) is null or canvas_id = :canvas_id)
        order by id desc limit :most
    ), costs as materialized (
        select bucket, canvas_id, json_object_agg(name, amount) as amounts from (
            select bucket, canvas_id, u.key as name, sum(cast(u.value as numeric)) as amount
            from chosen cross join lateral json_each_text(priced) u
            where priced is not null and (left(u.key, {len(COST)}) = '{COST}' or u.key = '{UNPRICED}')
            group by grouping sets ((bucket, u.key), (canvas_id, u.key), (u.key))
        ) each
        group by bucket, canvas_id
    ), figures as (
        select bucket, canvas_id, count(*) as runs,
            count(*) filter (where status = 'succeeded') as succeeded,
            count(*) filter (where status = 'failed') as failed,
            count(*) filter (where status = 'cancelled') as cancelled,
            percentile_cont(array[0.5, 0.95]) within group (order by elapsed_ms) as percentiles,
            coalesce(sum(tokens), 0) as tokens
        from (select bucket, canvas_id, status, elapsed_ms, tokens from chosen) narrow
        group by grouping sets ((bucket), (canvas_id), ())
    ), ranked as (
        select *, row_number() over (
            partition by bucket is null, canvas_id is null order by runs desc, canvas_id
        ) as rank from figures
    )
    select r.bucket, r.canvas_id, r.runs, r.succeeded, r.failed, r.cancelled, r.percentiles, r.tokens,
        (select id from chosen order by id limit 1) as oldest, now() as now, costs.amounts,
        (select title from canvases c where c.id = r.canvas_id and c.tenant_id = :tenant_id) as title
    from ranked r left join costs
        on costs.bucket is not distinct from r.bucket and costs.canvas_id is not distinct from r.canvas_id
    where r.canvas_id is null or r.rank <= :most_agents
    order by r.bucket, r.rank
""")  # noqa: S608 (constants only)
"""Rows of three kinds: of a bucket, of an agent (the one with the most runs first), and of all runs."""

HAS_OLDER = text("""
    select exists (
        select from runs where tenant_id = :tenant_id and id >= :first and id < :oldest and status <> 'refused'
            and (cast(:canvas_id as uuid) is null or canvas_id = :canvas_id)
    )
""")
NODES = text("""
    with latest as materialized (
        select id, canvas_id, version_id from runs
        where tenant_id = :tenant_id and id >= :first and id < :end and status <> 'refused'
            and (cast(:canvas_id as uuid) is null or canvas_id = :canvas_id)
        order by id desc limit :most
    )
    select l.canvas_id, l.version_id, a.node_id, count(*) as steps,
        count(*) filter (where a.outcome ->> 'is' = 'Failed') as failed,
        percentile_cont(array[0.5, 0.95]) within group (
            order by extract(epoch from a.finished_at - a.started_at) * 1000
        ) filter (where a.status = 'done') as percentiles,
        coalesce(sum(cast(a.usage ->> 'total_tokens' as numeric)), 0) as tokens,
        (select count(*) from latest) as runs
    from latest l cross join lateral (
        select node_id, status, outcome, usage, started_at, finished_at from activations
        where run_id = l.id limit :most_of_run
    ) a
    group by l.canvas_id, l.version_id, a.node_id
    order by failed desc, (percentile_cont(0.95) within group (
        order by extract(epoch from a.finished_at - a.started_at)
    ) filter (where a.status = 'done')) desc nulls last, l.canvas_id, l.version_id, a.node_id
    limit :most_nodes
""")
WAITING = text("""
    with waiting as materialized (
        select id, canvas_id from runs
        where tenant_id = :tenant_id and status = 'waiting' and status in ('queued', 'running', 'waiting', 'stopping')
            and (cast(:canvas_id as uuid) is null or canvas_id = :canvas_id)
        limit :most_counted
    )
    select w.id, w.canvas_id, (select title from canvases c where c.id = w.canvas_id and c.tenant_id = :tenant_id)
        as title, (select count(*) from waiting) as total
    from waiting w order by w.id limit :most
""")  # the second condition on the status is that of the partial index


@dataclass(frozen=True, slots=True)
class RunRange:
    """Which runs: those accepted from `first` until before `end`, in `buckets` parts of equal length."""

    first: datetime
    end: datetime
    buckets: int
    canvas_id: CanvasId | None = None

    @property
    def starts(self) -> list[datetime]:
        """Return when each part begins, to the millisecond, as ids have it."""
        starts = (self.first + self.span * number / self.buckets for number in range(self.buckets))
        return [start - timedelta(microseconds=start.microsecond % 1000) for start in starts]

    @property
    def span(self) -> timedelta:
        """Return the length of the range."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Counts, durations and usage of some runs.

    Percentiles are of runs that have succeeded or failed, None without any. `costs` are billionths by currency.
    """

    runs: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    tokens: int = 0
    costs: Mapping[str, int] = field(default_factory=dict[str, int])
    unpriced_calls: int = 0


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """The figures of an agent's runs. `title` is None if the agent was deleted."""

    canvas_id: CanvasId
    title: str | None
    figures: RunFigures


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Steps of a node of one version, in the latest runs. Percentiles are of steps that are done."""

    canvas_id: CanvasId
    version_id: VersionId
    node_id: str
    steps: int
    failed: int
    p50_ms: float | None
    p95_ms: float | None
    tokens: int


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """A run that waits for a person or for a higher budget. `title` is None if the agent was deleted."""

    run_id: RunId
    canvas_id: CanvasId
    title: str | None


@dataclass(frozen=True, slots=True)
class Overview:
    """All figures. `agents` and `nodes` have one entry more than their limit if there are more."""

    now: datetime  # by the database's clock
    total: RunFigures
    buckets: Mapping[int, RunFigures]  # by number; those without runs are absent
    agents: Sequence[AgentFigures]
    nodes: Sequence[NodeFigures]
    runs_of_nodes: int
    waiting: Sequence[WaitingRun]
    waiting_total: int
    oldest: RunId | None
    """The oldest run that is counted, if the range has older ones."""


def load_overview(tx: Transaction, tenant_id: TenantId, chosen: RunRange, max_runs: int = MAX_RUNS) -> Overview:
    """Return the figures of a tenant's runs, of the newest `max_runs` in the range.

    Call it in a transaction of its own: it limits the time of each statement to MAX_TIME.
    """
    limit_time(tx)
    of_agent = {"tenant_id": tenant_id, "canvas_id": chosen.canvas_id}
    of_range = {**of_agent, "first": first_id_at(chosen.first), "end": first_id_at(chosen.end)}
    starts = [first_id_at(start) for start in chosen.starts]
    rows = tx.rows(FIGURES, starts=starts, most=max_runs, most_agents=MAX_AGENTS + 1, **of_range)
    nodes = tx.rows(NODES, most=MAX_RUNS_OF_NODES, most_of_run=MAX_ACTIVATIONS, most_nodes=MAX_NODES + 1, **of_range)
    waiting = tx.rows(WAITING, most=MAX_WAITING, most_counted=MAX_COUNTED_WAITING + 1, **of_agent)
    (whole,) = (row for row in rows if row.bucket is None and row.canvas_id is None)
    has_older = whole.runs >= max_runs and tx.scalar(
        HAS_OLDER, first=of_range["first"], oldest=whole.oldest, **of_agent
    )
    return Overview(
        now=whole.now,
        total=_figures(whole),
        buckets={row.bucket: _figures(row) for row in rows if row.bucket is not None},
        agents=[AgentFigures(row.canvas_id, row.title, _figures(row)) for row in rows if row.canvas_id is not None],
        nodes=[_node(row) for row in nodes],
        runs_of_nodes=nodes[0].runs if nodes else 0,
        waiting=[WaitingRun(row.id, row.canvas_id, row.title) for row in waiting],
        waiting_total=waiting[0].total if waiting else 0,
        oldest=whole.oldest if has_older else None,
    )


def limit_time(tx: Transaction) -> None:
    """Limit the time of each further statement of a transaction to MAX_TIME."""
    tx.send(SET_LIMITS, milliseconds=str(int(MAX_TIME.total_seconds() * 1000)))


def _figures(row: Any) -> RunFigures:
    amounts: Mapping[str, int] = row.amounts or {}
    p50_ms, p95_ms = row.percentiles or (None, None)
    return RunFigures(
        runs=row.runs,
        succeeded=row.succeeded,
        failed=row.failed,
        cancelled=row.cancelled,
        p50_ms=p50_ms,
        p95_ms=p95_ms,
        tokens=int(row.tokens),
        costs={name.removeprefix(COST): int(n) for name, n in amounts.items() if name.startswith(COST)},
        unpriced_calls=int(amounts.get(UNPRICED, 0)),
    )


def _node(row: Any) -> NodeFigures:
    p50_ms, p95_ms = row.percentiles or (None, None)
    return NodeFigures(
        row.canvas_id, row.version_id, row.node_id, row.steps, row.failed, p50_ms, p95_ms, int(row.tokens)
    )
