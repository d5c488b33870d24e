"""The tables of budgets: limits, what is spent and reserved in them, and the reservations of calls in progress.

A run to which no limit applies has no rows in them.
"""

from uuid import UUID

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Date,
    ForeignKey,
    Index,
    Table,
    Text,
    Uuid,
    bindparam,
    exists,
    text,
)

from store.tables.runs import created_timestamp, metadata, timestamp

__all__ = ["DEFAULT_SCOPE_ID", "HAS_LIMIT", "budget_limits", "budget_reservations", "budget_spent", "metadata"]

DEFAULT_SCOPE_ID = UUID(int=0)
"""Stands in place of the id of a run or session: the limit of each run or session of the tenant without its own."""

budget_limits = Table(
    "budget_limits",
    metadata,
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True),
    # of the run or session; DEFAULT_SCOPE_ID; the tenant's for tenant and day
    Column("scope_id", Uuid, primary_key=True),
    Column("scope", Text, primary_key=True),  # canvas/budget.py: run | session | tenant | day
    Column("measure", Text, primary_key=True),  # tokens | calls | seconds (in ms) | a currency (in billionths)
    Column("amount", BigInteger, nullable=False),
    timestamp("due_at"),  # when a run with a limit of seconds is to end
    created_timestamp("updated_at"),
    Index("ix_budget_limits_due", "due_at", postgresql_where=text("due_at is not null")),
)

budget_spent = Table(
    "budget_spent",
    metadata,
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True),
    Column("scope_id", Uuid, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("day", Date, primary_key=True),  # of scope `day`; else 0001-01-01
    Column("measure", Text, primary_key=True),
    Column("spent", BigInteger, nullable=False, server_default="0"),
    Column("reserved", BigInteger, nullable=False, server_default="0"),
    Column("largest", BigInteger, nullable=False, server_default="0"),  # amount that a single call has used
    created_timestamp("updated_at"),
)

budget_reservations = Table(
    "budget_reservations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("run_id", Uuid, nullable=False),
    Column("activation_id", Uuid, nullable=False),
    Column("lease_id", Uuid, nullable=False),  # the reservation is released once this lease is lost
    Column("held", JSON, nullable=False),  # [{scope, scope_id, day, measure, amount}]
    created_timestamp("created_at"),
)

HAS_LIMIT = exists().where(
    budget_limits.c.tenant_id == bindparam("of_tenant", type_=Uuid),
    budget_limits.c.scope_id.in_(
        [DEFAULT_SCOPE_ID, bindparam("of_tenant", type_=Uuid), bindparam("of_session", type_=Uuid)]
    ),
)
"""Whether any limit applies to a run of a tenant and session that has no limit of its own."""
