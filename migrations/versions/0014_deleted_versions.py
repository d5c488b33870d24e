"""Hide a version that its author deletes while runs or conversations refer to it, and keep it readable for them."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("versions", sa.Column("deleted_at", sa.DateTime(timezone=True)))
