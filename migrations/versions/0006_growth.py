"""Add indexes for large databases: runs of a canvas, a version or a conversation, and files.

Building them blocks writers of `runs` and the other tables: some seconds for a million runs.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

OPEN = sa.text("status in ('queued', 'running', 'waiting', 'stopping')")


def upgrade() -> None:
    op.create_index("ix_runs_canvas", "runs", ["canvas_id", "id"])
    op.create_index("ix_runs_version", "runs", ["version_id"])
    op.drop_index("ix_runs_open", "runs")
    op.create_index("ix_runs_open", "runs", ["conversation_id"], postgresql_where=OPEN)
    for name, table, column, condition in (
        ("ix_conversations_unused", "conversations", "created_at", "last_run is null"),
        ("ix_conversation_messages_run", "conversation_messages", "run_id", "run_id is not null"),
        ("ix_files_run", "files", "run_id", "run_id is not null"),
    ):
        op.create_index(name, table, [column], postgresql_where=sa.text(condition))
    op.create_index("ix_files_sha256", "files", ["sha256"])
