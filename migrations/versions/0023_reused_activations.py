"""Add what a rerun or a fork has of its source: `runs.origin`, `runs.source_run`, and the activations that it reuses.

The index of source runs is built before, partition by partition, the oldest week first: only writers of that week wait
meanwhile, for as long as PostgreSQL reads the partition. It is empty, since the column is new.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

COLUMNS = (
    "alter table runs add column if not exists origin json",
    "alter table runs add column if not exists source_run uuid",
)
PARTITIONS = sa.text(
    "select inhrelid::regclass::text from pg_inherits where inhparent = to_regclass('runs') order by 1"
)


def prepare(connection: sa.Connection) -> list[str]:
    """Return statements that add the columns and build the index of each partition."""
    partitions = [partition for (partition,) in connection.execute(PARTITIONS).all()]
    partitions.sort(key=lambda partition: (partition == "runs_default", partition))
    indexes = [
        f"create index if not exists ix_{partition}_source on {partition} (source_run) where source_run is not null"
        for partition in partitions
    ]
    return [*COLUMNS, *indexes]


def upgrade() -> None:
    for statement in COLUMNS:
        op.execute(statement)
    op.create_index("ix_runs_source", "runs", ["source_run"], postgresql_where=sa.text("source_run is not null"))
    op.create_table(
        "reused_activations",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("activation_id", sa.Uuid(), nullable=False),
        sa.Column("source_activation", sa.Uuid(), nullable=False),
        sa.Column("outputs", sa.JSON()),
        sa.PrimaryKeyConstraint("run_id", "activation_id", name="pk_reused_activations"),
        postgresql_partition_by="RANGE (run_id)",
    )
    op.execute("create table reused_activations_default partition of reused_activations default")
