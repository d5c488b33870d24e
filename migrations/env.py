"""Alembic's entry point: on the connection that `store.migrate` hands over, else on DATABASE_URL."""

import os

from alembic import context
from sqlalchemy import Connection, create_engine

import store.budget_tables
import store.knowledge_schema
import store.mcp_schema
import store.memory_schema
import store.tenant_schema  # noqa: F401 (their tables belong to the metadata)
from store.partitions import is_partition
from store.schema import metadata


def _is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Partitions follow from their table: autogenerate must not take them for tables of their own."""
    return kind != "table" or name is None or not is_partition(name)


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection, target_metadata=metadata, include_name=_is_ours, transaction_per_migration=True
    )
    with context.begin_transaction():
        context.run_migrations()


if (given := context.config.attributes.get("connection")) is not None:
    _migrate(given)
else:
    with create_engine(os.environ["DATABASE_URL"]).connect() as own:
        _migrate(own)
