"""Create the tables of tenants, tokens and model accounts."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="api", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_tokens_tenant_id", ondelete="CASCADE"),
    )
    op.create_index("ix_tokens_tenant_id", "tokens", ["tenant_id"])
    op.create_table(
        "model_accounts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("factory", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), server_default="default", nullable=False),
        sa.Column("base_url", sa.Text()),
        sa.Column("sealed_key", sa.LargeBinary()),
        sa.Column("models", sa.JSON(), nullable=False),
        sa.Column("extra", sa.JSON(), nullable=False),
        sa.Column("status", sa.Text(), server_default="active", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_model_accounts"),
        sa.UniqueConstraint("tenant_id", "factory", "instance", name="uq_model_accounts_tenant_id_factory_instance"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_model_accounts_tenant_id", ondelete="CASCADE"),
    )
