"""Store what people write into chunks, and avatars of memories.

All columns are new, with defaults. The previous release finds chunks that are not available, and chunks that people
wrote only in documents that are parsed.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.add_column("knowledge_chunks", sa.Column("available", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.add_column("knowledge_chunks", sa.Column("details", JSONB()))
    op.add_column("knowledge_chunks", sa.Column("image", sa.LargeBinary()))
    for name in ("written_chunks", "last_written"):
        op.add_column("knowledge_documents", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
    op.add_column("memories", sa.Column("avatar", sa.Text(), nullable=False, server_default=""))
