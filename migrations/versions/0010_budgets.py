"""Create the tables of budgets: limits, what is spent in them, and reservations; flag runs to which a limit applies."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def _of_tenant(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=f"fk_{table}_tenant_id", ondelete="CASCADE")


def upgrade() -> None:
    op.add_column("runs", sa.Column("budgeted", sa.Boolean, nullable=False, server_default=sa.text("false")))
    op.create_table(
        "budget_limits",
        sa.Column("tenant_id", sa.Uuid, nullable=False),
        sa.Column("scope_id", sa.Uuid, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("measure", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True)),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("tenant_id", "scope_id", "scope", "measure", name="pk_budget_limits"),
        _of_tenant("budget_limits"),
    )
    op.create_index("ix_budget_limits_due", "budget_limits", ["due_at"], postgresql_where=sa.text("due_at is not null"))
    op.create_table(
        "budget_spent",
        sa.Column("tenant_id", sa.Uuid, nullable=False),
        sa.Column("scope_id", sa.Uuid, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("measure", sa.Text, nullable=False),
        sa.Column("spent", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("reserved", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("largest", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("tenant_id", "scope_id", "scope", "day", "measure", name="pk_budget_spent"),
        _of_tenant("budget_spent"),
    )
    op.create_table(
        "budget_reservations",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("tenant_id", sa.Uuid, nullable=False),
        sa.Column("run_id", sa.Uuid, nullable=False),
        sa.Column("activation_id", sa.Uuid, nullable=False),
        sa.Column("lease_id", sa.Uuid, nullable=False),
        sa.Column("held", sa.JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("id", name="pk_budget_reservations"),
        _of_tenant("budget_reservations"),
    )
    op.create_index("ix_budget_reservations_tenant_id", "budget_reservations", ["tenant_id"])
