"""Create the tables of MCP servers, the pins of their tools, and agents that are offered as tools."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "mcp_servers",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("server_type", sa.Text(), nullable=False),
        sa.Column("sealed_url", sa.LargeBinary(), nullable=False),
        sa.Column("sealed_headers", sa.LargeBinary(), nullable=False),
        sa.Column("sealed_variables", sa.LargeBinary(), nullable=False),
        sa.Column("call_seconds", sa.Float(), nullable=False),
        sa.Column("allowed", sa.JSON()),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_mcp_servers"),
        sa.UniqueConstraint("tenant_id", "name", name="uq_mcp_servers_tenant_id_name"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_mcp_servers_tenant_id", ondelete="CASCADE"),
    )
    op.create_table(
        "mcp_tools",
        sa.Column("server_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("schema", sa.JSON(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("server_id", "name", name="pk_mcp_tools"),
        sa.ForeignKeyConstraint(["server_id"], ["mcp_servers.id"], name="fk_mcp_tools_server_id", ondelete="CASCADE"),
    )
    op.create_table(
        "mcp_agents",
        sa.Column("canvas_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("canvas_id", name="pk_mcp_agents"),
        sa.ForeignKeyConstraint(["canvas_id"], ["canvases.id"], name="fk_mcp_agents_canvas_id", ondelete="CASCADE"),
    )
    op.create_index("uq_mcp_agents_name", "mcp_agents", ["tenant_id", "name"], unique=True)
