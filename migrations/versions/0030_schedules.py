"""Add schedules, and what came of their slots. The previous release has neither: it deletes them with their agent."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "schedules",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("canvas_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("start", sa.JSON(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False, server_default="new"),
        sa.Column("overlap", sa.Text(), nullable=False, server_default="skip"),
        sa.Column("catch_up_window", sa.Interval(), nullable=False),
        sa.Column("catch_up_at_most", sa.Integer(), nullable=False),
        sa.Column("end_at", moment),
        sa.Column("max_runs", sa.Integer()),
        sa.Column("paused", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.Column("paused_reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("next_at", moment),
        sa.Column("due_at", moment),
        sa.Column("waiting_since", moment),
        sa.Column("last_at", moment),
        sa.Column("last_run", sa.Uuid()),
        sa.Column("started", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("refusals", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("conversation_id", sa.Uuid()),
        sa.Column("token_id", sa.Uuid()),
        sa.Column("created_at", moment, nullable=False, server_default=sa.func.now()),
        sa.Column("updated_at", moment, nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("id", name="pk_schedules"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_schedules_tenant_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["canvas_id"], ["canvases.id"], name="fk_schedules_canvas_id", ondelete="CASCADE"),
    )
    op.create_index("ix_schedules_tenant_id_id", "schedules", ["tenant_id", "id"])
    op.create_index("ix_schedules_canvas_id", "schedules", ["canvas_id"])
    op.create_index("ix_schedules_due", "schedules", ["due_at"], postgresql_where=sa.text("due_at is not null"))
    op.create_table(
        "schedule_fires",
        sa.Column("schedule_id", sa.Uuid(), nullable=False),
        sa.Column("slot", moment, nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid()),
        sa.Column("is_over", sa.Boolean(), nullable=False, server_default=sa.text("true")),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("slots", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("by_hand", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.Column("created_at", moment, nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("schedule_id", "slot", name="pk_schedule_fires"),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name="fk_schedule_fires_schedule_id", ondelete="CASCADE"
        ),
    )
