"""Create the tables of runs, partitioned by the run's id. store/maintenance/partitions.py creates the weeks."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    _runs()
    _scopes()
    _activations()
    _values()
    _events()
    _turns()
    _canaries()
    for table in ("runs", "scopes", "activations", "node_values", "variables", "run_events", "turns"):
        op.execute(f"create table {table}_default partition of {table} default")


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("canvas_id", sa.Uuid(), nullable=False),
        sa.Column("version_id", sa.Uuid(), nullable=False),
        sa.Column("conversation_id", sa.Uuid(), nullable=False),
        sa.Column("previous_run", sa.Uuid()),
        sa.Column("message_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("engine", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_event", sa.Integer(), server_default="0", nullable=False),
        sa.Column("first_event", sa.Integer(), server_default="1", nullable=False),
        sa.Column("asked", sa.Text()),
        sa.Column("turn", sa.Uuid()),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("base", sa.JSON(), nullable=False),
        sa.Column("history_upto", sa.Integer(), server_default="0", nullable=False),
        sa.Column("usage", sa.JSON(), nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        postgresql_partition_by="RANGE (id)",
    )
    op.create_index("ix_runs_tenant", "runs", ["tenant_id", "id"])
    op.create_index("ix_runs_conversation", "runs", ["conversation_id", "id"])
    op.create_index(
        "ix_runs_open",
        "runs",
        ["id"],
        postgresql_where=sa.text("status in ('queued', 'running', 'waiting', 'stopping')"),
    )


def _scopes() -> None:
    op.create_table(
        "scopes",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "key", name="pk_scopes"),
        postgresql_partition_by="RANGE (run_id)",
    )


def _activations() -> None:
    op.create_table(
        "activations",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("component", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("place", sa.LargeBinary(), nullable=False),
        sa.Column("region", sa.LargeBinary(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("trail", sa.JSON(), nullable=False),
        sa.Column("limits", sa.JSON()),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("strikes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_id", sa.Uuid()),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.Column("worker", sa.Text()),
        sa.Column("called_off", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("hinted_at", sa.DateTime(timezone=True)),
        sa.Column("turn", sa.Uuid()),
        sa.Column("answers", sa.JSON()),
        sa.Column("activated_rev", sa.Integer(), nullable=False),
        sa.Column("folded_rev", sa.Integer()),
        sa.Column("outcome", sa.JSON()),
        sa.Column("usage", sa.JSON()),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("run_id", "id", name="pk_activations"),
        postgresql_partition_by="RANGE (run_id)",
    )
    for name, columns, status in (
        ("ix_activations_running", ["run_id", "id"], "running"),
        ("ix_activations_ready", ["hinted_at"], "ready"),
        ("ix_activations_reported", ["run_id"], "reported"),
        ("ix_activations_queued", ["run_id", "place"], "queued"),
    ):
        op.create_index(name, "activations", columns, postgresql_where=sa.text(f"status = '{status}'"))


def _values() -> None:
    op.create_table(
        "node_values",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("activation_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("pass_of", sa.Text(), nullable=False),
        sa.Column("item", sa.Integer(), nullable=False),
        sa.Column("place", sa.LargeBinary(), nullable=False),
        sa.Column("region", sa.LargeBinary(), nullable=False),
        sa.Column("outputs", sa.JSON(), nullable=False),
        sa.Column("inputs", sa.JSON()),
        sa.Column("names", ARRAY(sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "activation_id", "node_id", name="pk_node_values"),
        postgresql_partition_by="RANGE (run_id)",
    )
    op.create_index("ix_node_values_latest", "node_values", ["run_id", "node_id", "place"])
    op.create_table(
        "variables",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("activation_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("place", sa.LargeBinary(), nullable=False),
        sa.Column("region", sa.LargeBinary(), nullable=False),
        sa.Column("value", sa.JSON()),
        sa.PrimaryKeyConstraint("run_id", "activation_id", "name", name="pk_variables"),
        postgresql_partition_by="RANGE (run_id)",
    )
    op.create_index("ix_variables_latest", "variables", ["run_id", "name", "place"])


def _events() -> None:
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("activation_id", sa.Uuid()),
        sa.Column("node_id", sa.Text()),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_run_events"),
        postgresql_partition_by="RANGE (run_id)",
    )


def _turns() -> None:
    op.create_table(
        "turns",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), server_default="0", nullable=False),
        sa.Column("speaker", sa.Uuid()),
        sa.Column("keep", sa.Integer(), server_default="0", nullable=False),
        sa.Column("text", sa.Text(), server_default="", nullable=False),
        sa.Column("opened_at", sa.Integer()),
        sa.Column("epoch_at", sa.Integer()),
        sa.Column("closed_at", sa.Integer()),
        sa.PrimaryKeyConstraint("run_id", "id", name="pk_turns"),
        postgresql_partition_by="RANGE (run_id)",
    )


def _canaries() -> None:
    op.create_table(
        "canaries",
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("queue", name="pk_canaries"),
    )
