"""Keep the attempts before a retry and the model calls of a run, and say more of each tool call.

The previous release writes none of these rows and does not read the new columns.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

TOOL_CALL_COLUMNS = (
    ("activation_id", sa.Uuid()),
    ("attempt", sa.Integer()),
    ("round", sa.Text()),
    ("ordinal", sa.Integer()),
    ("started_at", sa.DateTime(timezone=True)),
    ("failed", sa.Boolean()),
    ("replayed", sa.Boolean()),
)
WEEKS = sa.text("""
    select substring(child.relname from '_p(\\d{4}w\\d{2})$') as week,
        pg_get_expr(child.relpartbound, child.oid) as bounds
    from pg_inherits join pg_class child on child.oid = inhrelid
    where inhparent = to_regclass('runs') and child.relname ~ '_p\\d{4}w\\d{2}$'
    order by 1
""")


def upgrade() -> None:
    for name, kind in TOOL_CALL_COLUMNS:
        op.add_column("tool_calls", sa.Column(name, kind))
    _attempts()
    _model_calls()
    for table in ("attempts", "model_calls", "call_parts"):
        op.execute(f"create table {table}_default partition of {table} default")
    # statements name the partitions of a week only if all of these tables have one
    for week, bounds in op.get_bind().execute(WEEKS).all():
        op.execute(f"create table attempts_p{week} partition of attempts {bounds}")


def _attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("activation_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("ready_at", sa.DateTime(timezone=True)),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("worker", sa.Text()),
        sa.Column("end_reason", sa.Text(), nullable=False),
        sa.Column("code", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True)),
        sa.Column("usage", sa.JSON()),
        sa.Column("crash_count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "activation_id", "attempt", name="pk_attempts"),
        postgresql_partition_by="RANGE (run_id)",
    )


def _model_calls() -> None:
    op.create_table(
        "model_calls",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("activation_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("round", sa.Text()),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("first_token_at", sa.DateTime(timezone=True)),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("waited_ms", sa.Integer(), nullable=False),
        sa.Column("usage", sa.JSON()),
        sa.Column("request", sa.JSON()),
        sa.Column("response", sa.Uuid()),
        sa.PrimaryKeyConstraint("run_id", "id", name="pk_model_calls"),
        postgresql_partition_by="RANGE (run_id)",
    )
    op.create_index("ix_model_calls_activation", "model_calls", ["run_id", "activation_id"])
    op.create_table(
        "call_parts",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.Uuid(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "digest", name="pk_call_parts"),
        postgresql_partition_by="RANGE (run_id)",
    )
