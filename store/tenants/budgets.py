"""Budgets as rows: limits, the amounts spent in them, and the reservations that model calls hold while they run.

A call locks every budget that applies to it, in one order, authorizes the call (canvas/budget.py) and writes the
reservation, all in one transaction. So parallel branches never reserve the same money. A run whose row says that no
limit applies to it (`runs.budgeted`) reads and writes nothing here.

`budget_limits` has the limits that were set; `budget_spent` has one row per scope, id, day and measure in which
something was spent or reserved, and is what a call locks; `budget_reservations` has one row per call in progress, with
the amounts that it holds in each budget (`held`, as JSON: BudgetRow.as_held).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.budget import Account, Scope
from canvas.errors import NotFound
from canvas.ids import RunId, TenantId
from store.db.transaction import Transaction
from store.primitives.json_codec import encode
from store.runs.activations import Claim
from store.tables.budgets import DEFAULT_SCOPE_ID

BATCH = 500

# -- SQL that several statements share --------------------------------------------------------------------------------
_LIMITS_OF_RUN = """
    select distinct on (scope, measure) scope, measure, amount,
        case scope when 'run' then cast(:run_id as uuid) when 'session' then cast(:session_id as uuid)
          else cast(:tenant_id as uuid) end as scope_id,
        case scope when 'day' then cast(:today as date) else date '0001-01-01' end as day
    from budget_limits
    where tenant_id = :tenant_id and measure <> 'seconds' and scope_id in (:each, :tenant_id, :session_id, :run_id)
    order by scope, measure, scope_id = :each
"""
"""The limits that apply to the attempt's run. A limit of this run or session precedes the default one (`:each`) of the
same scope and measure."""
_LIMITS_OF_TENANT = """
    select scope, measure, amount, scope_id,
        case scope when 'day' then cast(:today as date) else date '0001-01-01' end as day
    from budget_limits
    where tenant_id = :tenant_id and scope in ('tenant', 'day') and measure <> 'seconds' and scope_id = :tenant_id
"""
"""The limits that apply to a tenant's call outside of any run."""
_RELEASE_AND_SETTLE = """
    parts as (
        select g.tenant_id, h.scope, h.scope_id, h.day, h.measure, cast(sum(h.amount) as bigint) as amount
        from gone g
        cross join lateral json_to_recordset(g.held)
          as h(scope text, scope_id uuid, day date, measure text, amount bigint)
        group by g.tenant_id, h.scope, h.scope_id, h.day, h.measure
    ), mine as (
        select p.*, cast(coalesce(cast(:used as json) ->> p.measure, '0') as bigint) as used
        from budget_spent s
        join parts p on s.tenant_id = p.tenant_id and s.scope = p.scope and s.scope_id = p.scope_id and s.day = p.day
          and s.measure = p.measure
        order by s.tenant_id, s.scope, s.scope_id, s.day, s.measure for no key update of s
    )
    update budget_spent s set reserved = greatest(0, s.reserved - m.amount),
        spent = s.spent + m.used, largest = greatest(s.largest, m.used), updated_at = now()
    from mine m
    where s.tenant_id = m.tenant_id and s.scope = m.scope and s.scope_id = m.scope_id and s.day = m.day
      and s.measure = m.measure
"""
"""Release the amounts (`parts`) that deleted reservations (`gone`) held, and add what their calls used. The rows are
locked in the order that all transactions use (`mine`) before they are updated."""

# -- a call of an attempt ---------------------------------------------------------------------------------------------
INSERT_SPENT = text(f"""
    with known as ({_LIMITS_OF_RUN})
    insert into budget_spent as s (tenant_id, scope, scope_id, day, measure, spent)
    select :tenant_id, k.scope, k.scope_id, k.day, k.measure, case k.scope when 'run' then coalesce((
        select cast(r.usage ->> case k.measure when 'tokens' then 'total_tokens' when 'calls' then 'calls'
          else 'cost_' || k.measure end as bigint) from runs r where r.id = :run_id), 0) else 0 end
    from known k
    where not exists (
        select from budget_spent s
        where s.tenant_id = :tenant_id and s.scope = k.scope and s.scope_id = k.scope_id and s.day = k.day
          and s.measure = k.measure)
    order by scope, scope_id, day, measure
    on conflict do nothing
""")  # noqa: S608 (constants only)
"""Insert the missing rows of `budget_spent`. The row of a run begins with what the run has used so far."""
LOCK_SPENT = text(f"""
    with known as ({_LIMITS_OF_RUN})
    select k.scope, k.scope_id, k.day, k.measure, k.amount, s.spent, s.reserved, s.largest
    from budget_spent s
    join known k on s.scope = k.scope and s.scope_id = k.scope_id and s.day = k.day and s.measure = k.measure
    where s.tenant_id = :tenant_id
    order by s.scope, s.scope_id, s.day, s.measure for no key update of s
""")  # noqa: S608 (constants only)
RESERVE = text("""
    update budget_spent s set reserved = s.reserved + h.amount, updated_at = now()
    from json_to_recordset(cast(:held as json))
      as h(scope text, scope_id uuid, day date, measure text, amount bigint)
    where s.tenant_id = :tenant_id and s.scope = h.scope and s.scope_id = h.scope_id and s.day = h.day
      and s.measure = h.measure
""")
INSERT_RESERVATION = text("""
    insert into budget_reservations (id, tenant_id, run_id, activation_id, lease_id, held)
    values (:id, :tenant_id, :run_id, :activation_id, :lease_id, cast(:held as json))
""")
SETTLE = text(f"""
    with gone as (
        delete from budget_reservations where id = :id returning tenant_id, held
    ), {_RELEASE_AND_SETTLE}
""")  # noqa: S608 (constants only)
"""Delete a reservation, release the amounts that it held, and add what the call used."""
RELEASE_ORPHANS = text(f"""
    with gone as (
        delete from budget_reservations r
        using (
            select id from budget_reservations o
            where not exists (
                select from activations a where a.run_id = o.run_id and a.id = o.activation_id
                    and a.lease_id = o.lease_id and a.status = 'running')
            order by id limit :most for update skip locked
        ) dead
        where r.id = dead.id returning r.tenant_id, r.held
    ), {_RELEASE_AND_SETTLE}
""")  # noqa: S608 (constants only)
"""The same as SETTLE for every reservation whose attempt no longer holds its lease; such a call has used nothing."""

# -- a call of a tenant outside of any run ----------------------------------------------------------------------------
LOCK_SPENT_OF_TENANT = text(f"""
    with known as ({_LIMITS_OF_TENANT})
    select k.scope, k.scope_id, k.day, k.measure, k.amount, s.spent, s.reserved, s.largest
    from budget_spent s
    join known k on s.scope = k.scope and s.scope_id = k.scope_id and s.day = k.day and s.measure = k.measure
    where s.tenant_id = :tenant_id
    order by s.scope, s.scope_id, s.day, s.measure for no key update of s
""")  # noqa: S608 (constants only)
INSERT_SPENT_OF_TENANT = text(f"""
    with known as ({_LIMITS_OF_TENANT})
    insert into budget_spent (tenant_id, scope, scope_id, day, measure, spent)
    select :tenant_id, k.scope, k.scope_id, k.day, k.measure, 0 from known k
    order by scope, scope_id, day, measure on conflict do nothing
""")  # noqa: S608 (constants only)
SPEND = text("""
    update budget_spent s set spent = greatest(0, s.spent + h.amount), updated_at = now()
    from json_to_recordset(cast(:held as json))
      as h(scope text, scope_id uuid, day date, measure text, amount bigint)
    where s.tenant_id = :tenant_id and s.scope = h.scope and s.scope_id = h.scope_id and s.day = h.day
      and s.measure = h.measure
""")

# -- limits -----------------------------------------------------------------------------------------------------------
PUT_LIMIT = text("""
    insert into budget_limits as l (tenant_id, scope_id, scope, measure, amount, due_at)
    select :tenant_id, :scope_id, :scope, :measure, m.amount, case when :measure = 'seconds' and :scope_id <> :each
        then (select coalesce(created_at, now()) from (select 1) one left join runs on runs.id = :scope_id)
          + m.amount * interval '1 millisecond' end
    from (
        select least(cast(:amount as bigint), case when :is_asked then (
            select amount from budget_limits where tenant_id = :tenant_id and scope_id = :each and scope = :scope
                and measure = :measure) end) as amount
    ) m
    on conflict (tenant_id, scope_id, scope, measure)
        do update set amount = excluded.amount, due_at = excluded.due_at, updated_at = now()
""")
REMOVE_LIMITS = text(
    "delete from budget_limits where tenant_id = :tenant_id and scope = :scope and scope_id = :scope_id"
)
LIST = text("""
    select l.scope, l.scope_id, coalesce(s.day, date '0001-01-01') as day, l.measure, l.amount,
        coalesce(s.spent, 0) as spent, coalesce(s.reserved, 0) as reserved, coalesce(s.largest, 0) as largest
    from budget_limits l
    left join budget_spent s on s.tenant_id = l.tenant_id and s.scope = l.scope and s.scope_id = l.scope_id
      and s.day = case l.scope when 'day' then cast(:today as date) else date '0001-01-01' end
      and s.measure = l.measure
    where l.tenant_id = :tenant_id and (:is_all or l.scope_id = any(cast(:ids as uuid[])))
    order by l.scope, l.scope_id, l.measure limit :most
""")
UNFLAGGED = text("""
    select id from runs
    where tenant_id = :tenant_id and not budgeted and status in ('queued', 'running', 'waiting', 'stopping')
        and (:is_all or id = :scope_id or conversation_id = :scope_id)
""")
FLAG = text("update runs set budgeted = true where id = :run_id and tenant_id = :tenant_id")
IS_FLAGGED = text("select budgeted from runs where id = :run_id and tenant_id = :tenant_id")
SCOPE_EXISTS = text(
    "select exists (select from runs where tenant_id = :tenant_id and (id = :id or conversation_id = :id))"
)

# -- what the sweeper and maintenance do ------------------------------------------------------------------------------
OVER_TIME = text("""
    select r.id, l.amount from budget_limits l join runs r on r.id = l.scope_id
    where l.due_at < now() and r.status in ('running', 'waiting')
        and r.started_at + l.amount * interval '1 millisecond' < now()
    union all
    select r.id, l.amount from budget_limits l
    join runs r on r.tenant_id = l.tenant_id and r.status in ('running', 'waiting')
    where l.scope = 'run' and l.scope_id = :each and l.measure = 'seconds'
        and r.started_at + l.amount * interval '1 millisecond' < now()
        and not exists (select from budget_limits o where o.tenant_id = l.tenant_id and o.scope_id = r.id
            and o.scope = 'run' and o.measure = 'seconds')
    limit :most
""")
CLEAR_DEADLINES = text("""
    update budget_limits l set due_at = null
    where due_at < now() and not exists (
        select from runs r where r.id = l.scope_id and r.status in ('queued', 'running', 'waiting'))
""")
DELETE_OLD_SPENT = text("""
    delete from budget_spent t using (
        select tenant_id, scope, scope_id, day, measure from budget_spent
        where updated_at < :before and scope <> 'tenant' and reserved = 0 limit :most
    ) old
    where t.tenant_id = old.tenant_id and t.scope = old.scope and t.scope_id = old.scope_id and t.day = old.day
        and t.measure = old.measure
""")
DELETE_OLD_LIMITS = text("""
    delete from budget_limits l using (
        select tenant_id, scope_id, measure from budget_limits o
        where updated_at < :before and scope = 'run' and scope_id <> :each
            and not exists (select from runs r where r.id = o.scope_id) limit :most
    ) old
    where l.tenant_id = old.tenant_id and l.scope_id = old.scope_id and l.scope = 'run' and l.measure = old.measure
""")


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A budget that applies to a call: its row, and the account that canvas/budget.py authorizes from."""

    scope_id: UUID
    day: date
    account: Account

    def as_held(self, amount: int) -> dict[str, Any]:
        """Return an amount held in this budget, as a reservation stores it."""
        scope, measure = self.account.scope, self.account.measure
        return {"scope": scope, "scope_id": self.scope_id, "day": self.day, "measure": measure, "amount": amount}


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Limits to set for a run or session (DEFAULT_SCOPE_ID: for each one without its own), a tenant, or its day."""

    scope: Scope
    scope_id: UUID
    limits: Mapping[str, int] = field(default_factory=dict[str, int])


def lock_for_attempt(tx: Transaction, claim: Claim, today: date) -> list[BudgetRow]:
    """Lock every budget that applies to a call of this attempt, in the order that all transactions use; return them."""
    ids = {
        "tenant_id": claim.tenant_id,
        "session_id": claim.conversation_id,
        "run_id": claim.run_id,
        "today": today,
        "each": DEFAULT_SCOPE_ID,
    }
    tx.send(INSERT_SPENT, **ids)
    return [_budget_row(row) for row in tx.rows(LOCK_SPENT, **ids)]


def reserve(
    tx: Transaction, reservation: UUID, claim: Claim, budgets: Sequence[BudgetRow], amounts: Sequence[int]
) -> None:
    """Reserve an amount in each budget, which this transaction has locked. A reservation ends with the lease."""
    held = encode([each.as_held(amount) for each, amount in zip(budgets, amounts, strict=True)])
    tx.send(RESERVE, tenant_id=claim.tenant_id, held=held)
    tx.send(
        INSERT_RESERVATION,
        id=reservation,
        tenant_id=claim.tenant_id,
        run_id=claim.run_id,
        activation_id=claim.id,
        lease_id=claim.lease_id,
        held=held,
    )


def lock_for_tenant(tx: Transaction, tenant_id: TenantId, today: date) -> list[BudgetRow]:
    """Lock every budget that applies to a tenant's call outside of any run; return them."""
    tx.send(INSERT_SPENT_OF_TENANT, tenant_id=tenant_id, today=today)
    return [_budget_row(row) for row in tx.rows(LOCK_SPENT_OF_TENANT, tenant_id=tenant_id, today=today)]


def spend(tx: Transaction, tenant_id: TenantId, budgets: Sequence[BudgetRow], amounts: Sequence[int]) -> None:
    """Add an amount to what is spent in each budget at once, without a reservation. A negative amount is refunded."""
    held = encode([each.as_held(amount) for each, amount in zip(budgets, amounts, strict=True)])
    tx.send(SPEND, tenant_id=tenant_id, held=held)


def settle(tx: Transaction, reservation: UUID, used: Mapping[str, int]) -> None:
    """Replace what a call had reserved by what it used. Repeating this has no effect."""
    tx.send(SETTLE, id=reservation, used=encode(used))


def release_orphans(tx: Transaction, most: int = BATCH) -> int:
    """Release reservations whose attempts have lost their leases or are over; return the number of budgets changed."""
    return tx.execute(RELEASE_ORPHANS, most=most, used="{}")


def put_limits(tx: Transaction, tenant_id: TenantId, written: BudgetLimits, *, is_of_request: bool = False) -> None:
    """Set limits; limits of the same budget in other measures stay.

    `is_of_request`: the limits come with the request to start a run, which may lower the tenant's default limit of each
    run but not raise it.
    """
    for measure, amount in sorted(written.limits.items()):
        tx.send(
            PUT_LIMIT,
            tenant_id=tenant_id,
            scope_id=written.scope_id,
            scope=written.scope,
            measure=measure,
            amount=amount,
            is_asked=is_of_request,
            each=DEFAULT_SCOPE_ID,
        )


def remove_limits(tx: Transaction, tenant_id: TenantId, scope: Scope, scope_id: UUID) -> bool:
    """Remove all limits of a budget; return whether there were any."""
    return tx.execute(REMOVE_LIMITS, tenant_id=tenant_id, scope=scope, scope_id=scope_id) > 0


def list_budgets(
    tx: Transaction, tenant_id: TenantId, today: date, ids: Sequence[UUID] | None = None
) -> list[BudgetRow]:
    """Return a tenant's budgets as of today, or those of some scope ids, without locking them; at most BATCH."""
    rows = tx.rows(LIST, tenant_id=tenant_id, today=today, is_all=ids is None, ids=list(ids or ()), most=BATCH)
    return [_budget_row(row) for row in rows]


def unflagged_runs(tx: Transaction, tenant_id: TenantId, scope_id: UUID) -> list[RunId]:
    """Return open runs not yet flagged as budgeted; `scope_id`: of a run or session, or DEFAULT_SCOPE_ID for all."""
    is_all = scope_id == DEFAULT_SCOPE_ID
    return [row[0] for row in tx.rows(UNFLAGGED, tenant_id=tenant_id, scope_id=scope_id, is_all=is_all)]


def flag_run(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> None:
    """Flag a run as budgeted, so that its next model calls lock and check their budgets."""
    tx.send(FLAG, run_id=run_id, tenant_id=tenant_id)


def is_flagged(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> bool:
    """Return whether a run is flagged as budgeted."""
    return bool(tx.scalar(IS_FLAGGED, run_id=run_id, tenant_id=tenant_id))


def require_scope(tx: Transaction, tenant_id: TenantId, scope: Scope, scope_id: UUID) -> None:
    """Raise NotFound for a run or session that the tenant does not have."""
    if not tx.scalar(SCOPE_EXISTS, tenant_id=tenant_id, id=scope_id):
        raise NotFound(f"There is no {scope} {scope_id.hex}.")


def runs_over_time(tx: Transaction, most: int = BATCH) -> list[tuple[RunId, int]]:
    """Return runs that have exceeded their time limit, each with its limit in ms."""
    return [(row[0], row[1]) for row in tx.rows(OVER_TIME, each=DEFAULT_SCOPE_ID, most=most)]


def clear_deadlines(tx: Transaction) -> None:
    """Clear the deadlines of runs that have ended."""
    tx.send(CLEAR_DEADLINES)


def delete_old(tx: Transaction, before: datetime, most: int = BATCH) -> int:
    """Delete limits of deleted runs, and amounts of runs, sessions and days in which nothing was spent since `before`.

    Returns the larger of both numbers of rows; at most `most` of each go at once.
    """
    limits = tx.execute(DELETE_OLD_LIMITS, before=before, each=DEFAULT_SCOPE_ID, most=most)
    return max(limits, tx.execute(DELETE_OLD_SPENT, before=before, most=most))


def _budget_row(row: Any) -> BudgetRow:
    return BudgetRow(
        row.scope_id, row.day, Account(row.scope, row.measure, row.amount, row.spent, row.reserved, row.largest)
    )
