"""Add sign-ins of browsers, one-time codes, and shares of one run; tokens may have the right to share.

The previous release writes none of these rows and does not read the new column.
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("may_share", sa.Boolean(), nullable=False, server_default=sa.text("false")))
    op.create_table(
        "viewer_sessions",
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("token_id", sa.Uuid()),
        sa.Column("share_id", sa.Uuid()),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("agent", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("hash", name="pk_viewer_sessions"),
        sa.UniqueConstraint("id", name="uq_viewer_sessions_id"),
    )
    op.create_index("ix_viewer_sessions_token_id_id", "viewer_sessions", ["token_id", "id"])
    op.create_index("ix_viewer_sessions_last_seen_at", "viewer_sessions", ["last_seen_at"])
    op.create_table(
        "viewer_codes",
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("token_id", sa.Uuid(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("hash", name="pk_viewer_codes"),
    )
    op.create_index("ix_viewer_codes_expires_at", "viewer_codes", ["expires_at"])
    op.create_table(
        "run_shares",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("canvas_id", sa.Uuid(), nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("hide", sa.JSON(), nullable=False),
        sa.Column("may_answer", sa.Boolean(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False, server_default=""),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.Column("last_used_at", sa.DateTime(timezone=True)),
        sa.Column("uses", sa.Integer(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_run_shares"),
        sa.UniqueConstraint("hash", name="uq_run_shares_hash"),
    )
    op.create_index("ix_run_shares_tenant_id_run_id_id", "run_shares", ["tenant_id", "run_id", "id"])
    op.create_index("ix_run_shares_expires_at", "run_shares", ["expires_at"])
