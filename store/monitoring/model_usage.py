"""What models were used for, from the rows of model calls: in one run, and in the latest runs of a range of time.

Rows of model calls are deleted before their runs, and may be switched off. So a figure says how many calls it is of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from canvas.ids import RunId, TenantId
from store.db.transaction import Transaction
from store.monitoring.overview import RunRange
from store.primitives.ids import first_id_at

MAX_MODELS = 100  # of one run
MAX_MODELS_OF_RANGE = 20
MAX_RUNS = 1_000
MAX_CALLS = 1_000  # of each of those runs

_SUMS = """
    ), sums as (
        select model, account, json_object_agg(name, amount) as usage from (
            select c.model, c.account, u.key as name, sum(cast(u.value as numeric)) as amount
            from calls c cross join lateral json_each_text(c.usage) u
            where c.usage is not null group by 1, 2, 3
        ) each group by 1, 2
    ), counts as (
        select model, account, count(*) as calls, count(*) filter (where status <> 'ok') as failed,
            sum(waited_ms) as waited_ms, bool_or(has_bodies) as has_bodies
        from calls group by 1, 2
    )
"""
OF_RUN = text(f"""
    with calls as materialized (
        select model, account, status, waited_ms, usage, request is not null as has_bodies
        from model_calls where run_id = :run_id
    {_SUMS}
    select n.model, n.account, n.calls, n.failed, n.waited_ms, n.has_bodies, s.usage
    from counts n left join sums s on s.model = n.model and s.account = n.account
    order by n.calls desc, n.model, n.account limit :most
""")  # noqa: S608 (constants only)
OF_RANGE = text(f"""
    with latest as materialized (
        select id, coalesce(cast(usage ->> 'calls' as int8), 0) > 0 as has_calls from runs
        where tenant_id = :tenant_id and id >= :first and id < :end and status <> 'refused'
            and (cast(:canvas_id as uuid) is null or canvas_id = :canvas_id)
        order by id desc limit :most_runs
    ), calls as materialized (
        select l.id, c.model, c.account, c.status, c.waited_ms, c.usage, false as has_bodies
        from latest l cross join lateral (
            select model, account, status, waited_ms, usage from model_calls where run_id = l.id limit :most_calls
        ) c
    {_SUMS}
    select n.model, n.account, n.calls, n.failed, n.waited_ms, n.has_bodies, s.usage,
        (select count(*) from latest) as runs,
        (select count(*) from latest l where l.has_calls and not exists (select from calls c where c.id = l.id))
            as runs_without_rows
    from (values (1)) as one(row) left join counts n on true
    left join sums s on s.model = n.model and s.account = n.account
    order by n.calls desc nulls last, n.model, n.account limit :most
""")  # noqa: S608 (constants only)
"""One row without a model if there are no calls, for the two counts of runs."""


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """The calls to one model of one account. `usage`: counts as in rows. `failed`: calls that were not `ok`."""

    model: str
    account: str
    calls: int
    failed: int
    waited_ms: int  # for rate limits
    has_bodies: bool  # whether requests are stored, or were hidden
    usage: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RangeUsage:
    """The calls of the latest runs of a range, the model with the most calls first.

    `models` has one entry more than MAX_MODELS_OF_RANGE if there are more. `runs_without_rows`: runs among `runs` that
    used a model and have no rows, since calls were not stored or have been deleted.
    """

    models: Sequence[ModelUsage]
    runs: int
    runs_without_rows: int


def load_usage_of_run(tx: Transaction, run_id: RunId) -> list[ModelUsage]:
    """Return the calls of a run by model, those with the most calls first; one more than MAX_MODELS if there are more.

    Empty if no calls are stored.
    """
    return [_usage(row) for row in tx.rows(OF_RUN, run_id=run_id, most=MAX_MODELS + 1)]


def load_usage_of_range(tx: Transaction, tenant_id: TenantId, chosen: RunRange) -> RangeUsage:
    """Return the calls of the tenant's latest MAX_RUNS runs in a range, of each run up to MAX_CALLS calls."""
    rows = tx.rows(
        OF_RANGE,
        tenant_id=tenant_id,
        canvas_id=chosen.canvas_id,
        first=first_id_at(chosen.first),
        end=first_id_at(chosen.end),
        most_runs=MAX_RUNS,
        most_calls=MAX_CALLS,
        most=MAX_MODELS_OF_RANGE + 1,
    )
    return RangeUsage([_usage(row) for row in rows if row.model is not None], rows[0].runs, rows[0].runs_without_rows)


def _usage(row: Any) -> ModelUsage:
    usage = {name: int(amount) for name, amount in (row.usage or {}).items()}
    return ModelUsage(row.model, row.account, row.calls, row.failed, int(row.waited_ms), row.has_bodies, usage)
