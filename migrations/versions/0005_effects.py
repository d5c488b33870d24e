"""Add the effect that an attempt may have had, and the first reply to a request with an idempotency key."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("activations", sa.Column("effect", sa.Text()))
    op.alter_column("idempotency_keys", "run_id", nullable=True)
    op.add_column("idempotency_keys", sa.Column("reply", sa.JSON()))
