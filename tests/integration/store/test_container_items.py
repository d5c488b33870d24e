"""The items of a container."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from canvas.ids import ActivationId
from store.db.database import Database
from store.runs import container_items
from store.runs.container_items import ItemOrder, ItemPage, ItemState, NotAContainer
from tests.integration.store.rows import add_activations, add_run

BEGUN = datetime(2031, 5, 1, 12, tzinfo=UTC)
OPENED = {"is": "Expanded", "count": 4, "concurrency": 2}
FAILED = {"is": "Failed", "error": "broken", "code": "node_failure"}


def in_item(number: int, **columns: Any) -> dict[str, Any]:
    seconds = timedelta(seconds=number + 1)
    times = {"created_at": BEGUN, "started_at": BEGUN, "finished_at": BEGUN + seconds}
    return {"scope": f"Iteration:A#0.{number}", **times, **columns}


ROWS = [
    {"node_id": "Iteration:A", "status": "open", "outcome": OPENED},
    in_item(0, usage={"total_tokens": 5, "cost_USD": 1_000_000_000}),
    in_item(0, attempt=2, scope="Iteration:A#0.0/Loop:B#0.0", usage={"total_tokens": 2, "calls": 1}),
    in_item(1, outcome=FAILED),
    in_item(1, outcome={**FAILED, "error": "later"}),
    in_item(2, usage={"total_tokens": 1, "cost_USD": 3_000_000_000}),
    in_item(2, status="running", finished_at=None),
    in_item(3, status="closed", started_at=None, finished_at=None),
    in_item(4),  # the visit that collects
    {"scope": "Iteration:A#1.0"},
    {"scope": ""},
]


@pytest.fixture
def container(database: Database, tenant_id: UUID) -> tuple[UUID, UUID]:
    """The ids of a run and of its container."""
    with database.transaction() as tx:
        run_id = add_run(tx, tenant_id)
        return run_id, add_activations(tx, run_id, ROWS)[0]


def read(database: Database, container: tuple[UUID, UUID], **options: Any) -> ItemPage:
    run_id, activation_id = container
    with database.transaction() as tx:
        page = container_items.read_items(tx, run_id, ActivationId(activation_id), **options)
    assert page is not None
    return page


def items(page: ItemPage) -> list[int]:
    return [row.item for row in page.rows]


def test_items_have_their_states_counts_times_and_usage(database: Database, container: tuple[UUID, UUID]) -> None:
    page = read(database, container)

    first, failed, active, closed = page.rows
    begun = round(BEGUN.timestamp() * 1000)
    assert [row.state for row in page.rows] == ["done", "failed", "active", "closed"]
    assert (page.count, page.ended, page.has_more) == (4, 3, False)
    assert (first.steps, first.attempts, first.started_at, first.ended_at) == (2, 3, begun, begun + 1_000)
    assert first.usage == {"total_tokens": 7, "cost_USD": 1_000_000_000}
    assert (failed.failed, failed.error) == (2, "broken")
    assert (active.started_at, active.ended_at, closed.started_at) == (begun, None, None)


def test_items_are_selected_by_state_and_ordered_by_time_or_cost(
    database: Database, container: tuple[UUID, UUID]
) -> None:
    assert items(read(database, container, state=ItemState.FAILED)) == [1]
    assert items(read(database, container, state=ItemState.ACTIVE)) == [2]
    assert items(read(database, container, order=ItemOrder.SLOWEST)) == [2, 1, 0, 3]
    assert items(read(database, container, order=ItemOrder.COST))[:2] == [2, 0]


def test_items_are_read_in_parts(database: Database, container: tuple[UUID, UUID]) -> None:
    first, rest = read(database, container, limit=3), read(database, container, first=3, limit=3)

    assert (items(first), first.has_more) == ([0, 1, 2], True)
    assert (items(rest), rest.has_more) == ([3], False)
    assert first.ended == rest.ended == 3


def test_rounds_of_a_loop_have_no_known_number(database: Database, tenant_id: UUID) -> None:
    with database.transaction() as tx:
        run_id = add_run(tx, tenant_id)
        loop, *_ = add_activations(
            tx,
            run_id,
            [{"node_id": "Loop:A", "outcome": {"is": "Expanded", "concurrency": 1}}, {"scope": "Loop:A#0.7"}],
        )

    page = read(database, (run_id, loop))

    assert (page.count, items(page)) == (None, [7])


def test_activation_that_has_opened_nothing_has_no_items(database: Database, tenant_id: UUID) -> None:
    with database.transaction() as tx:
        run_id = add_run(tx, tenant_id)
        (plain,) = add_activations(tx, run_id, [{}])

        assert container_items.read_items(tx, run_id, ActivationId(UUID(int=1))) is None
        with pytest.raises(NotAContainer):
            container_items.read_items(tx, run_id, ActivationId(plain))
