"""Create the tables of knowledge bases, their documents and chunks."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    _bases()
    _documents()
    _chunks()


def _bases() -> None:
    op.create_table(
        "knowledge_bases",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False, server_default=""),
        sa.Column("language", sa.Text(), nullable=False, server_default="English"),
        sa.Column("embedding_model", sa.Text(), nullable=False, server_default=""),
        sa.Column("parser", JSONB(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("id", name="pk_knowledge_bases"),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], ondelete="CASCADE", name="fk_knowledge_bases_tenant_id_tenants"
        ),
    )
    op.create_index(
        "uq_knowledge_bases_name", "knowledge_bases", ["tenant_id", sa.func.lower(sa.text("name"))], unique=True
    )


def _documents() -> None:
    op.create_table(
        "knowledge_documents",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("base_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("mime_type", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("metadata", JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb")),
        sa.Column("status", sa.Text(), nullable=False, server_default="uploaded"),
        sa.Column("error", sa.Text(), nullable=False, server_default=""),
        sa.Column("generation", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("chunks", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("expected", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("tokens", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("lease_id", sa.Uuid()),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("id", name="pk_knowledge_documents"),
        sa.ForeignKeyConstraint(
            ["base_id"],
            ["knowledge_bases.id"],
            ondelete="CASCADE",
            name="fk_knowledge_documents_base_id_knowledge_bases",
        ),
    )
    op.create_index("uq_knowledge_documents_name", "knowledge_documents", ["base_id", "name"], unique=True)
    op.create_index("ix_knowledge_documents_content", "knowledge_documents", ["base_id", "sha256"])
    op.create_index(
        "ix_knowledge_documents_pending",
        "knowledge_documents",
        ["updated_at"],
        postgresql_where=sa.text("status = 'pending'"),
    )


def _chunks() -> None:
    op.create_table(
        "knowledge_chunks",
        sa.Column("document_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("base_id", sa.Uuid(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("words", sa.LargeBinary(), nullable=False),
        sa.Column("vector", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("document_id", "position", name="pk_knowledge_chunks"),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["knowledge_documents.id"],
            ondelete="CASCADE",
            name="fk_knowledge_chunks_document_id_knowledge_documents",
        ),
    )
    for column in ("words", "vector"):  # they do not compress, and trying takes time
        op.execute(f"alter table knowledge_chunks alter column {column} set storage external")
