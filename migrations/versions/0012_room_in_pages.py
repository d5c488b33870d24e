"""Leave room in the pages of rows that change with every advance, so that their old versions are removed at once.

PostgreSQL removes old versions from a page when it looks for room in it, and it does so if less than a tenth of the
page is free, or less than the fill factor leaves. With rows between 0.8 and 2 KB, a page may have more than a tenth
free and still too little for the next version. That version went to the next page, and the old ones stayed until a
vacuum.
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
