"""The tables of schedules: when runs of an agent are started, and what came of each slot."""

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    Interval,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)

from store.tables.runs import created_timestamp, metadata, tenant_id_column, timestamp

schedules = Table(
    "schedules",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant_id", Uuid, ForeignKey("tenants.id", ondelete="CASCADE"), nullable=False),
    Column("canvas_id", Uuid, ForeignKey("canvases.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("spec", JSON, nullable=False),  # scheduler/schedules/slots.py
    Column("start", JSON, nullable=False),  # options of the runs, as `scheduler.start` takes them
    Column("session", Text, nullable=False, server_default="new"),  # new | same
    Column("overlap", Text, nullable=False, server_default="skip"),  # skip | enqueue | cancel_previous | allow
    Column("catch_up_window", Interval, nullable=False),
    Column("catch_up_at_most", Integer, nullable=False),
    timestamp("end_at"),
    Column("max_runs", Integer),  # runs of slots; null: no limit
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("paused_reason", Text, nullable=False, server_default=""),
    timestamp("next_at"),  # the first slot that was not handled yet; null: paused, or over
    timestamp("due_at"),  # when a sweeper looks at it: `next_at`, or later while that slot waits
    timestamp("waiting_since"),  # since when slots wait for the previous run
    timestamp("last_at"),  # the last slot that was fired
    Column("last_run", Uuid),  # the last run that was started, also by hand
    Column("started", Integer, nullable=False, server_default="0"),  # runs of slots
    Column("refusals", Integer, nullable=False, server_default="0"),  # refused slots since the last run
    Column("conversation_id", Uuid),  # of all its runs, with session `same`
    Column("token_id", Uuid),  # the token that created it; null: the command line
    created_timestamp("created_at"),
    created_timestamp("updated_at"),
    Index(None, "tenant_id", "id"),
    Index(None, "canvas_id"),
    Index("ix_schedules_due", "due_at", postgresql_where=text("due_at is not null")),
)

schedule_fires = Table(
    "schedule_fires",
    metadata,
    Column("schedule_id", Uuid, ForeignKey("schedules.id", ondelete="CASCADE"), nullable=False),
    Column("slot", DateTime(timezone=True), nullable=False),
    tenant_id_column(),
    Column("outcome", Text, nullable=False),  # started | skipped | refused | missed
    Column("run_id", Uuid),
    Column("is_over", Boolean, nullable=False, server_default=text("true")),  # false: the run was open when last read
    Column("reason", Text, nullable=False, server_default=""),
    Column("slots", Integer, nullable=False, server_default="1"),  # missed slots that the row stands for
    Column("by_hand", Boolean, nullable=False, server_default=text("false")),
    created_timestamp("created_at"),
    PrimaryKeyConstraint("schedule_id", "slot"),
)
