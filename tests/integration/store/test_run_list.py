"""The list of runs by key."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.ids import RunId
from store.db.database import Database
from store.monitoring import run_list
from store.monitoring.run_list import RunFilter, RunPage
from store.primitives.ids import first_id_at, new_id
from tests.integration.store.rows import add_activations, add_run

NOW = datetime.now(UTC)
SET = text(
    "update runs set error = coalesce(:error, error), state = coalesce(cast(:state as json), state) where id = :id"
)


@pytest.fixture
def runs(database: Database, tenant_id: UUID) -> list[UUID]:
    """Seven runs, the newest first."""
    with database.transaction() as tx:
        return [
            add_run(
                tx,
                tenant_id,
                status="failed" if number == 5 else "succeeded",
                request={"query": f"Question {number} of 100%", "user_id": f"user {number % 2}"},
                accepted_at=NOW - timedelta(minutes=number),
            )
            for number in range(7)
        ]


def read(database: Database, tenant_id: UUID, before: UUID | None = None, **options: Any) -> RunPage:
    limit, has_total = options.pop("limit", 30), options.pop("has_total", False)
    with database.transaction() as tx:
        return run_list.read_page(
            tx,
            tenant_id,
            RunFilter(**options),
            before=RunId(before) if before is not None else None,
            limit=limit,
            has_total=has_total,
        )


def found(page: RunPage) -> list[UUID]:
    return [run.state.id for run in page.runs]


def test_pages_follow_each_other_by_key(database: Database, tenant_id: UUID, runs: list[UUID]) -> None:  # T025
    seen: list[UUID] = []
    before: UUID | None = None
    while True:
        page = read(database, tenant_id, before, limit=3)
        seen += found(page)
        before = page.next_id
        if before is None:
            break

    assert seen == runs
    assert page.searched_until is None


def test_page_below_a_run_that_is_gone_begins_at_its_time(
    database: Database, tenant_id: UUID, runs: list[UUID]
) -> None:
    gone = first_id_at(NOW - timedelta(minutes=2, seconds=30))

    assert found(read(database, tenant_id, gone)) == runs[3:]


def test_runs_are_filtered(database: Database, tenant_id: UUID, runs: list[UUID]) -> None:
    with database.transaction() as tx:
        canvas = new_id()
        special = add_run(tx, tenant_id, canvas_id=canvas, accepted_at=NOW - timedelta(hours=1), status="cancelled")

    assert found(read(database, tenant_id, statuses=["failed", "cancelled"])) == [runs[5], special]
    assert found(read(database, tenant_id, canvas_ids=[canvas])) == [special]
    assert found(read(database, tenant_id, user_id="user 1")) == [runs[1], runs[3], runs[5]]
    since, until = NOW - timedelta(minutes=3, seconds=1), NOW - timedelta(minutes=1)
    assert found(read(database, tenant_id, since=since, until=until)) == [runs[2], runs[3]]
    assert found(read(database, tenant_id, statuses=["running"])) == []


def test_words_are_searched_in_queries_and_errors(database: Database, tenant_id: UUID, runs: list[UUID]) -> None:
    with database.transaction() as tx:
        tx.execute(SET, id=runs[2], error="The vendor REFUSED it", state=None)

    assert found(read(database, tenant_id, words=["question", "4"])) == [runs[4]]
    assert found(read(database, tenant_id, words=["refused"])) == [runs[2]]
    assert found(read(database, tenant_id, words=["100%"])) == runs
    assert found(read(database, tenant_id, words=["0%0"])) == []
    assert found(read(database, tenant_id, words=["_uestion"])) == []


def test_id_finds_a_run_its_session_or_its_message(database: Database, tenant_id: UUID, runs: list[UUID]) -> None:
    run = read(database, tenant_id).runs[3]

    for id_ in (run.state.id, run.conversation_id, run.message_id):
        assert found(read(database, tenant_id, exact=id_)) == [run.state.id]
    assert found(read(database, tenant_id, exact=new_id())) == []


def test_trouble_selects_failures_and_further_attempts(database: Database, tenant_id: UUID, runs: list[UUID]) -> None:
    # T027
    with database.transaction() as tx:
        add_activations(tx, runs[0], [{}])
        add_activations(tx, runs[1], [{"attempt": 2}])
        add_activations(tx, runs[3], [{"crash_count": 1}])
        add_activations(tx, runs[4], [{"status": "ready", "not_before": NOW + timedelta(hours=1)}])
        tx.execute(SET, id=runs[6], error="broken", state=None)

    assert found(read(database, tenant_id, has_trouble=True)) == [runs[1], runs[3], runs[4], runs[5], runs[6]]


def test_search_stops_and_says_how_far_it_came(
    database: Database, tenant_id: UUID, runs: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:  # T022
    monkeypatch.setattr(run_list, "SEARCHED_ROWS", 4)

    first = read(database, tenant_id, statuses=["failed"])
    rest = read(database, tenant_id, first.next_id, statuses=["failed"])

    assert (found(first), first.next_id) == ([], runs[3])
    assert first.searched_until is not None
    assert abs(first.searched_until - (NOW - timedelta(minutes=3))) < timedelta(seconds=1)
    assert (found(rest), rest.next_id, rest.searched_until) == ([runs[5]], None, None)


def test_total_counts_all_pages_up_to_a_maximum(
    database: Database, tenant_id: UUID, runs: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = read(database, tenant_id, runs[2], limit=2, has_total=True)
    monkeypatch.setattr(run_list, "MAX_COUNTED", 5)
    capped = read(database, tenant_id, limit=2, has_total=True)

    assert (exact.total, exact.is_capped) == (7, False)
    assert (capped.total, capped.is_capped) == (5, True)


def test_waiting_run_names_whom_it_waits_for(database: Database, tenant_id: UUID) -> None:
    form = '["Form:0", "", "", {}, "", true]'
    stop = '["LLM:0", "", "", {"x": {"budget": {"code": "budget_exceeded"}}}, "", true]'
    states = [f'{{"forms": {{"1": {stop}}}}}', f'{{"forms": {{"1": {stop}, "2": {form}}}, "activated": 3, "live": 1}}']
    with database.transaction() as tx:
        ids = [add_run(tx, tenant_id, status="waiting") for _ in states]
        for id_, state in zip(ids, states, strict=True):
            tx.execute(SET, id=id_, state=state, error=None)
        _, found_states = run_list.read_states(tx, tenant_id, [RunId(each) for each in ids])

    by_id = {state.id: state for state in found_states}
    assert [by_id[RunId(each)].waits_for for each in ids] == ["budget", "person"]
    assert (by_id[RunId(ids[1])].activated, by_id[RunId(ids[1])].active) == (3, 1)


def test_newer_runs_are_counted_up_to_a_maximum(
    database: Database, tenant_id: UUID, runs: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(newer_than: UUID, **options: Any) -> int:
        with database.transaction() as tx:
            return run_list.count_newer(tx, tenant_id, RunFilter(**options), RunId(newer_than))

    assert (count(runs[0]), count(runs[6]), count(runs[6], statuses=["failed"])) == (0, 6, 1)
    assert (count(runs[6], exact=runs[2]), count(runs[6], words=["question", "3"])) == (1, 1)
    monkeypatch.setattr(run_list, "MAX_NEWER", 4)
    assert count(runs[6]) == 4


def test_runs_of_another_tenant_are_not_listed(database: Database, other_tenant_id: UUID, runs: list[UUID]) -> None:
    with database.transaction() as tx:
        _, states = run_list.read_states(tx, other_tenant_id, [RunId(runs[0])])

    assert states == []
    assert found(read(database, other_tenant_id)) == []
    assert found(read(database, other_tenant_id, exact=runs[0])) == []
