"""The tables of a tenant's lasting data: tokens, canvases and versions, conversations, model accounts, files.

They are not partitioned, and their rows stay when the runs that used them are deleted.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)

from store.tables.runs import created_timestamp, metadata, tenant_id_column, timestamp

tenants = Table(
    "tenants",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    created_timestamp("created_at"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),  # SHA-256 of the token, which is not stored itself
    Column("kind", Text, nullable=False, server_default="api"),  # api | admin | viewer | beta
    Column("may_share", Boolean, nullable=False, server_default=text("false")),  # may share runs
    Column("canvas_id", Uuid),  # the only agent that it gives access to; null: all agents, of a share link none
    Column("rights", Text),  # names of store.tenants.scopes.TokenScope between spaces; null: those of the kind
    Column("prefix", Text),  # how its text begins
    Column("created_by", Uuid),  # the token that made it
    created_timestamp("created_at"),
    timestamp("last_used_at"),
    timestamp("revoked_at"),
    timestamp("expires_at"),
)

canvases = Table(
    "canvases",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), nullable=False),
    Column("title", Text, nullable=False),
    Column("description", Text),
    Column("avatar", Text),
    Column("canvas_type", Text, nullable=False, server_default=""),
    Column("canvas_category", Text, nullable=False, server_default="agent_canvas"),
    Column("permission", Text, nullable=False, server_default="me"),  # me | team
    Column("tags", Text, nullable=False, server_default=""),
    Column("release", Boolean, nullable=False, server_default=text("false")),
    Column("draft", JSON, nullable=False),  # the document as last saved
    Column("draft_revision", BigInteger, nullable=False, server_default=text("1")),  # counted by a trigger
    Column("draft_token_id", Uuid),  # the token that saved the draft last, as far as it is known
    created_timestamp("created_at"),
    created_timestamp("updated_at"),
    Index(None, "tenant_id", "updated_at"),
    Index("uq_canvases_title", "tenant_id", "canvas_category", func.lower(text("title")), unique=True),
)

versions = Table(
    "versions",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, nullable=False),
    Column("canvas_id", Uuid, nullable=False),  # no foreign key: a run keeps its version when the canvas is deleted
    Column("title", Text, nullable=False),
    Column("description", Text),
    Column("dsl", JSON, nullable=False),  # never changes
    Column("digest", LargeBinary, nullable=False),  # SHA-256 of the normalised document
    Column("released", Boolean, nullable=False, server_default=text("false")),
    created_timestamp("created_at"),
    created_timestamp("updated_at"),
    timestamp("deleted_at"),  # hidden from lists; runs and conversations that refer to it still read it
    Index(None, "canvas_id", "created_at"),
)

conversations = Table(
    "conversations",
    metadata,
    Column("id", Uuid, primary_key=True),
    tenant_id_column(),
    Column("canvas_id", Uuid, nullable=False),
    Column("version_id", Uuid, nullable=False),
    Column("user_id", Text, nullable=False, server_default=""),
    Column("name", Text, nullable=False, server_default=""),
    Column("source", Text, nullable=False, server_default="workflow"),  # workflow | agent | debug
    Column("token_id", Uuid),  # the share link that began it
    Column("active_run", Uuid),  # the one run that is running, waiting or stopping
    Column("last_run", Uuid),  # the latest run that was started; the next run begins from its state
    Column("has_queue", Boolean, nullable=False, server_default=text("true")),  # false: no run of it is queued
    Column("messages", Integer, nullable=False, server_default="0"),  # number of the last message
    Column("rounds", Integer, nullable=False, server_default="0"),  # completed turns
    Column("error", Text, nullable=False, server_default=""),
    created_timestamp("created_at"),
    created_timestamp("updated_at"),
    Index(None, "tenant_id", "canvas_id", "updated_at"),
    Index("ix_conversations_unused", "created_at", postgresql_where=text("last_run is null")),
)

conversation_messages = Table(
    "conversation_messages",
    metadata,
    Column("conversation_id", Uuid, ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("run_id", Uuid),
    Column("role", Text, nullable=False),
    Column("content", JSON),
    # an assistant's message names the activation whose outputs it shows, so that outputs are not copied
    Column("activation_id", Uuid),
    Column("node_id", Text),
    created_timestamp("created_at"),
    Index("ix_conversation_messages_run", "run_id", postgresql_where=text("run_id is not null")),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant_id", Uuid, primary_key=True),
    Column("route", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    # SHA-256 of the request; the same key with another request is refused
    Column("digest", LargeBinary, nullable=False),
    Column("run_id", Uuid),
    Column("reply", JSON),  # {status, body} of a request that started no run
    created_timestamp("created_at", index=True),
)

external_ids = Table(
    "external_ids",
    metadata,
    Column("tenant_id", Uuid, primary_key=True),
    Column("key", Text, primary_key=True),  # store/runs/external_ids.py
    Column("run_id", Uuid, nullable=False, index=True),  # the run, or the row of the refused start
    Column("digest", LargeBinary),  # SHA-256 of the request that was accepted; null: none was accepted yet
    created_timestamp("created_at", index=True),
)

model_accounts = Table(
    "model_accounts",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), nullable=False),
    Column("factory", Text, nullable=False),
    Column("instance", Text, nullable=False, server_default="default"),
    Column("base_url", Text),
    Column("sealed_key", LargeBinary),
    Column("models", JSON, nullable=False),  # name -> {kinds, context_tokens, is_tools, status}
    Column("extra", JSON, nullable=False),
    Column("status", Text, nullable=False, server_default="active"),  # active | inactive
    created_timestamp("created_at"),
    UniqueConstraint("tenant_id", "factory", "instance"),
)

files = Table(
    "files",
    metadata,
    Column("id", Uuid, primary_key=True),
    tenant_id_column(),
    Column("name", Text, nullable=False),
    Column("mime_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", LargeBinary, nullable=False),  # of the content, which it also names in the file storage
    Column("created_by", Text, nullable=False, server_default=""),
    Column("run_id", Uuid),
    Column("token_id", Uuid),  # the share link that uploaded it
    created_timestamp("created_at"),
    Index(None, "tenant_id", "created_at"),
    Index("ix_files_run", "run_id", postgresql_where=text("run_id is not null")),
    Index(None, "sha256"),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("id", Uuid, primary_key=True),
    tenant_id_column(),
    created_timestamp("at"),
    Column("actor", Text, nullable=False),  # token | sign_in | share_link | share | command_line
    Column("actor_id", Uuid),  # of the token, the sign-in or the share; null for the command line
    Column("token_id", Uuid),  # the token, also of a sign-in
    Column("actor_name", Text, nullable=False, server_default=""),  # of the token, or of the user of the machine
    Column("action", Text, nullable=False),  # store.tenants.audit.Action
    Column("object_id", Text, nullable=False, server_default=""),
    Column("details", JSON, nullable=False),  # short, without values of users and without secrets
    Column("request_id", Text),  # X-Request-Id
    Column("times", Integer, nullable=False, server_default="1"),  # of saves that share a row
    created_timestamp("last_at"),  # of the last of them
    Index(None, "tenant_id", "id"),
    Index(None, "tenant_id", "object_id", "id"),
    Index(None, "last_at"),
)
