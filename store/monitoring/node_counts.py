"""What the activations of each node of a run are doing, how often they were tried, and what they used: counts of rows.

One number per node and measure, however many activations the node has, so that a view of a large run can show all of
its nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import text

from canvas.ids import RunId
from store.db.transaction import Transaction

COUNTS = text("""
    select node_id,
        count(*) filter (where status = 'queued') as queued,
        count(*) filter (where status = 'ready' and not_before <= now()) as ready,
        count(*) filter (where status = 'ready' and not_before > now()) as delayed,
        count(*) filter (where status = 'running' and lease_until >= now()) as running,
        count(*) filter (where status = 'running' and (lease_until is null or lease_until < now())) as unresponsive,
        count(*) filter (where status = 'reported') as reported,
        count(*) filter (where status = 'waiting') as waiting,
        count(*) filter (where status = 'waiting' and outcome ->> 'code' = 'budget_exceeded') as over_budget,
        count(*) filter (where status = 'saying') as awaiting_stream,
        count(*) filter (where status = 'open') as open,
        count(*) filter (where status = 'done') as done,
        count(*) filter (where status = 'done' and is_failed) as failed,
        count(*) filter (where status = 'closed') as closed,
        sum(attempt) as attempts,
        cast(round(date_part('epoch', min(started_at)) * 1000) as bigint) as first_started,
        cast(round(date_part('epoch', max(finished_at) filter (where not is_at_work)) * 1000) as bigint)
            as last_finished,
        cast(round(coalesce(sum(date_part('epoch', finished_at - started_at)) filter (where not is_at_work), 0) * 1000
            + coalesce(sum(date_part('epoch', now() - started_at)) filter (where status = 'running'), 0) * 1000)
            as bigint) as work_ms
    from (
        select *, status in ('queued', 'ready', 'running') as is_at_work,
            case when status = 'done' and strpos(cast(outcome as text), '"Failed"') > 0
                then outcome ->> 'is' = 'Failed' else false end as is_failed
        from activations where run_id = :run_id
    ) a
    group by node_id
""")
"""Searching the text of an outcome is several times faster than parsing it, and only a filter: other outcomes may
contain the word."""
USAGE = text("""
    select a.node_id, u.key, sum(cast(u.value as numeric))
    from activations a cross join lateral json_each_text(a.usage) u
    where a.run_id = :run_id and cast(a.usage as text) not in ('{}', 'null') group by 1, 2
""")


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """The activations of one node, by what they are doing. Times are milliseconds, since 1970 where not a duration.

    `waiting` includes `over_budget`; `done` includes `failed`. `usage`: as in rows, summed.
    """

    node_id: str
    queued: int
    ready: int
    delayed: int
    running: int
    unresponsive: int
    reported: int
    waiting: int
    over_budget: int
    awaiting_stream: int
    open: int
    done: int
    failed: int
    closed: int
    attempts: int
    first_started: int | None
    last_finished: int | None
    work_ms: int
    usage: Mapping[str, int] = field(default_factory=dict[str, int])


def load_node_counts(tx: Transaction, run_id: RunId) -> list[NodeCounts]:
    """Return the counts of each node of a run that has activations, without an order."""
    counted = tx.send(COUNTS, run_id=run_id)
    used: dict[str, dict[str, int]] = {}
    for node_id, name, amount in tx.rows(USAGE, run_id=run_id):
        used.setdefault(node_id, {})[name] = int(amount)
    return [NodeCounts(*row, usage=used.get(row[0], {})) for row in counted.rows()]
