"""The tables of runs, and the metadata that all tables share. Alembic compares the migrations with it.

Values are `json`, not `jsonb`, because the order of an object's keys is part of what a canvas shows
(docs/decisions/0003-values-are-json-not-jsonb.md). The tables of a run are partitioned by run id, which is a UUIDv7,
and so by time: retention drops whole partitions. No foreign key points at `runs` (docs/protocol.md, "Rows").
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

PARTITIONED = (
    "runs",
    "scopes",
    "activations",
    "node_values",
    "variables",
    "run_events",
    "turns",
    "citations",
    "cited_documents",
    "journal",
    "tool_calls",
    "reused_activations",
    "attempts",
    "model_calls",
    "call_parts",
)
"""Tables that are partitioned by RANGE of the run's id."""

WITH_OWN_RETENTION = ("model_calls", "call_parts")
"""Those whose weeks are dropped before the weeks of the runs (EASEL_MODEL_CALLS_RETENTION)."""

FORMER_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "runs": {"engine": "rules_version", "asked": "cancel_requested", "turn": "open_stream", "base": "baseline"},
    "activations": {
        "place": "order_key",
        "wave": "level",
        "strikes": "crash_count",
        "called_off": "cancel_requested",
        "hinted_at": "enqueued_at",
        "turn": "stream_id",
        "folded_rev": "applied_rev",
    },
    "node_values": {"pass_of": "container_entry", "place": "order_key"},
    "variables": {"place": "order_key"},
    "turns": {"speaker": "writer", "keep": "retained_length"},
}
"""Columns of the database that only the previous release uses, and those that replaced them. Triggers keep both equal
until the next release drops the former ones (docs/decisions/0055-columns-are-renamed-in-two-releases.md)."""

INDEXED_KEY_BYTES = 1024
"""Bytes of an order key that an index contains; with the rest of its row below PostgreSQL's limit of 2,704."""


def indexed_part_of(order_key: str) -> str:
    """Return SQL for the indexed part of an order key. Order by it first, then by the order key itself."""
    return f"substr({order_key}, 1, {INDEXED_KEY_BYTES})"


def created_timestamp(name: str, **options: Any) -> Column[Any]:
    """Return a timestamp column that the database fills in when the row is inserted, unless a value is given."""
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.now(), **options)


def timestamp(name: str) -> Column[Any]:
    """Return a timestamp column that is null until the event has happened."""
    return Column(name, DateTime(timezone=True))


def tenant_id_column() -> Column[Any]:
    """Return a tenant id column without a foreign key."""
    return Column("tenant_id", Uuid, nullable=False)


runs = Table(
    "runs",
    metadata,
    Column("id", Uuid, primary_key=True),
    tenant_id_column(),
    Column("canvas_id", Uuid, nullable=False),
    Column("version_id", Uuid, nullable=False),
    Column("conversation_id", Uuid, nullable=False),
    Column("previous_run", Uuid),  # the run of the conversation whose state this one begins from
    Column("message_id", Uuid, nullable=False),  # the current turn's, shown in its events
    Column("status", Text, nullable=False),  # canvas/state/run_state.py
    Column("rules_version", Integer, nullable=False),  # version of the routing rules (RULES_VERSION)
    Column("revision", Integer, nullable=False, server_default="0"),
    Column("last_event", Integer, nullable=False, server_default="0"),
    Column("first_event", Integer, nullable=False, server_default="1"),  # of the current turn
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("open_stream", Uuid),  # the message stream that readers show now
    # canvas/state/run_state.py: slots in use, streams not yet closed, open forms, the failure
    Column("state", JSON, nullable=False),
    Column("request", JSON, nullable=False),  # query, inputs, files, user_id, webhook_payload of the current turn
    Column("baseline", JSON, nullable=False),  # globals and values that the run began with
    Column("history_upto", Integer, nullable=False, server_default="0"),  # messages of the conversation it may read
    Column("usage", JSON, nullable=False),
    Column("error", Text, nullable=False, server_default=""),
    # store/tenants/budgets.py has a limit for it
    Column("budgeted", Boolean, nullable=False, server_default=text("false")),
    # store/tables/callbacks.py has one for it: a trigger inserts deliveries when it ends or waits
    Column("has_callbacks", Boolean, nullable=False, server_default=text("false")),
    Column("external_id", Text),  # the id that the sender chose; store/runs/external_ids.py finds it
    Column("origin", JSON(none_as_null=True)),  # of a rerun, fork or debug run: {kind, run_id, from, edits, weeks}
    Column("source_run", Uuid),  # the run whose activations this one reuses (store/runs/reused_activations.py)
    created_timestamp("created_at"),
    timestamp("started_at"),
    timestamp("finished_at"),
    timestamp("expires_at"),  # when open forms expire
    Index("ix_runs_tenant", "tenant_id", "id"),
    Index("ix_runs_newest", "tenant_id", "created_at", "id"),
    Index("ix_runs_conversation", "conversation_id", "id"),
    Index("ix_runs_canvas", "canvas_id", "id"),
    Index("ix_runs_version", "version_id"),
    Index("ix_runs_source", "source_run", postgresql_where=text("source_run is not null")),
    Index(
        "ix_runs_open",
        "conversation_id",
        postgresql_where=text("status in ('queued', 'running', 'waiting', 'stopping')"),
    ),
    postgresql_partition_by="RANGE (id)",
)

scopes = Table(
    "scopes",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("key", Text, primary_key=True),  # "" or "Iteration:A#0.3/Loop:B#0.1"
    Column("state", JSON, nullable=False),  # canvas/state/run_state.py
    postgresql_partition_by="RANGE (run_id)",
)

activations = Table(
    "activations",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("id", Uuid, primary_key=True),  # follows from (run, node, scope, ordinal)
    Column("node_id", Text, nullable=False),
    Column("component", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("order_key", LargeBinary, nullable=False),  # canvas/state/order_key.py: sorts in canonical order
    Column("region", LargeBinary, nullable=False),
    Column("level", Integer, nullable=False),
    Column("trail", JSON, nullable=False),
    # [[region, revision], ...] that it may read of enclosing regions; null: only its own region
    Column("limits", JSON),
    Column("status", Text, nullable=False),  # canvas/state/run_state.py
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("crash_count", Integer, nullable=False, server_default="0"),
    Column("lease_id", Uuid),
    timestamp("lease_until"),
    Column("worker", Text),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("effect", Text),  # `keyed` or `unsafe` once the attempt may have had an effect outside of Easel
    created_timestamp("not_before"),
    timestamp("enqueued_at"),
    Column("stream_id", Uuid),  # the message stream that the activation writes to
    Column("answers", JSON),  # the answers to a form
    Column("activated_rev", Integer, nullable=False),
    Column("applied_rev", Integer),
    Column("outcome", JSON),
    Column("usage", JSON),
    created_timestamp("created_at"),
    timestamp("started_at"),
    timestamp("finished_at"),
    Index("ix_activations_running", "run_id", "id", postgresql_where=text("status = 'running'")),
    Index("ix_activations_enqueued", "enqueued_at", postgresql_where=text("status = 'ready'")),
    Index("ix_activations_reported", "run_id", postgresql_where=text("status = 'reported'")),
    Index(
        "ix_activations_queued_order_key",
        "run_id",
        text(indexed_part_of("order_key")),
        postgresql_where=text("status = 'queued'"),
    ),
    postgresql_partition_by="RANGE (run_id)",
)

node_values = Table(
    "node_values",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("activation_id", Uuid, primary_key=True),  # the writer
    Column("node_id", Text, primary_key=True),  # the node whose outputs these are
    Column(
        "container_entry", Text, nullable=False
    ),  # entry of the enclosing container ("Iteration:A#0"); "" outside of any
    Column("item", Integer, nullable=False),  # number of the iteration in that entry
    Column("order_key", LargeBinary, nullable=False),
    Column("region", LargeBinary, nullable=False),
    Column("outputs", JSON, nullable=False),
    Column("inputs", JSON),
    Column("names", ARRAY(Text), nullable=False),  # keys of outputs
    Column("large", JSON(none_as_null=True)),  # outputs and inputs that are in files; store/files/large_values.py
    Index("ix_node_values_order_key", "run_id", "node_id", text(indexed_part_of("order_key"))),
    postgresql_partition_by="RANGE (run_id)",
)

variables = Table(
    "variables",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("activation_id", Uuid, primary_key=True),
    Column("name", Text, primary_key=True),  # "env.count", "sys.query", "Loop:A@x"
    Column("order_key", LargeBinary, nullable=False),
    Column("region", LargeBinary, nullable=False),
    Column("value", JSON),
    Column("large", JSON(none_as_null=True)),  # store/files/large_values.py
    Index("ix_variables_order_key", "run_id", "name", text(indexed_part_of("order_key"))),
    postgresql_partition_by="RANGE (run_id)",
)

run_events = Table(
    "run_events",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("event", Text, nullable=False),
    Column("activation_id", Uuid),
    Column("node_id", Text),
    Column("body", JSON, nullable=False),
    created_timestamp("created_at"),
    postgresql_partition_by="RANGE (run_id)",
)

turns = Table(
    "turns",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("id", Uuid, primary_key=True),  # the Message's activation
    Column("node_id", Text, nullable=False),
    Column("epoch", Integer, nullable=False, server_default="0"),
    Column("writer", Uuid),  # lease id of the attempt that may write
    Column(
        "retained_length", Integer, nullable=False, server_default="0"
    ),  # length of the text that finished attempts wrote
    Column("text", Text, nullable=False, server_default=""),
    Column("opened_at", Integer),  # these three are event numbers
    Column("epoch_at", Integer),
    Column("closed_at", Integer),
    postgresql_partition_by="RANGE (run_id)",
)

citations = Table(
    "citations",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("message_id", Uuid, primary_key=True),  # of the turn that may cite it
    Column("number", Integer, primary_key=True),  # answers cite it as [ID:number]
    Column("chunk_id", Text, nullable=False),
    Column("chunk", JSON, nullable=False),
    UniqueConstraint("run_id", "message_id", "chunk_id"),
    postgresql_partition_by="RANGE (run_id)",
)

cited_documents = Table(
    "cited_documents",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("message_id", Uuid, primary_key=True),
    Column("activation_id", Uuid, primary_key=True),  # that found it
    # SHA-256 of the whole finding, so that a repeated finding is stored once
    Column("finding", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("document", JSON, nullable=False),
    postgresql_partition_by="RANGE (run_id)",
)

journal = Table(
    "journal",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("activation_id", Uuid, primary_key=True),
    Column("key", Text, primary_key=True),  # chosen by the component: "round:0", "call:0:1"
    Column("value", JSON, nullable=False),
    postgresql_partition_by="RANGE (run_id)",
)

tool_calls = Table(
    "tool_calls",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("id", Uuid, primary_key=True),  # UUIDv7: sorts by time
    Column("message_id", Uuid, nullable=False),
    Column("node_id", Text, nullable=False),
    Column("body", JSON, nullable=False),  # {path, tool_name, arguments, result, elapsed_time}
    # null in rows of releases before revision 0024
    Column("activation_id", Uuid),
    Column("attempt", Integer),
    Column(
        "round", Text
    ),  # "round:0": the key in the journal of the reply that asked for the call; null outside of one
    Column("ordinal", Integer),  # of the call in its round
    timestamp("started_at"),
    Column("failed", Boolean),
    Column("replayed", Boolean),  # the attempt read the result of an earlier one from the journal, and called nothing
    Index("ix_tool_calls_message", "message_id", "id"),
    postgresql_partition_by="RANGE (run_id)",
)

reused_activations = Table(
    "reused_activations",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("activation_id", Uuid, primary_key=True),  # of this run, once its node is activated
    Column("source_activation", Uuid, nullable=False),  # of the run's source
    Column("outputs", JSON(none_as_null=True)),  # outputs that replace those of the source
    postgresql_partition_by="RANGE (run_id)",
)

attempts = Table(
    "attempts",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("activation_id", Uuid, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    timestamp("ready_at"),
    timestamp("started_at"),
    timestamp("ended_at"),
    Column("worker", Text),
    Column("end_reason", Text, nullable=False),  # store/runs/attempts.py
    Column("code", Text),  # of its failure
    Column("error", Text),
    timestamp("next_attempt_at"),
    Column("usage", JSON),
    Column("crash_count", Integer, nullable=False),
    postgresql_partition_by="RANGE (run_id)",
)
"""Attempts after which the activation became ready again. The latest attempt is the activation's own row."""

model_calls = Table(
    "model_calls",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("id", Uuid, primary_key=True),  # UUIDv7: sorts by time
    Column("activation_id", Uuid, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("round", Text),  # the key of the answer in the journal, or of the tool call during which it was made
    Column("kind", Text, nullable=False),  # chat | embedding | rerank | speech | transcription
    Column("model", Text, nullable=False),
    Column("account", Text, nullable=False),
    timestamp("started_at"),
    timestamp("first_token_at"),
    timestamp("ended_at"),
    Column("status", Text, nullable=False),  # ok | failed | cancelled | cut
    Column("error", Text),
    Column("tries", Integer, nullable=False),
    Column("waited_ms", Integer, nullable=False),  # for rate limits
    Column("usage", JSON),
    Column("request", JSON(none_as_null=True)),  # {messages: [digest], tools: digest, params}; null: not stored
    Column("response", Uuid),  # digest
    Index("ix_model_calls_activation", "run_id", "activation_id"),
    postgresql_partition_by="RANGE (run_id)",
)

call_parts = Table(
    "call_parts",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("digest", Uuid, primary_key=True),  # the first 128 bits of the SHA-256 of the body
    Column("body", JSON, nullable=False),
    postgresql_partition_by="RANGE (run_id)",
)
"""Parts of the bodies of model calls: messages, lists of tools, answers. A run stores each of them once."""

canaries = Table(
    "canaries",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("sent_at", DateTime(timezone=True), nullable=False),  # of the latest queue probe that returned
)
