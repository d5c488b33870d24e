"""The tables of callbacks: the endpoints that are told of runs, the secrets that sign, and the deliveries.

A trigger of `runs` inserts the deliveries (migrations/versions/0028_callbacks.py).
"""

from sqlalchemy import (
    ARRAY,
    JSON,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    bindparam,
    exists,
    func,
    text,
)

from store.tables.runs import created_timestamp, metadata, tenant_id_column, timestamp

callbacks = Table(
    "callbacks",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), nullable=False),
    # whose runs it is told of; null: of those that name it, or of `run_id`
    Column("canvas_id", Uuid, ForeignKey("canvases.id", ondelete="CASCADE")),
    Column("run_id", Uuid),  # the only run that it is told of
    Column("stored_id", Uuid),  # of a run: the stored callback that it names, which has address and secret
    Column("url", Text, nullable=False, server_default=""),
    Column("events", ARRAY(Text), nullable=False),
    Column("include", ARRAY(Text), nullable=False, server_default="{}"),  # what else a body has: `output`
    Column("description", Text, nullable=False, server_default=""),
    Column("sealed_secret", LargeBinary),  # of a run: null if the tenant's secret signs
    Column("sealed_former", LargeBinary),  # signs too until `former_until`
    timestamp("former_until"),
    timestamp("disabled_at"),
    Column("disabled_because", Text),  # owner | gone
    created_timestamp("created_at"),
    Index(None, "tenant_id", "canvas_id"),
    Index("ix_callbacks_run", "run_id", postgresql_where=text("run_id is not null")),
    Index("ix_callbacks_stored", "stored_id", postgresql_where=text("stored_id is not null")),
)

callback_secrets = Table(
    "callback_secrets",
    metadata,
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True),
    Column("sealed_secret", LargeBinary, nullable=False),
    Column("sealed_former", LargeBinary),
    timestamp("former_until"),
    created_timestamp("created_at"),
)

callback_deliveries = Table(
    "callback_deliveries",
    metadata,
    Column("id", Uuid, primary_key=True),
    tenant_id_column(),
    Column("callback_id", Uuid, nullable=False),
    Column("event", Text, nullable=False),
    Column("include", ARRAY(Text), nullable=False, server_default="{}"),
    Column("run_id", Uuid),  # null in a test
    Column("canvas_id", Uuid),
    Column("conversation_id", Uuid),
    Column("revision", Integer),  # of the run: no event is inserted twice
    Column("facts", JSON(none_as_null=True)),  # of the run's row when it happened
    Column("body", Text),  # written with the first attempt, and the same in every later one
    Column("status", Text, nullable=False, server_default="pending"),  # pending | delivered | dead
    Column("attempt", Integer, nullable=False, server_default="0"),  # number of the last attempt: guards its result
    Column("tries", Integer, nullable=False, server_default="0"),  # attempts since `round_at`
    Column("latest_attempts", JSON(none_as_null=True)),  # [{at, status, ms, error}], the newest
    created_timestamp("occurred_at"),
    Column("due_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("round_at", DateTime(timezone=True), nullable=False, server_default=func.now()),  # or of its last replay
    timestamp("ended_at"),
    Index("uq_callback_deliveries_occurrence", "callback_id", "run_id", "revision", unique=True),
    Index("ix_callback_deliveries_due", "due_at", postgresql_where=text("status = 'pending'")),
    Index("ix_callback_deliveries_newest", "tenant_id", "status", "occurred_at", "id"),
    Index(None, "run_id"),
    Index(None, "ended_at"),
)

HAS_CALLBACK = exists().where(
    callbacks.c.tenant_id == bindparam("of_tenant", type_=Uuid),
    callbacks.c.canvas_id == bindparam("of_canvas", type_=Uuid),
)
"""Whether an agent has callbacks, for the statement that inserts a run."""
