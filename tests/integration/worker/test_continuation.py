"""Local continuation: a thread executes the next activation itself; after a failure, nothing is lost or repeated."""

import gc
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

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
from store.tables.runs import activations as activation_rows
from store.tables.runs import runs as run_rows
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work, execute_with_continuations, new_reporter, until
from worker.execution.reporter import Reporter
from worker.fastpath.continuation import Continuation, LocalContinuation
from worker.fastpath.report_batcher import PendingReport
from worker.worker import Worker

pytestmark = pytest.mark.usefixtures("local_continuation")

CHAIN = "begin -> one -> two -> three -> say"


# -- without failures ------------------------------------------------------------------------------------------------
def test_one_task_message_executes_a_whole_chain(bench: Bench):
    run = bench.start(CHAIN, say=content("{three@result}"))

    execute_first_message(bench, run)

    assert (run.status, run.text) == ("succeeded", "three")
    assert bench.outbox.of(EXECUTE) == []
    assert bench.outbox.of(ADVANCE) == []
    assert {row.attempt for row in run.activations} == {1}
    assert [row.activated_rev for row in run.activations] == [1, 2, 3, 4, 5]


def test_advance_in_a_chain_is_one_statement(bench: Bench, sent_statements: list[bytes]):
    bench.does(
        one=lambda ctx: clear_statements(sent_statements),
        two=lambda ctx: statements.extend(sent_statements) or Finished(),
    )
    statements: list[bytes] = []
    run = bench.start("begin -> one -> two -> three")

    execute_first_message(bench, run)

    assert run.status == "succeeded"
    (step,) = statements
    week = Week.of_run(run.id)
    assert step.startswith(f"with w0 as (UPDATE {week.partition('runs')} SET status".encode())
    assert f"UPDATE {week.partition('activations')} SET status".encode() in step
    assert f"INSERT INTO {week.partition('activations')} ".encode() in step


def test_advance_is_re_checked_if_other_reports_may_have_arrived(bench: Bench, sent_statements: list[bytes]):
    run = bench.start("begin -> one, two -> say", say=content("done"))

    execute_first_message(bench, run)

    re_check = compile_statement(report_rows.HAS_UNAPPLIED, {"of_run": run.id}, f"p{Week.of_run(run.id).name}").sql
    assert (sent_statements.count(re_check), run.statuses["one"], run.statuses["two"]) == (2, "done", "ready")


def test_finished_attempts_are_freed_without_garbage_collection(bench: Bench):
    run = bench.start("begin -> one -> two -> three")  # the event loop refers to its last task until it runs another
    gc.collect()
    gc.disable()
    try:
        execute_first_message(bench, run)
        objects = gc.get_objects()  # includes objects of other tests
        left: list[Any] = [each for each in objects if isinstance(each, Claim) and each.run_id == run.id]
        left += [each for each in objects if isinstance(each, AfterCommitQuery) and run.id in each.values.values()]
    finally:
        gc.enable()

    assert run.status == "succeeded"
    assert left == []


def test_thread_continues_with_one_branch_and_the_others_are_enqueued(bench: Bench):
    run = bench.start("begin -> one, two, three -> say")

    execute_first_message(bench, run)

    assert run.statuses == {"begin": "done", "one": "done", "two": "ready", "three": "ready"}
    enqueued = {activation for _, activation in bench.outbox.of(EXECUTE)}
    assert enqueued == {str(run.activation(node).id) for node in ("two", "three")}
    bench.play()
    assert run.status == "succeeded"


def test_thread_that_has_used_its_continuation_time_enqueues_the_next_activation(bench: Bench):
    run = bench.start(CHAIN)
    local_continuation = bench.worker.execution.new_continuation()

    def last_one(ctx: NodeContext) -> Finished:
        local_continuation.until = time.monotonic()
        return Finished()

    bench.does(one=last_one)
    execute_with(bench.worker, run, local_continuation)

    two = run.activation("two")
    assert run.statuses == {"begin": "done", "one": "done", "two": "ready"}
    assert bench.outbox.of(EXECUTE)[-1:] == [(str(run.id), str(two.id))]
    assert bench.worker.leases.attempts() == []


def test_every_activation_is_enqueued_if_local_continuation_is_off(bench: Bench):
    worker = bench.a_worker(continue_locally_for=timedelta(0))
    run = bench.start(CHAIN)
    hops = 0

    while (message := bench.outbox.pop()) is not None:
        assert message.task == EXECUTE
        hops += 1
        execute_with_continuations(worker, run.id, UUID(message.args[1]))

    assert run.status == "succeeded"
    assert hops == len(run.activations) == 5


# -- with failures and other processes -------------------------------------------------------------------------------
def test_process_that_shuts_down_reserves_no_continuation(bench: Bench):
    run, claimed, local_continuation = claim_first_node(bench)
    bench.worker.leases.release_all()

    report(bench, claimed, local_continuation)

    work = run.activation("work")
    assert (work.status, local_continuation.next) == ("ready", None)
    assert bench.outbox.of(EXECUTE) == [(str(run.id), str(work.id))]
    assert bench.worker.leases.attempts() == []


def test_continuation_of_a_failed_advance_is_released(bench: Bench):
    class Unlucky(Coordinator):
        def apply_reports(self, tx: Transaction, *args: Any, **more: Any) -> Any:
            advance = super().apply_reports(tx, *args, **more)
            tx.send(text("select cast('no number' as int)"))
            return advance

    run, claimed, local_continuation = claim_first_node(bench)

    with capture_logs() as logs:
        report(bench, claimed, local_continuation, bench.a_coordinator(kind=Unlucky))

    assert [line["event"] for line in logs] == ["advance_failed"]
    assert (run.statuses, local_continuation.next) == ({"begin": "reported"}, None)
    assert bench.worker.leases.attempts() == []
    bench.play()
    assert run.status == "succeeded"


def test_continuation_of_a_refused_report_is_released(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    logged = CapturingLogger()
    monkeypatch.setattr("worker.execution.reporter.log", logged)  # independent of the level that another test has set
    run, claimed, local_continuation = claim_first_node(bench)
    with bench.database.transaction() as tx:
        tx.execute(text("update activations set lease_id = gen_random_uuid() where run_id = :run_id"), run_id=run.id)

    report(bench, claimed, local_continuation)

    assert [line.args[0] for line in logged.calls] == ["report_refused"]
    assert (run.statuses, local_continuation.next) == ({"begin": "running"}, None)
    assert bench.worker.leases.attempts() == []


def test_continuation_that_its_thread_does_not_execute_is_released(bench: Bench):
    run, claimed, local_continuation = claim_first_node(bench)
    report(bench, claimed, local_continuation)
    assert [attempt.activation_id for attempt in bench.worker.leases.attempts()] == [run.activation("work").id]

    local_continuation.release()

    assert (local_continuation.next, bench.worker.leases.attempts()) == (None, [])
    assert run.activation("work").status == "running"  # until its lease expires


@pytest.mark.parametrize("may_be_stored", [True, False])
def test_continuation_of_a_commit_without_an_answer_stays_registered_when_its_report_is_tried_again(
    bench: Bench, may_be_stored: bool
):
    run, _, local_continuation = claim_first_node(bench)
    continuation = Continuation(local_continuation, "worker", run.id)
    lease_id = continuation.reserve(run.activation("begin").id)
    continuation.may_be_stored = may_be_stored

    continuation.release_unless_stored()

    assert [attempt.lease_id for attempt in bench.worker.leases.attempts()] == [lease_id] * may_be_stored


def test_continuation_of_a_commit_whose_answer_was_lost_is_executed_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    run = bench.start(CHAIN)

    with lost_commit_response(bench, monkeypatch, "one"):
        execute_first_message(bench, run)

    assert run.status == "succeeded"
    attempts = [(row.node_id, row.attempt, row.crash_count) for row in run.activations]
    assert attempts[1:3] == [
        ("one", 1, 0),
        ("two", 1, 0),
    ]
    assert bench.outbox.of(EXECUTE) == []
    assert bench.worker.leases.attempts() == []


def test_promoted_continuation_of_a_commit_whose_answer_was_lost_is_executed_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    bench.coordinator = bench.a_coordinator(max_running=1)
    bench.lifecycle = type(bench.lifecycle)(bench.coordinator)
    run = bench.start("begin -> one, two")

    with lost_commit_response(bench, monkeypatch, "one"):
        execute_first_message(bench, run)

    assert run.status == "succeeded"
    attempts = [(row.node_id, row.attempt, row.crash_count) for row in run.activations]
    assert attempts[1:] == [
        ("one", 1, 0),
        ("two", 1, 0),
    ]
    assert bench.outbox.of(EXECUTE) == []
    assert bench.worker.leases.attempts() == []


def test_run_that_was_changed_since_it_was_cached_is_read_again(bench: Bench):
    run = bench.start(CHAIN)

    def change_run(ctx: NodeContext) -> Finished:
        with bench.database.transaction() as tx:
            moved = {"revision": run_rows.c.revision + 1, "error": "changed meanwhile"}
            tx.execute(update(run_rows).where(run_rows.c.id == run.id).values(**moved))
        return Finished()

    bench.does(two=change_run)
    execute_first_message(bench, run)

    assert (run.status, run.row["error"]) == ("succeeded", "changed meanwhile")
    assert [row.activated_rev for row in run.activations] == [1, 2, 3, 5, 6]
    assert bench.outbox.of(EXECUTE) == []


def test_report_to_a_locked_run_is_stored_and_applied_by_the_next_advance(bench: Bench):
    run = bench.start("begin -> one -> compute -> say")

    with ExitStack() as stack:

        def lock_run(ctx: NodeContext) -> Finished:
            holder = stack.enter_context(bench.database.transaction())
            assert run_store.try_lock(holder, run.id)() is not None
            return Finished()

        bench.does(compute=lock_run)
        execute_first_message(bench, run)
        assert run.statuses == {"begin": "done", "one": "done", "compute": "reported"}
        assert bench.worker.leases.attempts() == []

    bench.coordinator.advance_run(run.id)
    bench.play()
    assert run.status == "succeeded"


# -- concurrent reports ----------------------------------------------------------------------------------------------
@dataclass
class Siblings:
    """Parallel nodes; the report of the first is stored once the reports of all others wait for it."""

    nodes: Sequence[str]
    waiting: list[PendingReport] = field(default_factory=list[PendingReport])

    @property
    def all_wait(self) -> bool:
        return len(self.waiting) == len(self.nodes) - 1


@pytest.fixture
def siblings(monkeypatch: pytest.MonkeyPatch) -> Siblings:
    siblings = Siblings([f"n{number:02}" for number in range(8)])
    wait, store = PendingReport.wait, report_rows.report_inline

    def record_and_wait(pending: PendingReport) -> None:
        siblings.waiting.append(pending)
        wait(pending)

    def store_once_all_wait(tx: Transaction, claimed: Claim, *args: Any) -> None:
        if claimed.node_id in siblings.nodes:
            until(lambda: siblings.all_wait)
        store(tx, claimed, *args)

    monkeypatch.setattr(PendingReport, "wait", record_and_wait)
    monkeypatch.setattr(report_rows, "report_inline", store_once_all_wait)
    return siblings


def test_siblings_that_end_together_are_stored_in_one_batch_and_their_results_are_in_order(
    bench: Bench, siblings: Siblings
):
    nodes = siblings.nodes
    message = content(" ".join(f"{{{node}@result}}" for node in nodes))
    run = bench.start(f"begin -> {', '.join(nodes)} -> say", say=message)

    with at_work(bench, threads=len(nodes)):
        until(lambda: run.status == "succeeded")

    revisions = [row.applied_rev for row in run.activations if row.node_id in nodes]
    assert {revisions.count(revision) for revision in revisions} == {1, len(nodes) - 1}
    assert run.text == " ".join(nodes)
    finished = [event.node_id for event in run.events if event.name == "node_finished" and event.node_id in nodes]
    assert sorted(finished) == nodes
    assert {row.attempt for row in run.activations} == {1}


@pytest.mark.parametrize("is_lease_lost", [False, True])
def test_batch_of_reports_to_a_locked_run_is_stored_together_unless_a_lease_is_lost(
    bench: Bench, siblings: Siblings, monkeypatch: pytest.MonkeyPatch, is_lease_lost: bool
):
    lock, lost = Reporter._lock_run, list[UUID]()

    def find_the_run_locked(self: Reporter, tx: Transaction, scope_keys: Any) -> Any:
        if not siblings.all_wait:
            return lock(self, tx, scope_keys)
        if is_lease_lost and not lost:
            lost.append(siblings.waiting[-1].report.claim.id)
            with bench.database.transaction() as other:
                other.execute(update(activation_rows).where(activation_rows.c.id == lost[0]).values(lease_id=uuid4()))
        return None

    monkeypatch.setattr(Reporter, "_lock_run", find_the_run_locked)
    run = bench.start(f"begin -> {', '.join(siblings.nodes)} -> say", say=content("end"))

    with capture_logs() as logs, at_work(bench, threads=len(siblings.nodes)):
        until(
            lambda: sum(run.statuses.get(node) == "done" for node in siblings.nodes) == len(siblings.nodes) - len(lost)
        )

    apart = [line for line in logs if line["event"] == "reports_not_stored_together"]
    assert len(apart) == len(lost) == is_lease_lost
    assert {row.attempt for row in run.activations if row.node_id in siblings.nodes} == {1}


# -- helpers ---------------------------------------------------------------------------------------------------------
def execute_first_message(bench: Bench, run: Run) -> None:
    """Execute the first activation of a run and its local continuations, without any other message."""
    bench.outbox.lose()
    execute_with_continuations(bench.worker, run.id, run.activation("begin").id)


def clear_statements(sent_statements: list[bytes]) -> Finished:
    sent_statements.clear()
    return Finished()


def execute_with(worker: Worker, run: Run, local_continuation: LocalContinuation) -> None:
    """Execute the first activation of a run and its local continuations, with a given local continuation."""
    worker.execute(run.id, run.activation("begin").id, local_continuation)
    while local_continuation.next is not None:
        worker.execute(run.id, local_continuation.next.attempt.activation_id, local_continuation)


def claim_first_node(bench: Bench) -> tuple[Run, Claim, LocalContinuation]:
    """Return a run, the claim of its first activation, and a local continuation that has time left."""
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    bench.outbox.lose()
    return run, claimed, LocalContinuation(bench.worker.leases, time.monotonic() + 60)


def report(
    bench: Bench, claimed: Claim, local_continuation: LocalContinuation, coordinator: Coordinator | None = None
) -> None:
    reports = new_reporter(coordinator or bench.coordinator, claimed)
    reports.continuation = Continuation(local_continuation, "one", claimed.run_id)
    reports.report(Finished(), None, {})


@contextmanager
def lost_commit_response(bench: Bench, monkeypatch: pytest.MonkeyPatch, node: str) -> Generator[None]:
    """Break the connection after the commit of the report of a node, so that its response is lost."""
    transaction, settle = bench.database.transaction, report_rows.report_inline
    is_reported, lost = list[bool](), list[bool]()

    def settle_slowly(tx: Transaction, claimed: Claim, *args: Any) -> None:
        if claimed.node_id == node:
            is_reported.append(True)
        settle(tx, claimed, *args)

    @contextmanager
    def losing() -> Generator[Transaction]:
        with transaction() as tx:
            yield tx
        if is_reported and not lost:
            lost.append(True)
            raise OperationalError("commit", {}, Exception("server closed the connection"))

    with monkeypatch.context() as patched:
        patched.setattr(report_rows, "report_inline", settle_slowly)
        patched.setattr(bench.database, "transaction", losing)
        yield
    assert lost
