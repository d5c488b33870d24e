"""Add columns for the names of files with large values; set the columns of values to the fastest compression.

Stored values stay where they are, unchanged.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

VALUES = (("node_values", "outputs"), ("node_values", "inputs"), ("variables", "value"))
KNOWS_LZ4 = "select 'lz4' = any(enumvals) from pg_settings where name = 'default_toast_compression'"
PARTITIONS = "select inhrelid::regclass::text from pg_inherits where inhparent = cast(:parent as regclass)"


def upgrade() -> None:
    for table in ("node_values", "variables"):
        op.add_column(table, sa.Column("large", sa.JSON))
    connection = op.get_bind()
    if not connection.scalar(sa.text(KNOWS_LZ4)):
        return
    for parent, column in VALUES:
        partitions = connection.scalars(sa.text(PARTITIONS), {"parent": parent})
        for table in (parent, *partitions):
            op.execute(f"alter table {table} alter column {column} set compression lz4")
