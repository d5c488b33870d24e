"""Counts of a run's activations by node."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from canvas.state.run_state import ActivationStatus
from store.db.database import Database
from store.monitoring import node_counts
from store.primitives.ids import new_id
from tests.integration.store.rows import add_activations, add_run

BEGUN = datetime(2020, 5, 1, 12, tzinfo=UTC)
LATER = datetime(2120, 5, 1, tzinfo=UTC)
FAILED = {"is": "Failed", "error": "broken", "code": "node_failure"}


def test_every_status_is_counted_once(database: Database, tenant_id: UUID) -> None:
    with database.transaction() as tx:
        run_id = add_run(tx, tenant_id)
        add_activations(tx, run_id, [{"node_id": status.value, "status": status.value} for status in ActivationStatus])

        found = {each.node_id: each for each in node_counts.load_node_counts(tx, tenant_id, run_id)}

    assert all(each.total == 1 for each in found.values())
    assert {state for each in found.values() for state in each.states} <= set(node_counts.STATES)
    assert (found["saying"].states, found["running"].states) == ({"awaiting_stream": 1}, {"unresponsive": 1})


def test_activations_are_counted_by_due_time_lease_budget_and_failure(database: Database, tenant_id: UUID) -> None:
    with database.transaction() as tx:
        run_id = add_run(tx, tenant_id)
        add_activations(
            tx,
            run_id,
            [
                {"status": "ready", "not_before": LATER},
                {"status": "ready"},
                {"status": "running", "lease_until": LATER},
                {"status": "running", "lease_until": BEGUN},
                {"status": "waiting", "outcome": {**FAILED, "code": "budget_exceeded"}},
                {"status": "waiting", "outcome": {"is": "Waiting", "inputs": {}, "tips": ""}},
                {"status": "done", "outcome": FAILED},
                {"status": "done", "outcome": {"is": "Finished", "told": 'it said "Failed"'}},
            ],
        )

        (found,) = node_counts.load_node_counts(tx, tenant_id, run_id)

    states = ("ready", "delayed", "running", "unresponsive", "needs_input", "over_budget", "done", "failed")
    assert found.states == dict.fromkeys(states, 1)


def test_usage_and_work_of_activations_are_summed(database: Database, tenant_id: UUID) -> None:
    usage = {"calls": 1, "total_tokens": 5, "cost_USD": 3_000_000_000}
    times = {"started_at": BEGUN, "finished_at": BEGUN + timedelta(seconds=2)}
    with database.transaction() as tx:
        run_id = add_run(tx, tenant_id)
        add_activations(
            tx,
            run_id,
            [{"usage": usage, **times, "attempt": 2}, {"usage": usage, **times}, {"usage": {}}, {"usage": None}],
        )

        (found,) = node_counts.load_node_counts(tx, tenant_id, run_id)

    assert found.usage == {"calls": 2, "total_tokens": 10, "cost_USD": 6_000_000_000}
    assert (found.work_ms, found.attempts) == (4_000, 5)
    assert found.first_started == round(BEGUN.timestamp() * 1000)
    assert found.last_finished == round((BEGUN + timedelta(seconds=2)).timestamp() * 1000)


def test_earlier_attempt_of_a_ready_activation_is_no_work(database: Database, tenant_id: UUID) -> None:
    times = {"started_at": BEGUN, "finished_at": BEGUN + timedelta(seconds=2)}
    with database.transaction() as tx:
        run_id = add_run(tx, tenant_id)
        add_activations(tx, run_id, [{"status": "ready", **times}])

        (found,) = node_counts.load_node_counts(tx, tenant_id, run_id)

    assert (found.work_ms, found.last_finished) == (0, None)


def test_outcomes_are_counted_by_node_kind_and_choice(database: Database, tenant_id: UUID) -> None:
    outcomes: list[Any] = [
        {"is": "Finished"},
        {"is": "Finished", "told": 'a "quoted" error'},
        {"status": 200, "ends": True, "is": "Finished"},
        {"to": ["A:0", "B:0"], "is": "Chose"},
        {"to": ["A:0"], "is": "Chose", "used": {"calls": 1}},
        {"error": '{"is":"Finished"}', "is": "Failed", "code": "node_failure"},
        None,
    ]
    with database.transaction() as tx:
        run_id = add_run(tx, tenant_id)
        add_activations(tx, run_id, [{"outcome": outcome} for outcome in outcomes])
        add_activations(tx, run_id, [{"outcome": {"is": "Finished"}, "status": "reported"}])

        found = node_counts.outcomes_of(node_counts.send_outcomes(tx, tenant_id, run_id))

    assert sorted((each.kind, list(each.to), each.number) for each in found) == [
        ("Chose", ["A:0"], 1),
        ("Chose", ["A:0", "B:0"], 1),
        ("Failed", [], 1),
        ("Finished", [], 3),
    ]


def test_counts_of_another_tenants_run_are_empty(database: Database, tenant_id: UUID) -> None:
    with database.transaction() as tx:
        run_id = add_run(tx, tenant_id)
        add_activations(tx, run_id, [{"usage": {"calls": 1}}])

        counts = node_counts.load_node_counts(tx, new_id(), run_id)
        outcomes = node_counts.outcomes_of(node_counts.send_outcomes(tx, new_id(), run_id))

    assert (counts, outcomes) == ([], [])
