"""Let share links name their agent, tokens expire, and conversations and uploads name their share link.

Existing share links name no agent and give access to nothing until an operator names one (`easel tokens bind`).
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("canvas_id", sa.Uuid()))
    op.add_column("tokens", sa.Column("expires_at", sa.DateTime(timezone=True)))
    op.add_column("conversations", sa.Column("token_id", sa.Uuid()))
    op.add_column("files", sa.Column("token_id", sa.Uuid()))
