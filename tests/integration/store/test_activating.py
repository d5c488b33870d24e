"""Insertion of new activations in one statement, and their claim by the worker that reports (continuations)."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from canvas.routing.decision import Decision
from canvas.state.run_state import RunStatus
from scheduler.coordinator import run_snapshots
from store.runs import new_activations, run_rows
from store.runs.activations import Claim
from store.runs.new_activations import BATCH_FROM, ContinuationRequest, InlineReport
from store.runs.run_rows import RunRow
from store.tables.runs import activations as rows
from tests.builders import content
from tests.integration.engine import Bench, Run, report_payload

CANVASES: Mapping[str, Sequence[str]] = {
    "a fan": ["begin -> " + ", ".join(f"n{number}" for number in range(BATCH_FROM + 2)) + " -> say"],
    "items side by side": ["begin -> each -> say", "each: item -> work -> more"],
    "message streams": ["begin -> model1, model2, model3, work; model1, model2, model3 -> say; work -> say2"],
}
"""The largest of their first advances activates enough nodes for one statement."""
ID_COLUMNS = ("id", "run_id", "stream_id")
TIME_COLUMNS = ("enqueued_at", "not_before", "lease_until", "started_at", "finished_at", "created_at")


@pytest.mark.parametrize("drawn", CANVASES)
def test_activations_inserted_in_one_statement_equal_those_inserted_one_by_one(
    bench: Bench, drawn: str, monkeypatch: pytest.MonkeyPatch
):
    together = activation_rows(bench, CANVASES[drawn])
    monkeypatch.setattr(new_activations, "BATCH_FROM", 10**9)
    one_by_one = activation_rows(bench, CANVASES[drawn])

    assert len(together) >= BATCH_FROM
    assert [comparable(row) for row in together] == [comparable(row) for row in one_by_one]
    assert [row["stream_id"] is None for row in together] == [row["stream_id"] is None for row in one_by_one]


def test_activations_beyond_the_batch_size_are_inserted_in_several_statements(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(new_activations, "BATCH_SIZE", BATCH_FROM)
    nodes = [f"n{number:02}" for number in range(3 * BATCH_FROM + 1)]

    run = bench.start("begin -> " + ", ".join(nodes))
    bench.report(bench.claim(run, "begin"))
    bench.coordinator.advance_run(run.id)

    assert run.statuses == {"begin": "done", **dict.fromkeys(nodes, "ready")}


def test_one_of_several_activations_is_claimed_by_its_reporter_and_the_others_are_enqueued(bench: Bench):
    run, claims = claimed_by_its_reporter(bench, "begin -> one, two, three, four, five")

    (claim,) = claims
    row = run.activation(claim.node_id)
    assert run.statuses == {"begin": "done", "one": "running"} | dict.fromkeys(
        ("two", "three", "four", "five"), "ready"
    )
    assert (row.lease_id, row.worker, row.attempt) == (claim.lease_id, "reporter", 1)
    enqueued = {message[1] for message in bench.outbox.of("worker.execute")}
    assert enqueued == {str(each.id) for each in run.activations if each.status == "ready"}


def test_claim_of_a_continuation_equals_the_claim_of_a_task_message(bench: Bench):
    run, (continuation,) = claimed_by_its_reporter(bench, "begin -> work -> say", say=content("done"))
    other = bench.start("begin -> work -> say", say=content("done"))
    bench.report(bench.claim(other, "begin"))
    bench.coordinator.advance_run(other.id)

    claimed = bench.claim(other, "work")

    differing = (
        "run_id",
        "id",
        "lease_id",
        "canvas_id",
        "version_id",
        "conversation_id",
        "message_id",
        "run_created_at",
    )
    of_run = {name: value for name, value in fields(continuation).items() if name not in differing}
    assert of_run == {name: value for name, value in fields(claimed).items() if name not in differing}
    assert (continuation.conversation_id, continuation.run_created_at) == (run.conversation_id, run.row["created_at"])


def test_promoted_activation_is_claimed_by_its_reporter(bench: Bench):
    bench.coordinator = bench.a_coordinator(max_running=1)
    bench.lifecycle = type(bench.lifecycle)(bench.coordinator)
    run = bench.start("begin -> one, two")
    bench.report(bench.claim(run, "begin"))
    bench.coordinator.advance_run(run.id)
    assert run.statuses == {"begin": "done", "one": "ready", "two": "queued"}
    bench.outbox.lose()

    (claim,) = report_inline(bench, bench.claim(run, "one"))

    row = run.activation("two")
    assert (claim.id, claim.node_id, claim.attempt) == (row.id, "two", 1)
    assert (row.status, row.lease_id, row.worker) == ("running", claim.lease_id, "reporter")
    assert bench.outbox.of("worker.execute") == []


def test_stopping_run_has_no_continuation(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    row = RunRow.from_columns(run.row)

    with bench.database.transaction() as tx:
        state = run_rows.state_of(tx, row, [], whole=True)
        state.status = RunStatus.STOPPING
        made = new_activations.activate(tx, row, 2, Decision(state, promote_count=1), [inline_report(claimed)], None)

    assert (made.claims, made.promoted and made.promoted.result()) == ({}, [])


def test_activation_that_its_reporter_does_not_reserve_is_enqueued(bench: Bench):
    run = bench.start("begin -> work")
    bench.outbox.lose()

    claims = report_inline(bench, bench.claim(run, "begin"), reserve=lambda _: None)

    work = run.activation("work")
    assert claims == []
    assert work.status == "ready"
    assert [message[1] for message in bench.outbox.of("worker.execute")] == [str(work.id)]


# -- helpers ---------------------------------------------------------------------------------------------------------
def activation_rows(bench: Bench, drawn: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the activations of a run once one advance has activated several."""
    run = bench.start(*drawn, each={"max_concurrency": 5, "items_ref": "sys.query"}, query=["a", "b", "c", "d"])
    bench.play(until=lambda: largest_advance(run) >= BATCH_FROM)
    bench.outbox.lose()
    query = select(rows).where(rows.c.run_id == run.id).order_by(rows.c.order_key, rows.c.node_id)
    with bench.database.transaction() as tx:
        return [row._asdict() for row in tx.rows(query)]


def largest_advance(run: Run) -> int:
    revisions = [row.activated_rev for row in run.activations]
    return max(map(revisions.count, revisions))


def comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without what differs between runs; of a time only whether it is set."""
    remaining = {
        name: value for name, value in row.items() if name not in (*ID_COLUMNS, *TIME_COLUMNS, "lease_id", "outcome")
    }
    return remaining | {name: row[name] is not None for name in TIME_COLUMNS if name in row}


def fields(claim: Claim) -> dict[str, Any]:
    return {name: getattr(claim, name) for name in Claim.__slots__}


def inline_report(claimed: Claim, reserve: Any = lambda _: uuid4()) -> InlineReport:
    return InlineReport(claimed, report_payload(), ContinuationRequest("reporter", timedelta(seconds=10), reserve))


def report_inline(bench: Bench, claimed: Claim, reserve: Any = lambda _: uuid4()) -> list[Claim]:
    """Store a report with an inline advance; return the claims of its continuations."""
    with bench.database.transaction() as tx:
        snapshot = run_snapshots.try_lock(tx, claimed.run_id)
        assert snapshot is not None
        advance = bench.coordinator.apply_reports(tx, snapshot, [inline_report(claimed, reserve)])
    assert advance is not None
    bench.coordinator.publish(advance)
    return [claim for pending in advance.continuations.claims.values() if (claim := pending.result()) is not None]


def claimed_by_its_reporter(bench: Bench, *drawn: str, **params: Any) -> tuple[Run, list[Claim]]:
    run = bench.start(*drawn, **params)
    bench.outbox.lose()
    return run, report_inline(bench, bench.claim(run, "begin"))
