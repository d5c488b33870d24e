"""A thread goes on with what its own step has made ready; whatever comes between, nothing is lost or done twice."""

import gc
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import OperationalError
from structlog.testing import CapturingLogger, capture_logs

from canvas.outcome import Finished
from components.context import NodeContext
from scheduler.coordinator.coordinator import Coordinator
from scheduler.messaging.celery_app import ADVANCE, EXECUTE
from store.db.compiled_statements import compile_statement
from store.db.transaction import AfterCommitQuery, Transaction
from store.primitives.weeks import Week
from store.runs import reports as report_rows
from store.runs import run_rows as run_store
from store.runs.activations import Claim
from store.tables.runs import runs as run_rows
from tests.builders import says
from tests.integration.engine import Bench, Run, at_work, carried_out, reporting, until
from worker.fastpath.continuation import Continuation, LocalContinuation
from worker.fastpath.report_batcher import PendingReport
from worker.worker import Worker

CHAIN = "begin -> one -> two -> three -> say"


# -- as long as nobody disturbs it -----------------------------------------------------------------------------------
def test_one_task_message_executes_a_whole_chain(bench: Bench):
    run = bench.start(CHAIN, say=says("{three@result}"))

    began_with_one_hint(bench, run)

    assert (run.status, run.said) == ("succeeded", "three")
    assert bench.outbox.of(EXECUTE) == []
    assert bench.outbox.of(ADVANCE) == []
    assert {row.attempt for row in run.activations} == {1}
    assert [row.activated_rev for row in run.activations] == [1, 2, 3, 4, 5]


def test_advance_in_a_chain_is_one_statement(bench: Bench, sent: list[bytes]):
    bench.does(one=lambda ctx: forgotten(sent), two=lambda ctx: told.extend(sent) or Finished())
    told: list[bytes] = []
    run = bench.start("begin -> one -> two -> three")

    began_with_one_hint(bench, run)

    assert run.status == "succeeded"
    (step,) = told
    week = Week.of_run(run.id)
    assert step.startswith(f"with w0 as (UPDATE {week.partition('runs')} SET status".encode())
    assert f"UPDATE {week.partition('activations')} SET status".encode() in step
    assert f"INSERT INTO {week.partition('activations')} ".encode() in step


def test_advance_is_re_checked_if_other_reports_may_have_arrived(bench: Bench, sent: list[bytes]):
    run = bench.start("begin -> one, two -> say", say=says("done"))

    began_with_one_hint(bench, run)

    look = compile_statement(report_rows.HAS_UNAPPLIED, {"of_run": run.id}, f"p{Week.of_run(run.id).name}").sql
    assert (sent.count(look), run.statuses["one"], run.statuses["two"]) == (2, "done", "ready")


def test_finished_attempts_are_freed_without_garbage_collection(bench: Bench):
    run = bench.start("begin -> one -> two -> three")  # the event loop keeps what it did last until it does more
    gc.collect()
    gc.disable()
    try:
        began_with_one_hint(bench, run)
        held = gc.get_objects()  # other tests' as well
        left: list[Any] = [each for each in held if isinstance(each, Claim) and each.run_id == run.id]
        left += [each for each in held if isinstance(each, AfterCommitQuery) and run.id in each.values.values()]
    finally:
        gc.enable()

    assert run.status == "succeeded"
    assert left == []


def test_thread_continues_with_one_branch_and_the_others_are_enqueued(bench: Bench):
    run = bench.start("begin -> one, two, three -> say")

    began_with_one_hint(bench, run)

    assert run.statuses == {"begin": "done", "one": "done", "two": "ready", "three": "ready"}
    hinted = {activation for _, activation in bench.outbox.of(EXECUTE)}
    assert hinted == {str(run.activation(node).id) for node in ("two", "three")}
    bench.play()
    assert run.status == "succeeded"


def test_thread_whose_time_is_up_enqueues_the_next_activation(bench: Bench):
    run = bench.start(CHAIN)
    eager = bench.worker.execution.new_continuation()

    def last_one(ctx: NodeContext) -> Finished:
        eager.until = time.monotonic()
        return Finished()

    bench.does(one=last_one)
    followed(bench.worker, run, eager)

    two = run.activation("two")
    assert run.statuses == {"begin": "done", "one": "done", "two": "ready"}
    assert bench.outbox.of(EXECUTE)[-1:] == [(str(run.id), str(two.id))]
    assert bench.worker.leases.attempts() == []


def test_every_activation_is_enqueued_if_local_continuation_is_off(bench: Bench):
    worker = bench.a_worker(continue_locally_for=timedelta(0))
    run = bench.start(CHAIN)
    hops = 0

    while (message := bench.outbox.take()) is not None:
        assert message.task == EXECUTE
        hops += 1
        carried_out(worker, run.id, UUID(message.args[1]))

    assert run.status == "succeeded"
    assert hops == len(run.activations) == 5


# -- when something comes between ------------------------------------------------------------------------------------
def test_process_that_shuts_down_reserves_no_continuation(bench: Bench):
    run, claimed, eager = about_to_report(bench)
    bench.worker.leases.release_all()

    report(bench, claimed, eager)

    work = run.activation("work")
    assert (work.status, eager.next) == ("ready", None)
    assert bench.outbox.of(EXECUTE) == [(str(run.id), str(work.id))]
    assert bench.worker.leases.attempts() == []


def test_continuation_of_a_failed_advance_is_released(bench: Bench):
    class Unlucky(Coordinator):
        def apply_reports(self, tx: Transaction, *given: Any, **more: Any) -> Any:
            advance = super().apply_reports(tx, *given, **more)
            tx.send(text("select cast('no number' as int)"))
            return advance

    run, claimed, eager = about_to_report(bench)

    with capture_logs() as logs:
        report(bench, claimed, eager, bench.a_coordinator(kind=Unlucky))

    assert [line["event"] for line in logs] == ["advance_failed"]
    assert (run.statuses, eager.next) == ({"begin": "reported"}, None)
    assert bench.worker.leases.attempts() == []
    bench.play()
    assert run.status == "succeeded"


def test_continuation_of_a_refused_report_is_released(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    logged = CapturingLogger()
    monkeypatch.setattr("worker.reporter.log", logged)  # whatever level another test has set
    run, claimed, eager = about_to_report(bench)
    with bench.database.transaction() as tx:
        tx.execute(text("update activations set lease_id = gen_random_uuid() where run_id = :run_id"), run_id=run.id)

    report(bench, claimed, eager)

    assert [line.args[0] for line in logged.calls] == ["report_refused"]
    assert (run.statuses, eager.next) == ({"begin": "running"}, None)
    assert bench.worker.leases.attempts() == []


def test_continuation_that_its_thread_does_not_execute_is_released(bench: Bench):
    run, claimed, eager = about_to_report(bench)
    report(bench, claimed, eager)
    assert [attempt.activation_id for attempt in bench.worker.leases.attempts()] == [run.activation("work").id]

    eager.release()

    assert (eager.next, bench.worker.leases.attempts()) == (None, [])
    assert run.activation("work").status == "running"  # until its lease expires


@pytest.mark.parametrize("may_be_stored", [True, False])
def test_continuation_of_a_commit_without_an_answer_stays_registered_when_its_report_is_tried_again(
    bench: Bench, may_be_stored: bool
):
    run, _, eager = about_to_report(bench)
    continuation = Continuation(eager, "worker", run.id)
    lease_id = continuation.reserve(run.activation("begin").id)
    continuation.may_be_stored = may_be_stored

    continuation.release_unless_stored()

    assert [attempt.lease_id for attempt in bench.worker.leases.attempts()] == [lease_id] * may_be_stored


def test_continuation_of_a_commit_whose_answer_was_lost_is_executed_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    run = bench.start(CHAIN)

    with answer_lost(bench, monkeypatch, "one"):
        began_with_one_hint(bench, run)

    assert run.status == "succeeded"
    assert [(row.node_id, row.attempt, row.strikes) for row in run.activations][1:3] == [("one", 1, 0), ("two", 1, 0)]
    assert bench.outbox.of(EXECUTE) == []
    assert bench.worker.leases.attempts() == []


def test_promoted_continuation_of_a_commit_whose_answer_was_lost_is_executed_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    bench.coordinator = bench.a_coordinator(max_running=1)
    bench.lifecycle = type(bench.lifecycle)(bench.coordinator)
    run = bench.start("begin -> one, two")

    with answer_lost(bench, monkeypatch, "one"):
        began_with_one_hint(bench, run)

    assert run.status == "succeeded"
    assert [(row.node_id, row.attempt, row.strikes) for row in run.activations][1:] == [("one", 1, 0), ("two", 1, 0)]
    assert bench.outbox.of(EXECUTE) == []
    assert bench.worker.leases.attempts() == []


def test_run_that_was_changed_since_it_was_cached_is_read_again(bench: Bench):
    run = bench.start(CHAIN)

    def somebody_decides(ctx: NodeContext) -> Finished:
        with bench.database.transaction() as tx:
            moved = {"revision": run_rows.c.revision + 1, "error": "told meanwhile"}
            tx.execute(update(run_rows).where(run_rows.c.id == run.id).values(**moved))
        return Finished()

    bench.does(two=somebody_decides)
    began_with_one_hint(bench, run)

    assert (run.status, run.row["error"]) == ("succeeded", "told meanwhile")
    assert [row.activated_rev for row in run.activations] == [1, 2, 3, 5, 6]
    assert bench.outbox.of(EXECUTE) == []


def test_report_to_a_locked_run_is_stored_and_applied_by_the_next_advance(bench: Bench):
    run = bench.start("begin -> one -> compute -> say")

    with ExitStack() as held:

        def somebody_takes_it(ctx: NodeContext) -> Finished:
            holder = held.enter_context(bench.database.transaction())
            assert run_store.try_lock(holder, run.id)() is not None
            return Finished()

        bench.does(compute=somebody_takes_it)
        began_with_one_hint(bench, run)
        assert run.statuses == {"begin": "done", "one": "done", "compute": "reported"}
        assert bench.worker.leases.attempts() == []

    bench.coordinator.advance_run(run.id)
    bench.play()
    assert run.status == "succeeded"


# -- reports that come together --------------------------------------------------------------------------------------
def test_siblings_that_end_together_are_stored_in_one_batch_and_their_results_are_in_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    nodes = [f"n{number:02}" for number in range(8)]
    waiting: list[PendingReport] = []
    wait, settle = PendingReport.wait, report_rows.report_inline

    def waits(part: PendingReport) -> None:
        waiting.append(part)
        wait(part)

    def settled(tx: Transaction, claimed: Claim, *given: Any) -> None:
        if claimed.node_id in nodes:
            until(lambda: len(waiting) == len(nodes) - 1)
        settle(tx, claimed, *given)

    monkeypatch.setattr(PendingReport, "wait", waits)
    monkeypatch.setattr(report_rows, "report_inline", settled)
    said = says(" ".join(f"{{{node}@result}}" for node in nodes))
    run = bench.start(f"begin -> {', '.join(nodes)} -> say", say=said)

    with at_work(bench, threads=len(nodes)):
        until(lambda: run.status == "succeeded")

    folds = [row.folded_rev for row in run.activations if row.node_id in nodes]
    assert {folds.count(revision) for revision in folds} == {1, len(nodes) - 1}
    assert run.said == " ".join(nodes)
    finished = [event.node_id for event in run.events if event.name == "node_finished" and event.node_id in nodes]
    assert sorted(finished) == nodes
    assert {row.attempt for row in run.activations} == {1}


# -- in other words --------------------------------------------------------------------------------------------------
def began_with_one_hint(bench: Bench, run: Run) -> None:
    """Carry out the run's first node, and what its thread goes on with."""
    bench.outbox.lose()
    carried_out(bench.worker, run.id, run.activation("begin").id)


def forgotten(sent: list[bytes]) -> Finished:
    sent.clear()
    return Finished()


def followed(worker: Worker, run: Run, eager: LocalContinuation) -> None:
    """The same, on a thread that a test has made."""
    worker.execute(run.id, run.activation("begin").id, eager)
    while eager.next is not None:
        worker.execute(run.id, eager.next.attempt.activation_id, eager)


def about_to_report(bench: Bench) -> tuple[Run, Claim, LocalContinuation]:
    """A run whose first node is claimed, and a thread that would go on."""
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    bench.outbox.lose()
    return run, claimed, LocalContinuation(bench.worker.leases, time.monotonic() + 60)


def report(bench: Bench, claimed: Claim, eager: LocalContinuation, coordinator: Coordinator | None = None) -> None:
    reports = reporting(coordinator or bench.coordinator, claimed)
    reports.continuation = Continuation(eager, "one", claimed.run_id)
    reports.report(Finished(), None, {})


@contextmanager
def answer_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch, node: str) -> Generator[None]:
    """The connection breaks when the step with a node's report has been committed, and nobody has heard of it."""
    transaction, settle = bench.database.transaction, report_rows.report_inline
    is_in_it, lost = list[bool](), list[bool]()

    def settled(tx: Transaction, claimed: Claim, *given: Any) -> None:
        if claimed.node_id == node:
            is_in_it.append(True)
        settle(tx, claimed, *given)

    @contextmanager
    def losing() -> Generator[Transaction]:
        with transaction() as tx:
            yield tx
        if is_in_it and not lost:
            lost.append(True)
            raise OperationalError("commit", {}, Exception("server closed the connection"))

    with monkeypatch.context() as patched:
        patched.setattr(report_rows, "report_inline", settled)
        patched.setattr(bench.database, "transaction", losing)
        yield
    assert lost
