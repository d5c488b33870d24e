"""A tenant of its own for each test."""

from uuid import UUID

import pytest

from store.db.database import Database
from store.primitives.ids import new_id
from store.tenants import tenants


@pytest.fixture
def tenant_id(database: Database) -> UUID:
    return _a_tenant(database)


@pytest.fixture
def other_tenant_id(database: Database) -> UUID:
    return _a_tenant(database)


def _a_tenant(database: Database) -> UUID:
    with database.transaction() as tx:
        return tenants.create_tenant(tx, f"tenant {new_id()}")
