"""Add external ids of runs, and indexes for lists of runs by the time of acceptance.

The indexes are built before, partition by partition, the oldest week first: only writers of that week wait meanwhile.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

PARTITIONS = sa.text(
    "select inhrelid::regclass::text from pg_inherits where inhparent = to_regclass('runs') order by 1"
)


def prepare(connection: sa.Connection) -> list[str]:
    """Return statements that build the index of each partition, the weeks that are no longer written to first."""
    partitions = [partition for (partition,) in connection.execute(PARTITIONS).all()]
    partitions.sort(key=lambda partition: (partition == "runs_default", partition))
    newest = [
        f"create index if not exists ix_{partition}_newest on {partition} (tenant_id, created_at, id)"
        for partition in partitions
    ]
    return [*newest, "create index if not exists ix_runs_default_created_at on runs_default (created_at)"]


def upgrade() -> None:
    op.create_table(
        "external_ids",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.LargeBinary()),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "key", name="pk_external_ids"),
    )
    op.create_index("ix_external_ids_run_id", "external_ids", ["run_id"])
    op.create_index("ix_external_ids_created_at", "external_ids", ["created_at"])
    op.add_column("runs", sa.Column("external_id", sa.Text()))  # needs the strongest lock, so it comes first
    op.create_index("ix_runs_newest", "runs", ["tenant_id", "created_at", "id"])
    op.create_index("ix_runs_default_created_at", "runs_default", ["created_at"], if_not_exists=True)
