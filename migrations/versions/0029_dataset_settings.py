"""Store the settings of datasets and documents that RAGFlow's clients write, and when a document was read.

All columns are new, with defaults: the previous release neither reads nor writes them.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("knowledge_bases", _settings())
    op.add_column("knowledge_documents", _settings())
    op.add_column("knowledge_documents", sa.Column("parser", JSONB()))
    op.add_column(
        "knowledge_documents", sa.Column("enabled", sa.Boolean(), nullable=False, server_default=sa.text("true"))
    )
    op.add_column("knowledge_documents", sa.Column("started_at", sa.DateTime(timezone=True)))
    op.add_column("knowledge_documents", sa.Column("ended_at", sa.DateTime(timezone=True)))


def _settings() -> sa.Column[dict[str, object]]:
    return sa.Column("settings", JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb"))
