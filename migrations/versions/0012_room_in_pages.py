"""Room in the pages of rows that change with every step, so that their old versions leave at once.

PostgreSQL clears a page of old versions when it looks for room in it, and it looks where less than a tenth is free, or
less than the fill factor leaves. Of rows between 0.8 and 2 KB a page may have more free than a tenth and too little for
the next version: that went into the next page, and the old ones stayed until a vacuum.
"""

from alembic import op

from store.partitions import PARTITIONS, ROOM

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    connection = op.get_bind()
    for table, filled in ROOM.items():
        for (partition,) in connection.execute(PARTITIONS, {"table": table}).all():
            op.execute(f"alter table {partition} set (fillfactor = {filled})")
