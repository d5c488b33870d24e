"""Finding many runs at once by their ids and external ids."""

from uuid import UUID, uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from store.db.database import Database
from store.primitives.ids import new_id
from store.runs import external_ids, run_queries
from store.tables import tenants as tables
from tests.integration.store.rows import add_run

ODD_IDS = ["", "a\nb", "x" * 256, "\x00", "0" * 32, "nothing", "ÖRDER-1"]


def spellings(run_id: UUID) -> list[str]:
    return [str(run_id), run_id.hex, run_id.hex.upper()]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_many_runs_are_found_like_each_of_them(
    database: Database, tenant_id: UUID, other_tenant_id: UUID, data: st.DataObject
) -> None:
    keys = [str(uuid4()), f"order-{new_id()}"]
    with database.transaction() as tx:
        own, foreign = [add_run(tx, tenant_id) for _ in range(2)], add_run(tx, other_tenant_id)
        for key in keys:
            values = {"tenant_id": tenant_id, "key": key, "run_id": own[0], "digest": b""}
            tx.execute(insert(tables.external_ids).values(**values))
    known = [*spellings(own[0]), *spellings(own[1]), *spellings(foreign), *keys, keys[0].replace("-", ""), *ODD_IDS]
    written = data.draw(st.lists(st.sampled_from(known), max_size=20))

    with database.transaction() as tx:
        found = external_ids.find_runs(tx, tenant_id, written)
        each = {text: external_ids.find_run(tx, tenant_id, text) for text in written}

    assert found == {text: run_id for text, run_id in each.items() if run_id is not None}


def test_statuses_of_runs_are_those_of_the_tenant(database: Database, tenant_id: UUID, other_tenant_id: UUID) -> None:
    with database.transaction() as tx:
        own = add_run(tx, tenant_id, status="waiting")
        foreign = add_run(tx, other_tenant_id)

        found = run_queries.statuses_of(tx, tenant_id, {own, foreign, new_id()})

    assert found == {own: "waiting"}
