"""Attempts of an activation that became ready again: what they were, and why they ended.

An activation's own row describes its latest attempt. The row is copied here right before it becomes ready again, so a
run without such an activation has no rows. `end_reason`:

| worker_lost | its lease expired |
| released | its worker was shutting down |
| postponed | it waits for a rate limit, which `error` names |
| waited_for_input | a form: a person has answered |
| over_budget | no budget allowed its next model call |
| unknown_outcome | it may have acted, and a person has decided to repeat it |
| retried | any other failure |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, select, text, tuple_

from canvas.ids import ActivationId, RunId, TenantId
from canvas.outcome import LOST, OVER_BUDGET, POSTPONED, UNKNOWN_OUTCOME
from store.db.transaction import Transaction
from store.primitives.ids import NO_ID
from store.tables.runs import attempts, runs

MAX_ERROR_CHARS = 2_000
MAX_LISTED = 500  # attempts of a page

KEEP = text(f"""
    insert into attempts (run_id, activation_id, attempt, ready_at, started_at, ended_at, worker, end_reason, code,
        error, next_attempt_at, usage, crash_count)
    select a.run_id, a.id, a.attempt,
        case when a.not_before > a.created_at then a.not_before else coalesce(a.enqueued_at, a.created_at) end,
        a.started_at, a.finished_at, a.worker,
        case when a.outcome ->> 'is' = 'Waiting' then 'waited_for_input'
            when a.outcome ->> 'code' = '{LOST}' and a.effect = 'unsafe' then 'unknown_outcome'
            when a.outcome ->> 'code' = '{LOST}' then 'worker_lost'
            when a.outcome ->> 'code' = 'released' then 'released'
            when a.outcome ->> 'code' = '{POSTPONED}' then 'postponed'
            when a.outcome ->> 'code' = '{OVER_BUDGET}' then 'over_budget'
            when a.outcome ->> 'code' = '{UNKNOWN_OUTCOME}' then 'unknown_outcome'
            else 'retried' end,
        a.outcome ->> 'code', left(a.outcome ->> 'error', {MAX_ERROR_CHARS}),
        now() + make_interval(secs => m.seconds), coalesce(a.outcome -> 'used', a.usage), a.crash_count
    from unnest(cast(:ids as uuid[]), cast(:seconds as float8[])) as m(id, seconds)
    join activations a on a.run_id = :run_id and a.id = m.id
    on conflict do nothing
""")  # noqa: S608 (constants only)

_columns = [column for column in attempts.c if column.name != "run_id"]
LIST = (
    select(*_columns)
    .where(
        attempts.c.run_id == bindparam("of_run"),
        select(runs.c.id).where(runs.c.id == bindparam("of_run"), runs.c.tenant_id == bindparam("of_tenant")).exists(),
        tuple_(attempts.c.activation_id, attempts.c.attempt)
        > tuple_(bindparam("after_activation"), bindparam("after_attempt")),
    )
    .order_by(attempts.c.activation_id, attempts.c.attempt)
    .limit(bindparam("most"))
)
LIST_OF_ACTIVATION = LIST.where(attempts.c.activation_id == bindparam("of_activation"))


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """An attempt after which its activation became ready again. `usage` is its own."""

    activation_id: ActivationId
    attempt: int
    ready_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    worker: str | None
    end_reason: str
    code: str | None
    error: str | None
    next_attempt_at: datetime | None
    usage: Mapping[str, int] | None
    crash_count: int


def keep(tx: Transaction, run_id: RunId, delays: Mapping[ActivationId, float]) -> None:
    """Send the copy of activations that are about to become ready again, in so many seconds each.

    The caller has written their last outcomes, and has locked the run.
    """
    if delays:
        ids = sorted(delays)
        tx.send(KEEP, run_id=run_id, ids=ids, seconds=[delays[each] for each in ids])


def list_attempts(
    tx: Transaction,
    tenant_id: TenantId,
    run_id: RunId,
    *,
    activation_id: ActivationId | None = None,
    after: tuple[Any, int] = (NO_ID, 0),
    limit: int = MAX_LISTED,
) -> list[StoredAttempt]:
    """Return the earlier attempts of a tenant's run, or of one activation, by activation and number.

    `after`: activation and number of the last attempt of the page before.
    """
    values: dict[str, Any] = {"of_tenant": tenant_id, "of_run": run_id, "most": limit}
    values |= {"after_activation": after[0], "after_attempt": after[1]}
    if activation_id is not None:
        return [StoredAttempt(*row) for row in tx.rows(LIST_OF_ACTIVATION, **values, of_activation=activation_id)]
    return [StoredAttempt(*row) for row in tx.rows(LIST, **values)]
