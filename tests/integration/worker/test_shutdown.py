"""A process that shuts down releases its attempts, and no crash is counted."""

import threading
from datetime import timedelta

import pytest

from canvas.outcome import Finished
from components.context import NodeContext
from tests.builders import content
from tests.integration.engine import WAIT_TIMEOUT, Bench, Run, at_work, until
from tests.integration.worker.conftest import PausedNodes
from tests.integration.worker.provider import FULL_TEXT, MODEL, hanging_model
from worker.context.node_context import WorkerContext
from worker.execution.attempt import AttemptRunner
from worker.worker import Worker


def test_released_activation_is_executed_by_another_worker_at_once(bench: Bench, paused_nodes: PausedNodes):
    run = paused_nodes.start("begin -> work, work2 -> say", say=content("done"))
    leaving, other = bench.a_worker(), bench.a_worker()
    with at_work(bench, leaving, threads=2):
        paused_nodes.wait_for("work", "work2")
        leaving.close()

    released = {node: run.activation(node) for node in ("work", "work2")}
    paused_nodes.release()
    bench.play(other)

    assert {row.status for row in released.values()} == {"ready"}
    assert (run.status, run.text) == ("succeeded", "done")
    assert [(row.attempt, row.crash_count) for row in run.activations if row.node_id in released] == [(2, 0), (2, 0)]


def test_released_attempt_stores_no_values(bench: Bench, paused_nodes: PausedNodes):
    run = paused_nodes.start("begin -> work")
    leaving = bench.a_worker()

    with at_work(bench, leaving):
        paused_nodes.wait_for("work")
        leaving.close()

    assert run.statuses["work"] == "ready"
    assert run.rows_of_values("work") == []
    assert "node_finished" not in [event.name for event in run.events if event.node_id == "work"]


def test_text_of_a_released_attempt_is_replaced(bench: Bench):
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = bench.start("begin -> model -> say", model={"llm_id": MODEL}, say=content("{model@content}"))
        leaving, other = bench.a_worker(), bench.a_worker()
        with at_work(bench, leaving):
            assert provider.is_hanging.wait(30)
            until(lambda: run.streams)
            leaving.close()
        assert provider.client_has_closed.wait(30)

        bench.play(other)

    assert (run.status, run.text) == ("succeeded", FULL_TEXT)
    assert run.event_names.count("message_reset") == 1
    assert run.activation("model").crash_count == 0


@pytest.mark.parametrize("node", ["work", "compute"])  # on the event loop, on a thread
def test_claimed_attempt_that_has_not_begun_is_released(bench: Bench, node: str, monkeypatch: pytest.MonkeyPatch):
    claimed, may_continue = threading.Event(), threading.Event()
    prepare = AttemptRunner._prepare_context
    began: list[str] = []

    def prepare_slowly(self: AttemptRunner) -> WorkerContext:
        if self._claim.node_id == node and self._claim.attempt == 1:
            claimed.set()
            may_continue.wait(WAIT_TIMEOUT)
        return prepare(self)

    def record_start(ctx: NodeContext) -> Finished:
        began.append(ctx.node_id)
        return Finished(outputs={"result": "done"})

    monkeypatch.setattr(AttemptRunner, "_prepare_context", prepare_slowly)
    bench.does(**{node: record_start})
    run, leaving, other = bench.start(f"begin -> {node}"), bench.a_worker(), bench.a_worker()
    with at_work(bench, leaving, threads=1):
        assert claimed.wait(WAIT_TIMEOUT)
        leaving.leases.release_all()
        may_continue.set()
        leaving.close()
    released, too_late = run.activation(node), list(began)
    bench.play(other)

    assert (released.status, released.attempt, released.crash_count) == ("ready", 1, 0)
    assert (too_late, began) == ([], [node])
    assert (run.status, run.outputs(node)) == ("succeeded", {"result": "done"})


@pytest.mark.usefixtures("local_continuation")
def test_reserved_continuation_is_released_on_shutdown(bench: Bench):
    began: list[str] = []

    def record_start(ctx: NodeContext) -> Finished:
        began.append(ctx.node_id)
        return Finished()

    bench.does(work=record_start)
    run, leaving, other = bench.start("begin -> work"), bench.a_worker(), bench.a_worker()
    local_continuation = leaving.execution.new_continuation()
    leaving.execute(run.id, run.activation("begin").id, local_continuation)
    reserved = local_continuation.next
    assert reserved is not None
    assert run.statuses["work"] == "running"

    leaving.leases.release_all()
    leaving.execute(run.id, reserved.attempt.activation_id, local_continuation)
    released, too_late = run.activation("work"), list(began)
    bench.play(other)

    assert (released.status, released.attempt, released.crash_count) == ("ready", 1, 0)
    assert (local_continuation.next, leaving.leases.attempts()) == (None, [])
    assert (too_late, began) == ([], ["work"])
    assert run.status == "succeeded"


def test_worker_that_shuts_down_claims_nothing(bench: Bench):
    run = bench.start("begin -> work")
    leaving = bench.a_worker()
    leaving.leases.release_all()

    is_executed = leaving.execute(run.id, run.activation("begin").id)

    assert not is_executed
    assert (run.statuses["begin"], run.activation("begin").attempt) == ("ready", 0)


def test_shutdown_does_not_wait_for_an_attempt_that_does_not_stop(bench: Bench):
    may_end, ended = threading.Event(), list[str]()

    def compute(ctx: NodeContext) -> Finished:
        may_end.wait(WAIT_TIMEOUT)
        ended.append(ctx.node_id)
        return Finished(outputs={"result": "late"})

    bench.does(compute=compute)
    run, leaving = bench.start("begin -> compute"), bench.a_worker(shutdown_grace=timedelta(milliseconds=100))
    bench.play(leaving, until=lambda: "compute" in run.statuses)
    abandoned_thread = execute_on_thread(leaving, run, "compute")
    until(lambda: run.statuses["compute"] == "running")

    leaving.close()

    assert ended == []
    assert (run.statuses["compute"], run.activation("compute").crash_count) == ("ready", 0)
    may_end.set()
    abandoned_thread.join(10)
    assert run.outputs("compute") == {}
    bench.does(compute=lambda ctx: Finished(outputs={"result": "fresh"}))
    bench.play(bench.a_worker())
    assert run.outputs("compute") == {"result": "fresh"}


def test_a_worker_may_be_closed_twice(bench: Bench):
    worker = bench.a_worker()

    worker.close()
    worker.close()

    assert worker.leases.is_closed


def execute_on_thread(worker: Worker, run: Run, node: str) -> threading.Thread:
    thread = threading.Thread(target=worker.execute, args=(run.id, run.activation(node).id), daemon=True)
    thread.start()
    return thread
