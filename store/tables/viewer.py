"""The tables of those who look at runs in a browser: sign-ins, one-time codes, and shares of one run.

None of them has a secret: cookies, codes and the secrets of shares are stored as SHA-256.
"""

from sqlalchemy import JSON, Boolean, Column, DateTime, Index, Integer, LargeBinary, Table, Text, UniqueConstraint, Uuid

from store.tables.runs import created_timestamp, metadata, tenant_id_column, timestamp

viewer_sessions = Table(
    "viewer_sessions",
    metadata,
    Column("hash", LargeBinary, primary_key=True),  # SHA-256 of the cookie
    Column("id", Uuid, nullable=False),  # the name of the sign-in in lists
    tenant_id_column(),
    Column("token_id", Uuid),  # the token that it was made with; it ends with this token
    Column("share_id", Uuid),  # or the share
    Column("kind", Text, nullable=False),  # api | admin | viewer, as the token; share
    created_timestamp("created_at"),
    created_timestamp("last_seen_at"),  # to the minute
    Column("expires_at", DateTime(timezone=True), nullable=False),
    timestamp("ended_at"),
    Column("agent", Text, nullable=False, server_default=""),  # the browser, as it calls itself
    UniqueConstraint("id"),
    Index(None, "token_id", "id"),
    Index(None, "last_seen_at"),
)

viewer_codes = Table(
    "viewer_codes",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    tenant_id_column(),
    Column("token_id", Uuid, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    timestamp("used_at"),
    Index(None, "expires_at"),
)

run_shares = Table(
    "run_shares",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    tenant_id_column(),
    Column("run_id", Uuid, nullable=False),
    Column("canvas_id", Uuid, nullable=False),  # the agent of the run, for which a visitor may upload files
    Column("created_by", Uuid, nullable=False),  # the token
    created_timestamp("created_at"),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("hide", JSON, nullable=False),  # names of store.tenants.run_shares.Hide
    Column("may_answer", Boolean, nullable=False),
    Column("note", Text, nullable=False, server_default=""),
    timestamp("revoked_at"),
    timestamp("last_used_at"),  # to the minute
    Column("uses", Integer, nullable=False, server_default="0"),  # sign-ins
    UniqueConstraint("hash"),
    Index(None, "tenant_id", "run_id", "id"),
    Index(None, "expires_at"),
)
