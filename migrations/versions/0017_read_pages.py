"""Add the number of pages of an image or scan that a model has read, so that no page is paid for twice."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column(
        "knowledge_documents", sa.Column("read_pages", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
