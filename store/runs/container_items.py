"""The items of a container that was opened, one row each: state, times, what they used, and their first error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Text, bindparam, text

from canvas.ids import ActivationId, RunId
from canvas.state.run_state import scope_key
from store.db.transaction import Transaction
from store.runs.activation_list import CONTAINER_OPENED, entry_prefix

MAX_ERROR_LENGTH = 200  # characters of an item's error


class ItemOrder(StrEnum):
    """The order of items in a list; those that cost or take most come first."""

    ITEM = "item"
    SLOWEST = "slowest"
    COST = "cost"


class ItemState(StrEnum):
    """The state of an item. FAILED: an activation in it has failed, also if the author's policy continued."""

    ACTIVE = "active"
    FAILED = "failed"
    DONE = "done"
    CLOSED = "closed"


CONTAINER = text("""
    select node_id, scope, ordinal, outcome ->> 'is' as outcome, cast(outcome ->> 'count' as int) as count, now() as now
    from activations where run_id = :run_id and id = :id
""")
_ORDERS = {
    ItemOrder.ITEM: "item",
    ItemOrder.SLOWEST: "coalesce(last_finished, now()) - first_started desc nulls last, item",
    ItemOrder.COST: "cost desc nulls last, item",
}
_MILLISECONDS = "cast(round(date_part('epoch', {}) * 1000) as bigint)"
ITEMS = {
    order: text(f"""
        with inside as (
            select cast(split_part(substr(scope, length(:entry) + 1), '/', 1) as int) as item, status, attempt,
                created_at, case when status not in ('queued', 'ready') then started_at end as started_at,
                case when status not in ('queued', 'ready', 'running') then finished_at end as finished_at,
                case when cast(usage as text) not in ('{{}}', 'null') then usage end as usage, order_key, outcome,
                case when status = 'done' and strpos(cast(outcome as text), '"Failed"') > 0
                    then outcome ->> 'is' = 'Failed' else false end as is_failed
            from activations where run_id = :run_id and starts_with(scope, :entry)
        ), spent as (
            select item, json_object_agg(key, amount) as usage,
                sum(amount) filter (where starts_with(key, 'cost_')) as cost
            from (
                select i.item, u.key, sum(cast(u.value as numeric)) as amount
                from inside i cross join lateral json_each_text(i.usage) u
                where u.key = 'total_tokens' or starts_with(u.key, 'cost_') group by 1, 2
            ) by_key group by item
        ), items as (
            select item, count(*) as steps, count(*) filter (where is_failed) as failed, sum(attempt) as attempts,
                min(created_at) as first_created, min(started_at) as first_started, max(finished_at) as last_finished,
                case
                    when count(*) filter (where is_failed) > 0 then 'failed'
                    when count(*) filter (where status not in ('done', 'closed')) > 0 then 'active'
                    when count(*) filter (where status = 'closed') > 0 then 'closed'
                    else 'done'
                end as state,
                count(*) filter (where status not in ('done', 'closed')) = 0 as has_ended,
                left((array_agg(outcome ->> 'error' order by order_key) filter (where is_failed))[1],
                    {MAX_ERROR_LENGTH + 1}) as error
            from inside group by item
        )
        select item, state, {_MILLISECONDS.format("first_created")} as created_at,
            {_MILLISECONDS.format("first_started")} as started_at,
            case when has_ended then {_MILLISECONDS.format("last_finished")} end as ended_at,
            steps, failed, attempts, spent.usage, error
        from items left join spent using (item)
        where item < :count and (:state is null or state = :state)
        order by {_ORDERS[order]} limit :most offset :skipped
    """).bindparams(bindparam("entry", type_=Text), bindparam("state", type_=Text))  # noqa: S608 (constants only)
    for order in ItemOrder
}
ENDED = text("""
    select count(*) filter (where has_ended) from (
        select bool_and(status in ('done', 'closed')) as has_ended
        from activations where run_id = :run_id and starts_with(scope, :entry)
            and cast(split_part(substr(scope, length(:entry) + 1), '/', 1) as int) < :count
        group by split_part(substr(scope, length(:entry) + 1), '/', 1)
    ) items
""").bindparams(bindparam("entry", type_=Text))

_ANY_NUMBER = 2**31 - 1


class ItemRow(NamedTuple):
    """One item. Times are milliseconds since 1970; `ended_at` is None while something in it is open."""

    item: int
    state: str
    created_at: int
    started_at: int | None
    ended_at: int | None
    steps: int  # activations
    failed: int
    attempts: int
    usage: Mapping[str, int] | None  # total_tokens, and cost by currency as in rows
    error: str | None  # has one character more than MAX_ERROR_LENGTH if it was cut


@dataclass(frozen=True, slots=True)
class ItemPage:
    """A part of a container's items. `count`: None for a Loop; `ended`: how many items have ended, in all."""

    now: datetime
    count: int | None
    ended: int
    rows: Sequence[ItemRow]
    has_more: bool


class NotAContainer(Exception):
    """The activation has not opened a container."""


def read_items(
    tx: Transaction,
    run_id: RunId,
    container: ActivationId,
    *,
    order: ItemOrder = ItemOrder.ITEM,
    state: ItemState | None = None,
    first: int = 0,
    limit: int = 2_000,
) -> ItemPage | None:
    """Return a part of the items of a container, after the first `first` ones in this order.

    Returns None if the run has no such activation. Raises NotAContainer. The visit that collects the results after the
    last item is not an item.
    """
    opened = tx.one_or_none(CONTAINER, run_id=run_id, id=container)
    if opened is None:
        return None
    if opened["outcome"] != CONTAINER_OPENED:
        raise NotAContainer
    entry = entry_prefix(scope_key(opened["scope"]), opened["node_id"], opened["ordinal"])
    inside: Mapping[str, Any] = {
        "run_id": run_id,
        "entry": entry,
        "count": opened["count"] if opened["count"] is not None else _ANY_NUMBER,
    }
    found = tx.send(ITEMS[order], **inside, state=state, most=limit + 1, skipped=first)
    ended = tx.scalar(ENDED, **inside)
    rows = [ItemRow(*row) for row in found.rows()]
    return ItemPage(opened["now"], opened["count"], ended, rows[:limit], len(rows) > limit)
