"""Budgets as rows: limits, what is spent in them, and reservations that calls of models hold while they are under way.

All that counts for one call is locked in one order, judged (canvas/budget.py), and written, in one transaction; so
branches side by side never grant each other the same money. Nothing here is read or written for a run whose row says
that no limit counts for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.budget import Account, Scope
from canvas.errors import NotFound
from store.db.transaction import Transaction
from store.primitives.json_codec import encode
from store.runs.activations import Claim
from store.tables.budgets import DEFAULT_SCOPE_ID

BATCH = 500

_KEY = "scope, scope_id, day, measure"
_HELD = "(scope text, scope_id uuid, day date, measure text, amount bigint)"
_SAME = "s.scope = {0}.scope and s.scope_id = {0}.scope_id and s.day = {0}.day and s.measure = {0}.measure"

_KNOWN = """
    with known as (
        select distinct on (scope, measure) scope, measure, amount,
            case scope when 'run' then cast(:run_id as uuid) when 'session' then cast(:session_id as uuid)
              else cast(:tenant_id as uuid) end as scope_id,
            case scope when 'day' then cast(:today as date) else date '0001-01-01' end as day
        from budget_limits
        where tenant_id = :tenant_id and measure <> 'seconds' and scope_id in (:each, :tenant_id, :session_id, :run_id)
        order by scope, measure, scope_id = :each
    )
"""  # its own limit counts for a run or session before that for each
OPEN = text(f"""{_KNOWN}
    insert into budget_spent as s (tenant_id, {_KEY}, spent)
    select :tenant_id, k.scope, k.scope_id, k.day, k.measure, case k.scope when 'run' then coalesce((
        select cast(r.usage ->> case k.measure when 'tokens' then 'total_tokens' when 'calls' then 'calls'
          else 'cost_' || k.measure end as bigint) from runs r where r.id = :run_id), 0) else 0 end
    from known k
    where not exists (select from budget_spent s where s.tenant_id = :tenant_id and {_SAME.format("k")})
    order by {_KEY}
    on conflict do nothing
""")  # noqa: S608 (constants only)
LOCK = text(f"""{_KNOWN}
    select k.scope, k.scope_id, k.day, k.measure, k.amount, s.spent, s.reserved, s.largest
    from budget_spent s join known k on {_SAME.format("k")}
    where s.tenant_id = :tenant_id
    order by s.scope, s.scope_id, s.day, s.measure for no key update of s
""")  # noqa: S608
TAKE = text(f"""
    update budget_spent s set reserved = s.reserved + h.amount, updated_at = now()
    from json_to_recordset(cast(:held as json)) as h{_HELD}
    where s.tenant_id = :tenant_id and {_SAME.format("h")}
""")  # noqa: S608
NOTE = text("""
    insert into budget_reservations (id, tenant_id, run_id, activation_id, lease_id, held)
    values (:id, :tenant_id, :run_id, :activation_id, :lease_id, cast(:held as json))
""")
_END = f"""
    parts as (
        select g.tenant_id, h.scope, h.scope_id, h.day, h.measure, cast(sum(h.amount) as bigint) as amount
        from gone g cross join lateral json_to_recordset(g.held) as h{_HELD}
        group by g.tenant_id, h.scope, h.scope_id, h.day, h.measure
    ), mine as (
        select p.*, cast(coalesce(cast(:used as json) ->> p.measure, '0') as bigint) as used
        from budget_spent s join parts p on s.tenant_id = p.tenant_id and {_SAME.format("p")}
        order by s.tenant_id, s.scope, s.scope_id, s.day, s.measure for no key update of s
    )
    update budget_spent s set reserved = greatest(0, s.reserved - m.amount),
        spent = s.spent + m.used, largest = greatest(s.largest, m.used), updated_at = now()
    from mine m where s.tenant_id = m.tenant_id and {_SAME.format("m")}
"""  # noqa: S608
SETTLE = text(f"""
    with gone as (delete from budget_reservations where id = :id returning tenant_id, held), {_END}
""")  # noqa: S608
FREE = text(f"""
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
    ), {_END}
""")  # noqa: S608

_OF_TENANT = """
    with known as (
        select scope, measure, amount, scope_id,
            case scope when 'day' then cast(:today as date) else date '0001-01-01' end as day
        from budget_limits
        where tenant_id = :tenant_id and scope in ('tenant', 'day') and measure <> 'seconds' and scope_id = :tenant_id
    )
"""
LOCK_TENANT = text(f"""{_OF_TENANT}
    select k.scope, k.scope_id, k.day, k.measure, k.amount, s.spent, s.reserved, s.largest
    from budget_spent s join known k on {_SAME.format("k")}
    where s.tenant_id = :tenant_id
    order by s.scope, s.scope_id, s.day, s.measure for no key update of s
""")  # noqa: S608
OPEN_TENANT = text(f"""{_OF_TENANT}
    insert into budget_spent (tenant_id, {_KEY}, spent)
    select :tenant_id, k.scope, k.scope_id, k.day, k.measure, 0 from known k
    order by {_KEY} on conflict do nothing
""")  # noqa: S608
SPEND = text(f"""
    update budget_spent s set spent = greatest(0, s.spent + h.amount), updated_at = now()
    from json_to_recordset(cast(:held as json)) as h{_HELD}
    where s.tenant_id = :tenant_id and {_SAME.format("h")}
""")  # noqa: S608

PUT = text("""
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
REMOVE = text("delete from budget_limits where tenant_id = :tenant_id and scope = :scope and scope_id = :scope_id")
SHOW = text(f"""
    select l.scope, l.scope_id, coalesce(s.day, date '0001-01-01') as day, l.measure, l.amount,
        coalesce(s.spent, 0) as spent, coalesce(s.reserved, 0) as reserved, coalesce(s.largest, 0) as largest
    from budget_limits l left join budget_spent s on s.tenant_id = l.tenant_id and {
    _SAME.format("l").replace(
        "s.day = l.day", "s.day = case l.scope when 'day' then cast(:today as date) else date '0001-01-01' end"
    )
}
    where l.tenant_id = :tenant_id and (:is_all or l.scope_id = any(cast(:ids as uuid[])))
    order by l.scope, l.scope_id, l.measure limit :most
""")  # noqa: S608
UNMARKED = text("""
    select id from runs
    where tenant_id = :tenant_id and not budgeted and status in ('queued', 'running', 'waiting', 'stopping')
        and (:is_all or id = :scope_id or conversation_id = :scope_id)
""")
MARK = text("update runs set budgeted = true where id = :run_id and tenant_id = :tenant_id")
IS_MARKED = text("select budgeted from runs where id = :run_id and tenant_id = :tenant_id")
SEEN = text("select exists (select from runs where tenant_id = :tenant_id and (id = :id or conversation_id = :id))")
OVERTIME = text("""
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
NO_LONGER_DUE = text("""
    update budget_limits l set due_at = null
    where due_at < now() and not exists (
        select from runs r where r.id = l.scope_id and r.status in ('queued', 'running', 'waiting'))
""")
FORGET_SPENT = text("""
    delete from budget_spent t using (
        select tenant_id, scope, scope_id, day, measure from budget_spent
        where updated_at < :before and scope <> 'tenant' and reserved = 0 limit :most
    ) old
    where t.tenant_id = old.tenant_id and t.scope = old.scope and t.scope_id = old.scope_id and t.day = old.day
        and t.measure = old.measure
""")
FORGET_LIMITS = text("""
    delete from budget_limits l using (
        select tenant_id, scope_id, measure from budget_limits o
        where updated_at < :before and scope = 'run' and scope_id <> :each
            and not exists (select from runs r where r.id = o.scope_id) limit :most
    ) old
    where l.tenant_id = old.tenant_id and l.scope_id = old.scope_id and l.scope = 'run' and l.measure = old.measure
""")


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A budget that counts for a call, locked; its row, and what is judged of it."""

    scope_id: UUID
    day: date
    account: Account

    def holding(self, amount: int) -> dict[str, Any]:
        """What a reservation remembers of it."""
        scope, measure = self.account.scope, self.account.measure
        return {"scope": scope, "scope_id": self.scope_id, "day": self.day, "measure": measure, "amount": amount}


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Limits that somebody sets for a run or session (EACH: for each), a tenant, or its day."""

    scope: Scope
    scope_id: UUID
    limits: Mapping[str, int] = field(default_factory=dict[str, int])


def lock_for_attempt(tx: Transaction, claim: Claim, today: date) -> list[BudgetRow]:
    """Lock every budget that counts for a call of this attempt; in the same order for everybody."""
    whose = {
        "tenant_id": claim.tenant_id,
        "session_id": claim.conversation_id,
        "run_id": claim.run_id,
        "today": today,
        "each": DEFAULT_SCOPE_ID,
    }
    tx.later(OPEN, **whose)
    return [_kept(row) for row in tx.rows(LOCK, **whose)]


def reserve(
    tx: Transaction, reservation: UUID, claim: Claim, kept: Sequence[BudgetRow], amounts: Sequence[int]
) -> None:
    """Reserve in budgets that this transaction has locked; as long as the attempt's lease lives, it holds."""
    held = encode([each.holding(amount) for each, amount in zip(kept, amounts, strict=True)])
    tx.later(TAKE, tenant_id=claim.tenant_id, held=held)
    tx.later(
        NOTE,
        id=reservation,
        tenant_id=claim.tenant_id,
        run_id=claim.run_id,
        activation_id=claim.id,
        lease_id=claim.lease_id,
        held=held,
    )


def lock_for_tenant(tx: Transaction, tenant_id: UUID, today: date) -> list[BudgetRow]:
    """Lock every budget that counts for a call of a tenant's that no run makes."""
    tx.later(OPEN_TENANT, tenant_id=tenant_id, today=today)
    return [_kept(row) for row in tx.rows(LOCK_TENANT, tenant_id=tenant_id, today=today)]


def spend(tx: Transaction, tenant_id: UUID, kept: Sequence[BudgetRow], amounts: Sequence[int]) -> None:
    """Count amounts in budgets at once, with no lease that could end. What is less than nothing is given back."""
    held = encode([each.holding(amount) for each, amount in zip(kept, amounts, strict=True)])
    tx.later(SPEND, tenant_id=tenant_id, held=held)


def settle(tx: Transaction, reservation: UUID, used: Mapping[str, int]) -> None:
    """What a call has used takes the place of what it had reserved. Telling it twice counts it once."""
    tx.later(SETTLE, id=reservation, used=encode(used))


def release_orphans(tx: Transaction, most: int = BATCH) -> int:
    """Let go of reservations whose attempts have lost their leases or are over; how many budgets that concerns."""
    return tx.run(FREE, most=most, used="{}")


def put(tx: Transaction, tenant_id: UUID, written: BudgetLimits, *, is_asked: bool = False) -> None:
    """Set limits; others of the same budget stay.

    `is_asked`: by whoever starts a run, who may lower what each run may spend, and not raise it.
    """
    for measure, amount in sorted(written.limits.items()):
        tx.later(
            PUT,
            tenant_id=tenant_id,
            scope_id=written.scope_id,
            scope=written.scope,
            measure=measure,
            amount=amount,
            is_asked=is_asked,
            each=DEFAULT_SCOPE_ID,
        )


def remove(tx: Transaction, tenant_id: UUID, scope: Scope, scope_id: UUID) -> bool:
    """Take all limits of a budget away; whether there were any."""
    return tx.run(REMOVE, tenant_id=tenant_id, scope=scope, scope_id=scope_id) > 0


def list_budgets(tx: Transaction, tenant_id: UUID, today: date, ids: Sequence[UUID] | None = None) -> list[BudgetRow]:
    """A tenant's budgets as they stand today, or those of some ids. None is locked."""
    found = tx.rows(SHOW, tenant_id=tenant_id, today=today, is_all=ids is None, ids=list(ids or ()), most=BATCH)
    return [_kept(row) for row in found]


def unflagged_runs(tx: Transaction, tenant_id: UUID, scope_id: UUID) -> list[UUID]:
    """Open runs that do not know yet of a budget that counts for them; `scope_id`: a run, a session, or EACH."""
    return [
        row[0] for row in tx.rows(UNMARKED, tenant_id=tenant_id, scope_id=scope_id, is_all=scope_id == DEFAULT_SCOPE_ID)
    ]


def flag_run(tx: Transaction, tenant_id: UUID, run_id: UUID) -> None:
    """Have a run's next calls of models ask their budgets."""
    tx.later(MARK, run_id=run_id, tenant_id=tenant_id)


def is_marked(tx: Transaction, tenant_id: UUID, run_id: UUID) -> bool:
    """Whether a budget counts for a run."""
    return bool(tx.scalar(IS_MARKED, run_id=run_id, tenant_id=tenant_id))


def require_scope(tx: Transaction, tenant_id: UUID, scope: Scope, scope_id: UUID) -> None:
    """Raise NotFound for a run or session that the tenant does not have."""
    if not tx.scalar(SEEN, tenant_id=tenant_id, id=scope_id):
        raise NotFound(f"There is no {scope} {scope_id.hex}.")


def runs_over_time(tx: Transaction, most: int = BATCH) -> list[tuple[UUID, int]]:
    """Runs that have taken longer than they may, and how long that was (ms)."""
    return [(row[0], row[1]) for row in tx.rows(OVERTIME, each=DEFAULT_SCOPE_ID, most=most)]


def clear_deadlines(tx: Transaction) -> None:
    """Forget when runs were to end that have ended."""
    tx.later(NO_LONGER_DUE)


def forget(tx: Transaction, before: datetime, most: int = BATCH) -> int:
    """Delete what was counted for runs, sessions and days that nothing has been spent in since then."""
    limits = tx.run(FORGET_LIMITS, before=before, each=DEFAULT_SCOPE_ID, most=most)
    return max(limits, tx.run(FORGET_SPENT, before=before, most=most))


def _kept(row: Any) -> BudgetRow:
    return BudgetRow(
        row.scope_id, row.day, Account(row.scope, row.measure, row.amount, row.spent, row.reserved, row.largest)
    )
