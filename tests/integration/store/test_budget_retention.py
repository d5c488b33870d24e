"""Retention of budgets: limits of deleted runs, and amounts in which nothing was spent for a long time."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import insert, select

from store.db.database import Database
from store.primitives.ids import new_id
from store.tables.budgets import DEFAULT_SCOPE_ID, budget_limits, budget_spent
from store.tenants import budgets
from tests.integration.store.rows import add_run

NOW = datetime.now(UTC)
BEFORE = NOW - timedelta(days=30)
OLD = NOW - timedelta(days=60)
NO_DAY = date(1, 1, 1)


def delete_old(database: Database, tenant_id: UUID) -> tuple[int, int, int]:
    """Delete what is old; return the result, and how many limits and amounts of the tenant remain."""
    with database.transaction() as tx:
        deleted = budgets.delete_old(tx, BEFORE)
        tables = (budget_limits, budget_spent)
        remaining = [len(tx.rows(select(each).where(each.c.tenant_id == tenant_id))) for each in tables]
    return deleted, remaining[0], remaining[1]


@pytest.mark.parametrize(
    ("scope", "updated_at", "reserved", "is_deleted"),
    [
        ("run", OLD, 0, True),
        ("session", OLD, 0, True),
        ("day", OLD, 0, True),
        ("tenant", OLD, 0, False),
        ("run", NOW, 0, False),
        ("run", OLD, 5, False),
    ],
)
def test_spent_amount_is_deleted_if_it_is_old_without_a_reservation_and_not_the_tenants(
    database: Database, tenant_id: UUID, scope: str, updated_at: datetime, reserved: int, is_deleted: bool
):
    values = {"tenant_id": tenant_id, "scope": scope, "scope_id": new_id(), "day": NO_DAY, "measure": "calls"}
    with database.transaction() as tx:
        tx.execute(insert(budget_spent).values(**values, spent=7, reserved=reserved, updated_at=updated_at))
        for each in ({"measure": "tokens"}, {"scope": "day", "day": NOW.date()}, {"scope_id": new_id()}):
            tx.execute(insert(budget_spent).values(**{**values, **each}, updated_at=NOW))

    assert delete_old(database, tenant_id) == (int(is_deleted), 0, 3 if is_deleted else 4)


@pytest.mark.parametrize(
    ("scope", "updated_at", "is_default", "has_run", "is_deleted"),
    [
        ("run", OLD, False, False, True),
        ("run", NOW, False, False, False),
        ("run", OLD, True, False, False),
        ("run", OLD, False, True, False),
        ("session", OLD, False, False, False),
    ],
)
def test_limit_is_deleted_if_it_is_old_and_its_run_does_not_exist(
    database: Database,
    tenant_id: UUID,
    scope: str,
    updated_at: datetime,
    is_default: bool,
    has_run: bool,
    is_deleted: bool,
):
    with database.transaction() as tx:
        scope_id = add_run(tx, tenant_id) if has_run else DEFAULT_SCOPE_ID if is_default else new_id()
        values = {"tenant_id": tenant_id, "scope": scope, "scope_id": scope_id, "measure": "calls", "amount": 1}
        tx.execute(insert(budget_limits).values(**values, updated_at=updated_at))
        for each in ({"measure": "tokens"}, {"scope": "tenant"}, {"scope_id": new_id()}):
            tx.execute(insert(budget_limits).values(**{**values, **each}, updated_at=NOW))

    assert delete_old(database, tenant_id) == (int(is_deleted), 3 if is_deleted else 4, 0)
