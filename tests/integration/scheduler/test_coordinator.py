"""Advance: each report is applied exactly once, also under concurrency and after failures."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from canvas.errors import StateError
from canvas.outcome import Failed, Finished
from canvas.routing import decide
from canvas.state.run_state import REUSE_RULES_VERSION
from providers.models.types.chat import Usage
from scheduler.coordinator import run_snapshots
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.decision_writer import Advance
from scheduler.coordinator.run_snapshots import RunSnapshot
from scheduler.messaging.celery_app import ADVANCE, EXECUTE
from store.db.transaction import Transaction
from store.runs.activations import Claim
from store.tables.runs import runs
from tests.builders import content
from tests.integration.engine import Bench, Run, new_reporter
from worker.execution.reporter import Reporter, StoreMode

WIDE = "begin -> one, two, three, four -> join"


def test_two_concurrent_coordinators_apply_a_report_once(bench: Bench):
    run = bench.start(WIDE)
    bench.report(bench.claim(run, "begin"))
    both = Barrier(2)

    def advance(coordinator: Coordinator) -> None:
        both.wait()
        coordinator.advance_run(run.id)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(advance, bench.a_coordinator()) for _ in range(2)]:
            done.result()

    assert run.event_names.count("node_finished") == 1
    assert len(bench.outbox.of(EXECUTE)) == len(set(bench.outbox.of(EXECUTE))) == 5
    assert run.row["revision"] == 2


def test_all_reports_of_many_workers_at_once_are_applied(bench: Bench):
    run = bench.start(f"begin -> {', '.join(f'n{i}' for i in range(12))} -> join")
    bench.play(until=lambda: "n0" in run.statuses)
    claims = [bench.claim(run, f"n{i}") for i in range(12)]
    all_at_once = Barrier(len(claims))

    def report(claimed: Any) -> None:
        all_at_once.wait()
        new_reporter(bench.coordinator, claimed).report(Finished(), None, {})

    with ThreadPoolExecutor(len(claims)) as pool:
        for done in [pool.submit(report, claimed) for claimed in claims]:
            done.result()
    advanced = 0
    while len(bench.outbox.of(ADVANCE)) > advanced:  # a caller that has advanced too often hands the rest on
        bench.coordinator.advance_run(run.id)
        advanced += 1

    assert {run.statuses[f"n{i}"] for i in range(12)} == {"done"}
    assert run.statuses["join"] == "ready"


def test_report_stored_while_the_run_is_locked_is_found_by_the_re_check(bench: Bench):
    run = bench.start("begin -> one, two")
    bench.play(until=lambda: "one" in run.statuses)
    one, two = bench.claim(run, "one"), bench.claim(run, "two")
    bench.report(one)

    with bench.database.transaction() as tx:
        assert advance(bench, tx, run) is not None
        new_reporter(bench.coordinator, two).report(Finished(), None, {})  # it finds the run locked, twice
        while_locked = run.activation("two").status
    bench.coordinator.recheck(run.id)

    assert while_locked == "reported"
    assert run.statuses == {"begin": "done", "one": "done", "two": "done"}


def test_report_committed_after_the_re_check_is_applied_by_its_reporter(bench: Bench):
    run = bench.start("begin -> one, two")
    bench.play(until=lambda: "one" in run.statuses)
    one, two = bench.claim(run, "one"), bench.claim(run, "two")
    bench.report(one)
    has_tried, may_commit = Event(), Event()
    reporter = reporter_that_waits_before_its_first_commit(bench, two, has_tried, may_commit)

    with ThreadPoolExecutor(1) as pool:
        with bench.database.transaction() as tx:
            advance(bench, tx, run)
            reported = pool.submit(reporter.report, Finished(), None, {})
            assert has_tried.wait(30)
        bench.coordinator.recheck(run.id)
        after_the_recheck = run.activation("two").status
        may_commit.set()
        reported.result()

    assert after_the_recheck == "running"
    assert run.statuses["two"] == "done"


def test_inline_advance_needs_no_message(bench: Bench):
    run = bench.start("begin -> work")

    bench.play()

    assert run.status == "succeeded"
    assert bench.outbox.of(ADVANCE) == []


def test_report_without_inline_advance_leaves_the_advance_to_the_scheduler(bench: Bench):
    run = bench.start("begin -> work")
    worker = bench.a_worker(inline_advance=False)

    bench.play(worker, until=lambda: bool(bench.outbox.of(ADVANCE)))
    before = run.statuses
    bench.play(worker)

    assert before == {"begin": "reported"}
    assert run.status == "succeeded"


def test_failed_advance_keeps_the_report_and_is_retried_by_the_scheduler(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work")
    monkeypatch.setattr(decide, "decide", failing(decide.decide, times=1))

    bench.play(until=lambda: bool(bench.outbox.of(ADVANCE)))
    stored = (run.statuses, run.outputs("begin"), run.row["revision"])
    bench.play()

    assert stored == ({"begin": "reported"}, {}, 1)
    assert run.status == "succeeded"
    assert run.activation("begin").attempt == 1


def test_advance_that_always_fails_is_logged_and_stops_no_other_run(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    broken, healthy = bench.start("begin -> work"), bench.start("begin -> work")
    monkeypatch.setattr(decide, "decide", failing(decide.decide, run_id=broken.id))

    with pytest.raises(StateError):
        bench.play()
    bench.play()

    assert (broken.status, healthy.status) == ("running", "succeeded")
    assert broken.statuses == {"begin": "reported"}


def test_cancelled_run_whose_advance_always_fails_is_ended_by_force_with_a_log_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    bench.report(claimed)
    at_first = run.status

    def contradict(canvas: Any, state: Any, reports: Any) -> Any:
        raise StateError("Stored facts contradict each other.\nA second line.")

    monkeypatch.setattr(decide, "decide", contradict)
    with capture_logs() as logs:
        bench.coordinator.advance_run(run.id)

    assert (at_first, run.status) == ("stopping", "cancelled")
    (line,) = [line for line in logs if line["event"] == "cancelled_by_force"]
    assert (line["run_id"], line["error"]) == (str(run.id), "Stored facts contradict each other.")


def test_advance_leaves_a_run_unchanged_that_is_over_unknown_or_of_newer_rules(bench: Bench):
    over = bench.start("begin -> work")
    bench.play()
    newer = bench.start("begin -> work")
    bench.report(bench.claim(newer, "begin"))
    change(bench, newer, rules_version=REUSE_RULES_VERSION + 1)
    revisions = (over.row["revision"], newer.row["revision"])

    for run_id in (over.id, newer.id, uuid4()):
        bench.coordinator.advance_run(run_id)

    assert (over.row["revision"], newer.row["revision"]) == revisions
    assert newer.statuses == {"begin": "reported"}


def test_advance_without_reports_changes_nothing(bench: Bench):
    run = bench.start("begin -> work")
    before = run.row

    for _ in range(3):
        bench.coordinator.advance_run(run.id)

    assert run.row == before
    assert len(bench.outbox.sent) == 1


def test_advance_of_a_run_with_endless_reports_is_handed_to_the_scheduler(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    run = bench.start("begin -> work")
    advances: list[UUID] = []

    def always_finds_one(advance: Advance) -> bool:
        advances.append(advance.run_id)
        return True

    monkeypatch.setattr(Advance, "has_unapplied_reports", always_finds_one)

    bench.coordinator.advance_run(run.id)

    assert 1 <= len(advances) <= 8
    assert bench.outbox.of(ADVANCE) == [(str(run.id),)]


@pytest.mark.parametrize("ends", ["fails", "succeeds"])
def test_usage_of_a_run_is_the_sum_of_its_nodes_whether_it_fails_or_succeeds(bench: Bench, ends: str):
    async def spend(ctx: Any) -> Any:
        ctx.add_usage(Usage(1, 2, 3, calls=1))
        if ctx.node_id == "two" and ends == "fails":
            return Failed("broken")
        return Finished()

    bench.does(one=spend, two=spend)
    run = bench.start("begin -> one -> two")

    bench.play()

    assert run.status == ("failed" if ends == "fails" else "succeeded")
    assert run.row["usage"] == {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6, "calls": 2}


def test_failed_run_executes_activations_of_the_failing_level_and_no_later_ones(bench: Bench):
    bench.does(one=lambda ctx: Failed("broken"))
    run = bench.start("begin -> one, two; one -> after_one; two -> after_two")

    bench.play()

    assert run.status == "failed"
    assert run.statuses == {"begin": "done", "one": "done", "two": "done"}
    assert run.events[-1].name == "run_failed"
    assert run.row["error"] == "Node one (Act): broken"


def test_ready_activation_of_a_cancelled_run_is_closed_and_stays_closed(bench: Bench):
    run = bench.start("begin -> one, two")
    bench.play(until=lambda: "one" in run.statuses)
    claimed = bench.claim(run, "one")
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    bench.report(claimed, "Failed", column={"error": "Task has been canceled", "code": "cancelled"})
    bench.coordinator.advance_run(run.id)
    bench.coordinator.advance_run(run.id)

    assert run.status == "cancelled"
    assert run.statuses == {"begin": "done", "one": "done", "two": "closed"}
    assert run.event_names.count("workflow_finished") == 1


def test_cancelled_run_routes_nothing_after_a_report(bench: Bench):
    run = bench.start("begin -> one -> say", say=content("never"))
    bench.play(until=lambda: "one" in run.statuses)
    claimed = bench.claim(run, "one")
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    new_reporter(bench.coordinator, claimed).report(Finished(), None, {})

    assert run.status == "cancelled"
    assert "say" not in run.statuses
    assert run.text == ""


# -- helpers ---------------------------------------------------------------------------------------------------------
def advance(bench: Bench, tx: Transaction, run: Run) -> Advance | None:
    """Advance a run in a transaction that the test commits."""
    snapshot = run_snapshots.try_lock(tx, run.id)
    return bench.coordinator.apply_reports(tx, snapshot) if snapshot is not None else None


def reporter_that_waits_before_its_first_commit(
    bench: Bench, claimed: Claim, has_tried: Event, may_commit: Event
) -> Reporter:
    """A reporter that has tried to lock the run, in the report's transaction, and waits before this commits."""

    class WaitingReporter(Reporter):
        def _snapshot(self, tx: Transaction, mode: StoreMode) -> RunSnapshot | None:
            snapshot = run_snapshots.try_lock(tx, claimed.run_id)
            if not has_tried.is_set():
                assert snapshot is None
                has_tried.set()
                assert may_commit.wait(30)
            return snapshot

    return WaitingReporter(bench.coordinator, claimed, inline_advance=True, is_closed=lambda: False)


def failing(original: Callable[..., Any], *, times: int = 10**6, run_id: UUID | None = None) -> Callable[..., Any]:
    """Return a `decide` that raises for the first `times` calls, or for one run."""
    left = [times]

    def decide_or_raise(canvas: Any, state: Any, reports: Any) -> Any:
        if left[0] and run_id in (None, state.run_id):
            left[0] -= 1
            raise StateError("Stored facts contradict each other.")
        return original(canvas, state, reports)

    return decide_or_raise


def change(bench: Bench, run: Run, **values: Any) -> None:
    with bench.database.transaction() as tx:
        tx.execute(runs.update().where(runs.c.id == run.id).values(**values))
