"""Create the tables of attempts' records: citations of a turn, the journal, and tool calls."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    _citations()
    _journal()
    for table in ("citations", "cited_documents", "journal", "tool_calls"):
        op.execute(f"create table {table}_default partition of {table} default")


def _citations() -> None:
    op.create_table(
        "citations",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("message_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("chunk_id", sa.Text(), nullable=False),
        sa.Column("chunk", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "message_id", "number", name="pk_citations"),
        sa.UniqueConstraint("run_id", "message_id", "chunk_id", name="uq_citations_run_id_message_id_chunk_id"),
        postgresql_partition_by="RANGE (run_id)",
    )
    op.create_table(
        "cited_documents",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("message_id", sa.Uuid(), nullable=False),
        sa.Column("activation_id", sa.Uuid(), nullable=False),
        sa.Column("finding", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "message_id", "activation_id", "finding", "name", name="pk_cited_documents"),
        postgresql_partition_by="RANGE (run_id)",
    )


def _journal() -> None:
    op.create_table(
        "journal",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("activation_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "activation_id", "key", name="pk_journal"),
        postgresql_partition_by="RANGE (run_id)",
    )
    op.create_table(
        "tool_calls",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("message_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "id", name="pk_tool_calls"),
        postgresql_partition_by="RANGE (run_id)",
    )
    op.create_index("ix_tool_calls_message", "tool_calls", ["message_id", "id"])
