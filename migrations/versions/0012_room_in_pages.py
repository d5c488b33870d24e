"""Room in the pages of rows that change with every step, so that their old versions leave at once.

PostgreSQL clears a page of old versions when it looks for room in it, and it looks where less than a tenth is free, or
less than the fill factor leaves. Of rows between 0.8 and 2 KB a page may have more free than a tenth and too little for
the next version: that went into the next page, and the old ones stayed until a vacuum.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

PARTITIONS = sa.text("select inhrelid::regclass::text from pg_inherits where inhparent = to_regclass(:parent)")


def upgrade() -> None:
    connection = op.get_bind()
    for table in ("runs", "scopes", "turns"):
        for (partition,) in connection.execute(PARTITIONS, {"parent": table}).all():
            op.execute(f"alter table {partition} set (fillfactor = 70)")
