"""A repeated request finds the run that the first one started."""

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.errors import Conflict
from store import idempotency
from store.database import Database
from store.ids import new_id

ROUTE = "POST /agents/chat/completions"


def claim(
    database: Database, tenant_id: UUID, run_id: UUID, *, route: str = ROUTE, digest: bytes = b"d"
) -> UUID | None:
    with database.transaction() as tx:
        return idempotency.claim(tx, tenant_id, route, "order 7", digest, run_id)


def test_a_repeated_request_gets_the_run_of_the_first_one(database: Database, tenant_id: UUID):
    first, second = new_id(), new_id()

    assert claim(database, tenant_id, first) is None
    assert claim(database, tenant_id, second) == first
    assert claim(database, tenant_id, first) == first


def test_a_key_with_another_request_is_refused(database: Database, tenant_id: UUID):
    claim(database, tenant_id, new_id())

    with pytest.raises(Conflict, match="order 7"):
        claim(database, tenant_id, new_id(), digest=b"another request")


def test_a_key_is_new_for_another_tenant_and_on_another_route(
    database: Database, tenant_id: UUID, other_tenant_id: UUID
):
    claim(database, tenant_id, new_id())

    assert claim(database, other_tenant_id, new_id()) is None
    assert claim(database, tenant_id, new_id(), route="POST /runs") is None


def test_a_key_is_new_again_after_a_day(database: Database, tenant_id: UUID):
    claim(database, tenant_id, new_id())
    _age(database, tenant_id, "24 hours 1 second")
    second = new_id()

    assert claim(database, tenant_id, second, digest=b"another request") is None
    assert claim(database, tenant_id, new_id(), digest=b"another request") == second


def test_a_request_that_was_rolled_back_leaves_its_key_free(database: Database, tenant_id: UUID):
    with database.transaction() as tx, tx.connection.begin_nested() as start:
        idempotency.claim(tx, tenant_id, ROUTE, "order 7", b"d", new_id())
        start.rollback()

    assert claim(database, tenant_id, new_id()) is None


def test_of_many_requests_at_once_exactly_one_is_the_first(database: Database, tenant_id: UUID):
    offered = [new_id() for _ in range(6)]

    with ThreadPoolExecutor(6) as many:
        claims = [many.submit(claim, database, tenant_id, run_id) for run_id in offered]
    got = [each.result() for each in claims]

    assert got.count(None) == 1
    first = offered[got.index(None)]
    assert {run_id for run_id in got if run_id} == {first}


def test_keys_are_forgotten_when_their_day_is_over(database: Database, tenant_id: UUID, other_tenant_id: UUID):
    claim(database, tenant_id, new_id())
    _age(database, tenant_id, "25 hours")
    claim(database, other_tenant_id, new_id())

    with database.transaction() as tx:
        assert idempotency.forget_expired(tx) == 1
        assert idempotency.forget_expired(tx) == 0


def _age(database: Database, tenant_id: UUID, by: str) -> None:
    with database.transaction() as tx:
        tx.run(
            text("update idempotency_keys set created_at = created_at - cast(:by as interval) where tenant_id = :id"),
            by=by,
            id=tenant_id,
        )
