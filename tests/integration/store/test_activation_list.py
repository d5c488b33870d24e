"""Lists of activations: filters, pages, and what has changed since a revision."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.ids import ActivationId
from canvas.state.run_state import ActivationStatus
from store.db.database import Database
from store.runs import activation_list
from store.runs.activation_list import ActivationFilter, ActivationPage, UnknownActivation
from tests.integration.store.rows import add_activations, add_run
from tests.simulator.twins_work import has_changed

BEGUN = datetime(2031, 5, 1, 12, tzinfo=UTC)
SET_REVISION = text("update runs set revision = :revision where id = :run_id")


def add(database: Database, run_id: UUID, rows: Sequence[Mapping[str, Any]]) -> list[UUID]:
    """Insert activations in canonical order, finished by default; return their ids in this order."""
    with database.transaction() as tx:
        return add_activations(tx, run_id, [{"started_at": BEGUN, "finished_at": BEGUN, **row} for row in rows])


@pytest.fixture
def run_id(database: Database, tenant_id: UUID) -> UUID:
    with database.transaction() as tx:
        return add_run(tx, tenant_id)


def read(
    database: Database, tenant_id: UUID, run_id: UUID, chosen: ActivationFilter | None = None, **options: Any
) -> ActivationPage:
    with database.transaction() as tx:
        page = activation_list.read_page(tx, tenant_id, run_id, chosen or ActivationFilter(), **options)
    assert page is not None
    return page


def found_ids(page: ActivationPage) -> list[UUID]:
    return [UUID(row.id) for row in page.rows]


def test_activations_are_paged_by_id(database: Database, tenant_id: UUID, run_id: UUID) -> None:
    ids = add(database, run_id, [{}] * 5)

    first = read(database, tenant_id, run_id, limit=2)
    rest = read(database, tenant_id, run_id, limit=3, after=found_ids(first)[-1])

    assert found_ids(first) + found_ids(rest) == sorted(ids)
    assert (first.has_more, rest.has_more) == (True, False)
    assert (first.total, rest.total) == (5, 5)


def test_filtered_activations_are_paged_in_canonical_order(database: Database, tenant_id: UUID, run_id: UUID) -> None:
    ids = add(database, run_id, [{"node_id": "A:0"}] * 5 + [{"node_id": "B:0"}])
    chosen = ActivationFilter(node_ids=["A:0"])

    first = read(database, tenant_id, run_id, chosen, limit=3)
    rest = read(database, tenant_id, run_id, chosen, limit=3, after=found_ids(first)[-1])

    assert found_ids(first) + found_ids(rest) == ids[:5]
    assert (first.has_more, rest.has_more, first.total) == (True, False, 5)


def test_filters_select_scopes_items_nodes_statuses_and_ids(database: Database, tenant_id: UUID, run_id: UUID) -> None:
    ids = add(
        database,
        run_id,
        [
            {"node_id": "Iteration:A", "status": "open"},
            {"scope": "Iteration:A#0.3"},
            {"scope": "Iteration:A#0.12/Loop:B#0.1"},
            {"scope": "Iteration:A#01.3", "status": "running"},
        ],
    )

    def select(**chosen: Any) -> list[int]:
        page = read(database, tenant_id, run_id, ActivationFilter(**chosen))
        assert page.total == len(page.rows)
        return [ids.index(each) for each in found_ids(page)]

    assert select(scope="") == [0]
    assert select(scope="Iteration:A#0.3") == [1]
    assert select(entry="Iteration:A#0") == [1, 2]
    assert select(entry="Iteration:A#0", items=(0, 3)) == [1]
    assert select(entry="Iteration:A#0", items=(4, 12)) == [2]
    assert select(statuses=["open", "running"]) == [0, 3]
    assert select(node_ids=["Iteration:A"]) == [0]
    assert select(ids=[ids[2], ids[0]]) == [0, 2]
    assert select(entry="Iteration:A#0", statuses=["running"]) == []


@pytest.mark.parametrize("since", [0, 3, 9])
def test_changed_activations_are_those_of_the_twin(
    database: Database, tenant_id: UUID, run_id: UUID, since: int
) -> None:
    columns = [
        {"status": status.value, "activated_rev": activated, "applied_rev": applied, "started_at": started}
        for status in ActivationStatus
        for activated in (2, 3, 4)
        for applied in (None, 3, 4)
        for started in (None, BEGUN)
    ]
    ids = add(database, run_id, columns)
    changed = {each for each, row in zip(ids, columns, strict=True) if has_changed(row, since)}

    by_id = read(database, tenant_id, run_id, since=since)
    in_order = read(database, tenant_id, run_id, ActivationFilter(scope=""), since=since)

    assert set(found_ids(by_id)) == set(found_ids(in_order)) == changed
    assert by_id.total == in_order.total == len(ids)


def test_page_has_the_revision_of_its_run(database: Database, tenant_id: UUID, run_id: UUID) -> None:
    with database.transaction() as tx:
        tx.execute(SET_REVISION, run_id=run_id, revision=17)

    page = read(database, tenant_id, run_id)

    assert (page.revision, page.rows, page.total) == (17, [], 0)


def test_container_that_has_ended_has_the_last_end_inside_of_it(
    database: Database, tenant_id: UUID, run_id: UUID
) -> None:
    container = {"node_id": "Iteration:A", "outcome": {"is": "Expanded", "count": 2, "concurrency": 1}}
    ended, inner, still_open, *_ = add(
        database,
        run_id,
        [
            container,
            {**container, "node_id": "Loop:B", "scope": "Iteration:A#0.1"},
            {**container, "ordinal": 1, "status": "open"},
            {"scope": "Iteration:A#0.0", "finished_at": BEGUN.replace(second=1)},
            {"scope": "Iteration:A#0.1/Loop:B#0.0", "finished_at": BEGUN.replace(second=7)},
            {"scope": "Iteration:A#1.0", "finished_at": BEGUN.replace(second=9)},
        ],
    )

    page = read(database, tenant_id, run_id)

    last = round(BEGUN.replace(second=7).timestamp() * 1000)
    assert page.last_finished == {ended.hex: last, inner.hex: last}
    assert next(row for row in page.rows if row.id == still_open.hex).item_count == 2


def test_outcomes_are_read_in_parts(database: Database, tenant_id: UUID, run_id: UUID) -> None:
    add(
        database,
        run_id,
        [
            {"outcome": {"is": "Chose", "to": ["Message:0", "Message:1"]}},
            {"outcome": {"is": "Failed", "error": "x" * 500, "code": "node_failure", "retryable": False}},
            {"outcome": {"is": "Finished", "told": "a model failed"}},
            {"outcome": None},
        ],
    )

    routed, failed, answered, none = read(database, tenant_id, run_id, ActivationFilter(scope="")).rows

    assert (routed.outcome, routed.routed_to) == ("Chose", ["Message:0", "Message:1"])
    assert (failed.code, failed.error) == ("node_failure", "x" * 301)
    assert answered.error == "a model failed"
    assert (none.outcome, none.error, none.routed_to) == (None, None, None)


def test_run_of_another_tenant_has_no_page(database: Database, other_tenant_id: UUID, run_id: UUID) -> None:
    (known,) = add(database, run_id, [{}])
    unknown = ActivationFilter(node_ids=["LLM:0"])

    with database.transaction() as tx:
        assert activation_list.read_page(tx, other_tenant_id, run_id, ActivationFilter()) is None
    with database.transaction() as tx:
        assert activation_list.read_page(tx, other_tenant_id, run_id, unknown, after=ActivationId(known)) is None


def test_page_after_an_activation_of_another_run_is_refused(database: Database, tenant_id: UUID, run_id: UUID) -> None:
    with pytest.raises(UnknownActivation), database.transaction() as tx:
        activation_list.read_page(tx, tenant_id, run_id, ActivationFilter(scope=""), after=ActivationId(UUID(int=7)))
