"""Tenants and their tokens."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text

from canvas.errors import Conflict, NotFound
from store.db.database import Database
from store.primitives.ids import new_id
from store.tables.tenants import tokens
from store.tenants import tenants
from store.tenants.scopes import KINDS
from store.tenants.tenants import Principal


def test_local_tenant_is_created_at_first_use_and_stays_the_same(database: Database):
    with database.transaction() as tx:
        first = tenants.ensure_tenant(tx, "local")

    with database.transaction() as tx:
        assert tenants.ensure_tenant(tx, "local") == first
        found = tenants.find_tenant(tx, "local")

    assert found is not None
    assert found.id == first


def test_concurrent_requests_for_a_new_tenant_get_the_same_one(database: Database):
    def ensure(_: int) -> UUID:
        with database.transaction() as tx:
            return tenants.ensure_tenant(tx, "asked for at once")

    with ThreadPoolExecutor(4) as threads:
        ids = set(threads.map(ensure, range(4)))

    assert len(ids) == 1


def test_a_second_tenant_of_the_same_name_is_refused(database: Database):
    with database.transaction() as tx:
        tenants.create_tenant(tx, "acme")

    with pytest.raises(Conflict, match="acme"), database.transaction() as tx:
        tenants.create_tenant(tx, "acme")


def test_token_identifies_its_tenant(database: Database, tenant_id: UUID):
    with database.transaction() as tx:
        token_id, plain = tenants.create_token(tx, tenant_id, "laptop", "admin")

    with database.transaction() as tx:
        principal = tenants.find_principal(tx, plain)

    assert plain.startswith("easel_")
    assert principal == Principal(tenant_id, token_id, "admin", KINDS["admin"], is_use_unrecorded=True)


def test_text_of_a_token_is_not_stored_in_the_database(database: Database, tenant_id: UUID):
    with database.transaction() as tx:
        token_id, plain = tenants.create_token(tx, tenant_id, "laptop")

        row = tx.one_or_none(select(tokens).where(tokens.c.id == token_id))

    assert plain not in str(row)
    assert plain.removeprefix("easel_").encode() not in bytes(row["hash"] if row else b"")


def test_a_revoked_token_is_refused_and_stays_in_the_list(database: Database, tenant_id: UUID):
    with database.transaction() as tx:
        token_id, plain = tenants.create_token(tx, tenant_id, "laptop")
        tenants.revoke_token(tx, tenant_id, token_id)
        (before,) = tenants.list_tokens(tx, tenant_id)

    with database.transaction() as tx:
        tenants.revoke_token(tx, tenant_id, token_id)
        assert tenants.find_principal(tx, plain) is None
        (after,) = tenants.list_tokens(tx, tenant_id)

    assert before.revoked_at is not None
    assert after.revoked_at == before.revoked_at


def test_token_of_another_tenant_is_neither_listed_nor_revoked(
    database: Database, tenant_id: UUID, other_tenant_id: UUID
):
    with database.transaction() as tx:
        token_id, plain = tenants.create_token(tx, tenant_id, "laptop")

    with pytest.raises(NotFound), database.transaction() as tx:
        tenants.revoke_token(tx, other_tenant_id, token_id)

    with database.transaction() as tx:
        assert tenants.list_tokens(tx, other_tenant_id) == []
        assert tenants.find_principal(tx, plain) is not None


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_text_that_is_not_a_token_identifies_no_tenant(database: Database, noise: str):
    with database.transaction() as tx:
        assert tenants.find_principal(tx, noise) is None


def test_use_of_a_token_is_recorded_once_a_minute(database: Database, tenant_id: UUID):
    with database.transaction() as tx:
        _, plain = tenants.create_token(tx, tenant_id, "laptop")
        assert tenants.list_tokens(tx, tenant_id)[0].last_used_at is None

    first, same_minute = _use(database, tenant_id, plain), _use(database, tenant_id, plain)
    with database.transaction() as tx:
        tx.execute(text("update tokens set last_used_at = last_used_at - interval '61 seconds'"))
    minute_later = _use(database, tenant_id, plain)

    assert same_minute == first
    assert minute_later > first


def test_requests_with_one_token_do_not_wait_for_each_other(database: Database, tenant_id: UUID):
    with database.transaction() as tx:
        token_id, plain = tenants.create_token(tx, tenant_id, "laptop")

    with database.transaction() as slow:
        tenants.record_use(slow, token_id)
        with database.transaction() as quick:
            quick.execute(text("set local lock_timeout = '100ms'"))
            principal = tenants.find_principal(quick, plain)
            tenants.record_use(quick, token_id)

    assert principal is not None


def test_token_of_an_unknown_tenant_is_refused(database: Database):
    with pytest.raises(Exception, match="fk_tokens_tenant_id"), database.transaction() as tx:
        tenants.create_token(tx, new_id(), "laptop")


def _use(database: Database, tenant_id: UUID, plain: str) -> datetime:
    with database.transaction() as tx:
        principal = tenants.find_principal(tx, plain)
        assert principal is not None
        if principal.is_use_unrecorded:
            tenants.record_use(tx, principal.token_id)
        used_at = tenants.list_tokens(tx, tenant_id)[0].last_used_at
    assert used_at is not None
    return used_at
