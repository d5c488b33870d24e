"""Give tokens scopes and the token that made them, and add the audit log.

The previous release does not know scopes. It cannot authenticate a token that has fewer rights than its kind, since the
hash of such a token is computed in another way (store/tenants/tenants.py), so it never gives one too many rights.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("rights", sa.Text()))
    op.add_column("tokens", sa.Column("prefix", sa.Text()))
    op.add_column("tokens", sa.Column("created_by", sa.Uuid()))
    op.create_table(
        "audit_log",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("actor_id", sa.Uuid()),
        sa.Column("token_id", sa.Uuid()),
        sa.Column("actor_name", sa.Text(), nullable=False, server_default=""),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("object_id", sa.Text(), nullable=False, server_default=""),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("request_id", sa.Text()),
        sa.Column("times", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("id", name="pk_audit_log"),
    )
    op.create_index("ix_audit_log_tenant_id_id", "audit_log", ["tenant_id", "id"])
    op.create_index("ix_audit_log_tenant_id_object_id_id", "audit_log", ["tenant_id", "object_id", "id"])
    op.create_index("ix_audit_log_last_at", "audit_log", ["last_at"])
