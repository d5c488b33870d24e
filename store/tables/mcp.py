"""The tables of MCP: servers that tenants registered, the pinned descriptions of their tools, and agents that are
tools.

They belong to the metadata of `store/tables/runs.py`.
"""

from sqlalchemy import (
    JSON,
    Column,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)

from store.tables.runs import created_timestamp, metadata

mcp_servers = Table(
    "mcp_servers",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Column("server_type", Text, nullable=False),  # sse | streamable-http
    Column("sealed_url", LargeBinary, nullable=False),  # encrypted, because a URL may contain a key
    Column("sealed_headers", LargeBinary, nullable=False),  # JSON: templates by name
    Column("sealed_variables", LargeBinary, nullable=False),  # JSON: the values that fill the templates
    Column("call_seconds", Float, nullable=False),
    Column("allowed", JSON(none_as_null=True)),  # names of the tools that may be called; null: all
    created_timestamp("created_at"),
    created_timestamp("updated_at"),
    UniqueConstraint("tenant_id", "name"),
)

mcp_tools = Table(
    "mcp_tools",
    metadata,
    Column("server_id", Uuid, ForeignKey("mcp_servers.id", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("description", Text, nullable=False),
    Column("schema", JSON, nullable=False),
    Column("digest", LargeBinary, nullable=False),  # of description and schema; canvas/document/mcp_tools.py
    created_timestamp("seen_at"),
)

mcp_agents = Table(
    "mcp_agents",
    metadata,
    Column("canvas_id", Uuid, ForeignKey("canvases.id", ondelete="CASCADE"), primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("name", Text, nullable=False),  # of the tool
    created_timestamp("created_at"),
    Index("uq_mcp_agents_name", "tenant_id", "name", unique=True),
)
