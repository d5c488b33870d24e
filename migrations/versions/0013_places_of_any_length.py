"""Indexes that hold the beginning of an order key, and conversations that know whether a run waits in their queue.

An order key grows with the branches that a run has taken, and a row of an index does not: a run whose key outgrew its
index could not go on. The indexes are built partition by partition before, the oldest week first, so that writers wait
only while one of the current week's is built; the parent's index then takes them over.

`has_queue` false: no run of the conversation is queued, so that nobody has to look through all weeks for one. True
where nobody has looked yet, and where the previous release has made the conversation.
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
    """Return statements that build the index of each partition; weeks that nobody writes to any more come first."""
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
    # all at once: a weak lock that becomes a strong one later would meet a deadlock with whoever writes
    op.execute("lock table node_values, variables, activations, conversations in access exclusive mode")
    for table, _, name, columns, condition in INDEXES:
        op.execute(f"create index {name} on {table} ({columns}){condition}")
    for _, old, _, _, _ in INDEXES:
        op.execute(f"drop index {old}")
    op.add_column("conversations", sa.Column("has_queue", sa.Boolean, nullable=False, server_default=sa.text("true")))
