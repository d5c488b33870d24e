"""A version that runs or conversations refer to is hidden when its author deletes it, and stays readable for them."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("versions", sa.Column("deleted_at", sa.DateTime(timezone=True)))
