"""Create the tables of memories and their messages."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    _memories()
    _messages()


def _memories() -> None:
    op.create_table(
        "memories",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("types", sa.Integer(), nullable=False),
        sa.Column("embedding_model", sa.Text(), nullable=False, server_default=""),
        sa.Column("chat_model", sa.Text(), nullable=False, server_default=""),
        sa.Column("temperature", sa.Float(), nullable=False, server_default="0.5"),
        sa.Column("system_prompt", sa.Text(), nullable=False, server_default=""),
        sa.Column("user_prompt", sa.Text(), nullable=False, server_default=""),
        sa.Column("most_bytes", sa.BigInteger(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False, server_default="FIFO"),
        sa.Column("permissions", sa.Text(), nullable=False, server_default="me"),
        sa.Column("bytes", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("last_number", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("id", name="pk_memories"),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], ondelete="CASCADE", name="fk_memories_tenant_id_tenants"
        ),
    )
    op.create_index("uq_memories_name", "memories", ["tenant_id", sa.func.lower(sa.text("name"))], unique=True)


def _messages() -> None:
    op.create_table(
        "memory_messages",
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("type", sa.Integer(), nullable=False),
        sa.Column("source", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("key", sa.Text()),
        sa.Column("user_id", sa.Text(), nullable=False, server_default=""),
        sa.Column("agent_id", sa.Text(), nullable=False, server_default=""),
        sa.Column("session_id", sa.Text(), nullable=False, server_default=""),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("words", sa.LargeBinary(), nullable=False),
        sa.Column("vector", sa.LargeBinary()),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("valid_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("invalid_at", sa.DateTime(timezone=True)),
        sa.Column("forget_at", sa.DateTime(timezone=True)),
        sa.Column("is_enabled", sa.Boolean(), nullable=False, server_default=sa.text("true")),
        sa.Column("extraction", sa.Text(), nullable=False, server_default="none"),
        sa.Column("error", sa.Text(), nullable=False, server_default=""),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("lease_id", sa.Uuid()),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("memory_id", "number", name="pk_memory_messages"),
        sa.ForeignKeyConstraint(
            ["memory_id"], ["memories.id"], ondelete="CASCADE", name="fk_memory_messages_memory_id_memories"
        ),
    )
    op.create_index("uq_memory_messages_key", "memory_messages", ["memory_id", "key"], unique=True)
    op.create_index("ix_memory_messages_source", "memory_messages", ["memory_id", "source"])
    op.create_index(
        "ix_memory_messages_pending",
        "memory_messages",
        ["created_at"],
        postgresql_where=sa.text("extraction = 'pending'"),
    )
    for column in ("words", "vector"):  # they do not compress, and trying takes time
        op.execute(f"alter table memory_messages alter column {column} set storage external")
