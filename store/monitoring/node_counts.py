"""What the activations of each node of a run are doing, how often they were tried, what they used, and where they led.

One number per node and measure, however many activations the node has, so that a view of a large run can show all of
its nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import text

from canvas.ids import RunId, TenantId
from store.db.transaction import PendingResult, Transaction
from store.primitives.json_codec import decode

_OF_TENANT = "exists (select 1 from runs r where r.id = :run_id and r.tenant_id = :tenant_id)"
COUNTS = text(f"""
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
        from activations where run_id = :run_id and {_OF_TENANT}
    ) a
    group by node_id, state
""")  # noqa: S608 (constants only)
"""Searching the text of an outcome is several times faster than parsing it, and only a filter: other outcomes may
contain the word."""
USAGE = text(f"""
    select a.node_id, u.key, sum(cast(u.value as numeric))
    from activations a cross join lateral json_each_text(a.usage) u
    where a.run_id = :run_id and cast(a.usage as text) not in ('{{}}', 'null') and {_OF_TENANT} group by 1, 2
""")  # noqa: S608 (constants only)
OUTCOMES = text(f"""
    select node_id, kind, case when kind = 'Chose' then outcome ->> 'to' end, count(*)
    from (
        select node_id, outcome,
            case
                when starts_with(cast(outcome as text), '{{"is":"')
                then split_part(substr(cast(outcome as text), 8, 20), '"', 1)
                else outcome ->> 'is'
            end as kind
        from activations where run_id = :run_id and status = 'done' and {_OF_TENANT}
    ) a
    group by 1, 2, 3
""")  # noqa: S608 (constants only)
"""Most outcomes begin with their kind, which is read without parsing them."""


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


class NodeOutcomes(NamedTuple):
    """How many finished activations of a node have one outcome. `kind`: a name of store/primitives/outcome_codec.py.

    `to`: of a router, the ids of the nodes that it chose.
    """

    node_id: str
    kind: str
    to: Sequence[str]
    number: int


class PendingNodeCounts(NamedTuple):
    """Counts whose statements were sent (`send_node_counts`)."""

    counted: PendingResult
    used: PendingResult

    def read(self) -> list[NodeCounts]:
        """Return the counts of each node of the run that has activations, without an order."""
        return _node_counts(self.counted.rows(), self.used.rows())


def load_node_counts(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> list[NodeCounts]:
    """Return the counts of each node of a tenant's run that has activations, without an order."""
    return send_node_counts(tx, tenant_id, run_id).read()


def send_node_counts(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> PendingNodeCounts:
    """Send the statements that count the activations of a tenant's run, without waiting for them."""
    return PendingNodeCounts(
        tx.send(COUNTS, run_id=run_id, tenant_id=tenant_id), tx.send(USAGE, run_id=run_id, tenant_id=tenant_id)
    )


def send_outcomes(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> PendingResult:
    """Send the statement that counts the outcomes of a tenant's run; `outcomes_of` reads its result."""
    return tx.send(OUTCOMES, run_id=run_id, tenant_id=tenant_id)


def outcomes_of(found: PendingResult) -> list[NodeOutcomes]:
    """Return the outcomes of each node of a run, without an order."""
    return [NodeOutcomes(row[0], row[1], decode(row[2]) if row[2] else (), row[3]) for row in found.rows() if row[1]]


def _node_counts(counted: Sequence[Any], used: Sequence[Any]) -> list[NodeCounts]:
    nodes: dict[str, NodeCounts] = {}
    for node_id, state, number, attempts, first_started, last_finished, worked_ms, since_start_ms in counted:
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
    for node_id, name, amount in used:
        nodes[node_id].usage[name] = int(amount)
    return list(nodes.values())
