"""What the activations of each node of a run are doing, how often they were tried, and what they used: counts of rows.

One number per node and measure, however many activations the node has, so that a view of a large run can show all of
its nodes.
"""

from dataclasses import dataclass, field

from sqlalchemy import text

from canvas.ids import RunId
from store.db.transaction import Transaction

COUNTS = text("""
    select node_id, state, count(*), sum(attempt),
        cast(round(date_part('epoch', min(started_at)) * 1000) as bigint),
        cast(round(date_part('epoch', max(finished_at)) * 1000) as bigint),
        cast(round(date_part('epoch', sum(finished_at - started_at)) * 1000) as bigint),
        cast(round(date_part('epoch', sum(now() - started_at)) * 1000) as bigint)
    from (
        select node_id, attempt, started_at, finished_at,
            case
                when status = 'done' and strpos(cast(outcome as text), '"Failed"') = 0 then 'done'
                when status = 'done' then case when outcome ->> 'is' = 'Failed' then 'failed' else 'done' end
                when status = 'ready' then case when not_before <= now() then 'ready' else 'delayed' end
                when status = 'running' then case when lease_until >= now() then 'running' else 'unresponsive' end
                when status = 'waiting' then
                    case when outcome ->> 'code' = 'budget_exceeded' then 'over_budget' else 'needs_input' end
                when status = 'saying' then 'awaiting_stream'
                else status
            end as state
        from activations where run_id = :run_id
    ) a
    group by node_id, state
""")
"""Searching the text of an outcome is several times faster than parsing it, and only a filter: other outcomes may
contain the word."""
USAGE = text("""
    select a.node_id, u.key, sum(cast(u.value as numeric))
    from activations a cross join lateral json_each_text(a.usage) u
    where a.run_id = :run_id and cast(a.usage as text) not in ('{}', 'null') group by 1, 2
""")


STATES = (
    "queued", "ready", "delayed", "running", "unresponsive", "reported", "needs_input", "over_budget",
    "awaiting_stream", "open", "done", "failed", "closed",
)  # fmt: skip
"""What an activation may be doing. `delayed`: it is due later; `unresponsive`: its lease has expired."""
_NOT_BEGUN = ("queued", "ready", "delayed")  # times are those of an earlier attempt
_AT_WORK = ("running", "unresponsive")


@dataclass(slots=True)
class NodeCounts:
    """The activations of one node. Times are milliseconds, since 1970 where not a duration.

    `states`: number of activations by what they are doing, without zeros. `usage`: as in rows, summed.
    """

    node_id: str
    states: dict[str, int] = field(default_factory=dict[str, int])
    attempts: int = 0
    first_started: int | None = None
    last_finished: int | None = None
    work_ms: int = 0
    usage: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def total(self) -> int:
        """Return the number of the node's activations."""
        return sum(self.states.values())


def load_node_counts(tx: Transaction, run_id: RunId) -> list[NodeCounts]:
    """Return the counts of each node of a run that has activations, without an order."""
    counted, used = tx.send(COUNTS, run_id=run_id), tx.send(USAGE, run_id=run_id)
    nodes: dict[str, NodeCounts] = {}
    for node_id, state, number, attempts, first_started, last_finished, worked_ms, since_start_ms in counted.rows():
        each = nodes.setdefault(node_id, NodeCounts(node_id))
        each.states[state] = number
        each.attempts += attempts
        if state in _NOT_BEGUN:
            continue
        if first_started is not None:
            each.first_started = min(first_started, each.first_started or first_started)
        if state in _AT_WORK:
            each.work_ms += since_start_ms or 0
            continue
        each.work_ms += worked_ms or 0
        if last_finished is not None:
            each.last_finished = max(last_finished, each.last_finished or 0)
    for node_id, name, amount in used.rows():
        nodes[node_id].usage[name] = int(amount)
    return list(nodes.values())
