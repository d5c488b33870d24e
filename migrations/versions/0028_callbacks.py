"""Add callbacks: who is told of runs, the secrets that sign, and deliveries, which a trigger of `runs` inserts.

The trigger sees every way in which a run ends or begins to wait, also those of the previous release. It costs a run
without callbacks one comparison: `runs.has_callbacks` is false (docs/decisions/0076-a-trigger-inserts-deliveries.md).
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

ENQUEUE = """
    create function runs_enqueue_callbacks() returns trigger language plpgsql as $$ begin
        insert into callback_deliveries
            (id, tenant_id, callback_id, event, include, run_id, canvas_id, conversation_id, revision, facts)
        select gen_random_uuid(), new.tenant_id, coalesce(c.stored_id, c.id), 'run.' || new.status, c.include,
            new.id, new.canvas_id, new.conversation_id, new.revision,
            json_build_object('error', new.error, 'usage', new.usage, 'failing', new.state -> 'failing',
                'forms', new.state -> 'forms')
        from callbacks c left join callbacks s on s.id = c.stored_id
        where c.tenant_id = new.tenant_id
            and (c.run_id = new.id or (c.run_id is null and c.canvas_id = new.canvas_id))
            and c.disabled_at is null and s.disabled_at is null and ('run.' || new.status) = any(c.events)
        on conflict do nothing;
        return null;
    end $$
"""
TRIGGER = """
    create trigger runs_enqueue_callbacks after update of status on runs for each row
    when (new.has_callbacks and new.status is distinct from old.status
        and new.status in ('succeeded', 'failed', 'cancelled', 'waiting'))
    execute function runs_enqueue_callbacks()
"""


def upgrade() -> None:
    op.create_table(
        "callbacks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("canvas_id", sa.Uuid()),
        sa.Column("run_id", sa.Uuid()),
        sa.Column("stored_id", sa.Uuid()),
        sa.Column("url", sa.Text(), nullable=False, server_default=""),
        sa.Column("events", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("include", sa.ARRAY(sa.Text()), nullable=False, server_default="{}"),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("sealed_secret", sa.LargeBinary()),
        sa.Column("sealed_former", sa.LargeBinary()),
        sa.Column("former_until", sa.DateTime(timezone=True)),
        sa.Column("disabled_at", sa.DateTime(timezone=True)),
        sa.Column("disabled_because", sa.Text()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("id", name="pk_callbacks"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_callbacks_tenant_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["canvas_id"], ["canvases.id"], name="fk_callbacks_canvas_id", ondelete="CASCADE"),
    )
    op.create_index("ix_callbacks_tenant_id_canvas_id", "callbacks", ["tenant_id", "canvas_id"])
    op.create_index("ix_callbacks_run", "callbacks", ["run_id"], postgresql_where=sa.text("run_id is not null"))
    op.create_index(
        "ix_callbacks_stored", "callbacks", ["stored_id"], postgresql_where=sa.text("stored_id is not null")
    )
    op.create_table(
        "callback_secrets",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("sealed_secret", sa.LargeBinary(), nullable=False),
        sa.Column("sealed_former", sa.LargeBinary()),
        sa.Column("former_until", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("tenant_id", name="pk_callback_secrets"),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name="fk_callback_secrets_tenant_id", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "callback_deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("callback_id", sa.Uuid(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("include", sa.ARRAY(sa.Text()), nullable=False, server_default="{}"),
        sa.Column("run_id", sa.Uuid()),
        sa.Column("canvas_id", sa.Uuid()),
        sa.Column("conversation_id", sa.Uuid()),
        sa.Column("revision", sa.Integer()),
        sa.Column("facts", sa.JSON()),
        sa.Column("body", sa.Text()),
        sa.Column("status", sa.Text(), nullable=False, server_default="pending"),
        sa.Column("attempt", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("latest_attempts", sa.JSON()),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("round_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_callback_deliveries"),
    )
    op.create_index(
        "uq_callback_deliveries_occurrence", "callback_deliveries", ["callback_id", "run_id", "revision"], unique=True
    )
    op.create_index(
        "ix_callback_deliveries_due", "callback_deliveries", ["due_at"], postgresql_where=sa.text("status = 'pending'")
    )
    op.create_index(
        "ix_callback_deliveries_newest", "callback_deliveries", ["tenant_id", "status", "occurred_at", "id"]
    )
    op.create_index("ix_callback_deliveries_run_id", "callback_deliveries", ["run_id"])
    op.create_index("ix_callback_deliveries_ended_at", "callback_deliveries", ["ended_at"])
    op.add_column("runs", sa.Column("has_callbacks", sa.Boolean(), nullable=False, server_default=sa.text("false")))
    op.execute(ENQUEUE)
    op.execute(TRIGGER)
