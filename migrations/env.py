"""Alembic's entry point. It uses the connection that `store.maintenance.migrate` passes, else DATABASE_URL."""

import os
from collections.abc import Mapping

from alembic import context
from sqlalchemy import Connection, create_engine

import store.tables.budgets
import store.tables.callbacks
import store.tables.knowledge
import store.tables.mcp
import store.tables.memory
import store.tables.schedules
import store.tables.tenants
import store.tables.viewer  # noqa: F401
from store.maintenance.partitions import is_partition
from store.tables.runs import FORMER_COLUMNS, metadata


def _is_ours(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
    """Return whether autogenerate compares an object: neither partitions, which follow from their tables, nor columns
    that only the previous release uses.
    """
    if kind == "column":
        return name not in FORMER_COLUMNS.get(parents["table_name"] or "", ())
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
