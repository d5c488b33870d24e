"""A pool on the module's database, and a tenant of its own for each test."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from store import tenants
from store.database import Database
from store.ids import new_id


@pytest.fixture(scope="module")
def database(module_database_url: str) -> Iterator[Database]:
    database = Database(module_database_url)
    yield database
    database.close()


@pytest.fixture
def tenant_id(database: Database) -> UUID:
    return _a_tenant(database)


@pytest.fixture
def other_tenant_id(database: Database) -> UUID:
    return _a_tenant(database)


def _a_tenant(database: Database) -> UUID:
    with database.transaction() as tx:
        return tenants.create_tenant(tx, f"tenant {new_id()}")
