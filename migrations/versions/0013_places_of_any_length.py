"""Index only the first part of an order key, and add to conversations whether a run waits in their queue.

An order key grows with the branches that a run has taken, but an index row is limited: a run whose key outgrew its
index could not continue. The indexes are built before, partition by partition, the oldest week first, so that writers
wait only while one of the current week's is built; then the parent's index adopts them.

`has_queue` false: no run of the conversation is queued, so that no query has to read all weeks for one. It is true for
conversations that were not checked yet and for those that the previous release creates.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

PARTITIONS = sa.text("select inhrelid::regclass::text from pg_inherits where inhparent = to_regclass(:parent)")
BEGINNING = "substr(place, 1, 1024)"
INDEXES = (
    ("node_values", "ix_node_values_latest", "ix_node_values_place", f"run_id, node_id, {BEGINNING}", ""),
    ("variables", "ix_variables_latest", "ix_variables_place", f"run_id, name, {BEGINNING}", ""),
    (
        "activations",
        "ix_activations_queued",
        "ix_activations_queued_place",
        f"run_id, {BEGINNING}",
        " where status = 'queued'",
    ),
)


def prepare(connection: sa.Connection) -> list[str]:
    """Return statements that build the index of each partition, the weeks that are no longer written to first."""
    partitions = [
        (partition.removeprefix(table), partition, name.removeprefix(f"ix_{table}"), columns, condition)
        for table, _, name, columns, condition in INDEXES
        for (partition,) in connection.execute(PARTITIONS, {"parent": table}).all()
    ]
    partitions.sort(key=lambda each: (each[0] == "_default", each[0]))
    return [
        f"create index if not exists ix_{partition}{suffix} on {partition} ({columns}){condition}"
        for _, partition, suffix, columns, condition in partitions
    ]


def upgrade() -> None:
    # all locks at once: a weak lock that is upgraded later could deadlock with a writer
    op.execute("lock table node_values, variables, activations, conversations in access exclusive mode")
    for table, _, name, columns, condition in INDEXES:
        op.execute(f"create index {name} on {table} ({columns}){condition}")
    for _, old, _, _, _ in INDEXES:
        op.execute(f"drop index {old}")
    op.add_column("conversations", sa.Column("has_queue", sa.Boolean, nullable=False, server_default=sa.text("true")))
