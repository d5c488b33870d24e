"""A repeated request finds the run that the first one started, or the reply that it got."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.errors import Conflict, InvalidRequest
from store.db.database import Database
from store.primitives.ids import new_id
from store.tenants import idempotency
from store.tenants.idempotency import FirstResponse

ROUTE = "POST /agents/chat/completions"


def claim(
    database: Database, tenant_id: UUID, run_id: UUID, *, route: str = ROUTE, digest: bytes = b"d"
) -> UUID | None:
    with database.transaction() as tx:
        first = idempotency.claim(tx, tenant_id, route, "order 7", digest, run_id)
    return first.run_id if first is not None else None


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
    with database.transaction() as tx:
        assert idempotency.find(tx, tenant_id, ROUTE, "order 7", b"another request") is None

    assert claim(database, tenant_id, second, digest=b"another request") is None
    assert claim(database, tenant_id, new_id(), digest=b"another request") == second


def test_reply_is_stored_with_the_idempotency_key_of_its_request(database: Database, tenant_id: UUID):
    reply = {"status": 200, "body": {"code": 0, "data": ["ä", 1.5, None]}}
    with database.transaction() as tx:
        assert idempotency.claim(tx, tenant_id, ROUTE, "order 7", b"d") is None
        idempotency.store_reply(tx, tenant_id, ROUTE, "order 7", reply)

    with database.transaction() as tx:
        claimed, found = (ask(tx, tenant_id, ROUTE, "order 7", b"d") for ask in (idempotency.claim, idempotency.find))

    assert claimed == found == FirstResponse(None, reply)


@pytest.mark.parametrize("key", ["", " ", "k" * 256, "k\n", "k\x00", "schlüssel", "\x7f", None, 7])
def test_invalid_idempotency_key_is_refused(key: Any):
    with pytest.raises(InvalidRequest, match="idempotency key"):
        idempotency.validate_key(key)


@pytest.mark.parametrize("key", ["k", "k" * 255, '"8e03978e-40d5-43e8"', "order 7/a:b;c=d~"])
def test_any_printable_text_may_be_a_key(key: str):
    assert idempotency.validate_key(key) == key


def test_a_request_that_was_rolled_back_leaves_its_key_free(database: Database, tenant_id: UUID):
    with suppress(RuntimeError), database.transaction() as tx:
        idempotency.claim(tx, tenant_id, ROUTE, "order 7", b"d", new_id())
        raise RuntimeError

    assert claim(database, tenant_id, new_id()) is None


def test_exactly_one_of_many_concurrent_requests_claims_the_key(database: Database, tenant_id: UUID):
    run_ids = [new_id() for _ in range(6)]

    with ThreadPoolExecutor(6) as threads:
        claims = [threads.submit(claim, database, tenant_id, run_id) for run_id in run_ids]
    results = [each.result() for each in claims]

    assert results.count(None) == 1
    first = run_ids[results.index(None)]
    assert {run_id for run_id in results if run_id} == {first}


def test_idempotency_keys_are_deleted_after_a_day(database: Database, tenant_id: UUID, other_tenant_id: UUID):
    claim(database, tenant_id, new_id())
    _age(database, tenant_id, "25 hours")
    claim(database, other_tenant_id, new_id())

    with database.transaction() as tx:
        assert idempotency.delete_expired(tx) == 1
        assert idempotency.delete_expired(tx) == 0


def _age(database: Database, tenant_id: UUID, by: str) -> None:
    with database.transaction() as tx:
        tx.execute(
            text("update idempotency_keys set created_at = created_at - cast(:by as interval) where tenant_id = :id"),
            by=by,
            id=tenant_id,
        )
