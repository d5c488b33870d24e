"""A process that goes down gives back what it has in hand, and nobody is punished for it."""

import threading
from datetime import timedelta

import pytest

from canvas.outcome import Finished
from components.context import NodeContext
from tests.builders import says
from tests.integration.engine import PATIENCE, Bench, Run, at_work, until
from tests.integration.worker.conftest import Patient
from tests.integration.worker.provider import MODEL, WHOLE, hanging_model
from worker.attempt import AttemptRunner
from worker.context.node_context import WorkerContext
from worker.worker import Worker


def test_released_activation_is_executed_by_another_worker_at_once(bench: Bench, patient: Patient):
    run = patient.start("begin -> work, work2 -> say", say=says("done"))
    leaving, other = bench.a_worker(), bench.a_worker()
    with at_work(bench, leaving, threads=2):
        patient.wait_for("work", "work2")
        leaving.close()

    given_back = {node: run.activation(node) for node in ("work", "work2")}
    patient.let_go()
    bench.play(other)

    assert {row.status for row in given_back.values()} == {"ready"}
    assert (run.status, run.said) == ("succeeded", "done")
    assert [(row.attempt, row.strikes) for row in run.activations if row.node_id in given_back] == [(2, 0), (2, 0)]


def test_released_attempt_stores_no_values(bench: Bench, patient: Patient):
    run = patient.start("begin -> work")
    leaving = bench.a_worker()

    with at_work(bench, leaving):
        patient.wait_for("work")
        leaving.close()

    assert run.statuses["work"] == "ready"
    assert run.rows_of_values("work") == []
    assert "node_finished" not in [event.name for event in run.events if event.node_id == "work"]


def test_text_of_a_released_attempt_is_replaced(bench: Bench):
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = bench.start("begin -> model -> say", model={"llm_id": MODEL}, say=says("{model@content}"))
        leaving, other = bench.a_worker(), bench.a_worker()
        with at_work(bench, leaving):
            assert provider.asked.wait(10)
            until(lambda: run.turns)
            leaving.close()
        assert provider.left.wait(5)

        bench.play(other)

    assert (run.status, run.said) == ("succeeded", WHOLE)
    assert run.told.count("message_reset") == 1
    assert run.activation("model").strikes == 0


@pytest.mark.parametrize("node", ["work", "compute"])  # on the loop, on the thread
def test_claimed_attempt_that_has_not_begun_is_released(bench: Bench, node: str, monkeypatch: pytest.MonkeyPatch):
    claimed, may_go_on = threading.Event(), threading.Event()
    prepared = AttemptRunner._prepare_context
    began: list[str] = []

    def slowly(self: AttemptRunner) -> WorkerContext:
        if self._claim.node_id == node and self._claim.attempt == 1:
            claimed.set()
            may_go_on.wait(PATIENCE)
        return prepared(self)

    def begins(ctx: NodeContext) -> Finished:
        began.append(ctx.node_id)
        return Finished(outputs={"result": "done"})

    monkeypatch.setattr(AttemptRunner, "_prepare_context", slowly)
    bench.does(**{node: begins})
    run, leaving, other = bench.start(f"begin -> {node}"), bench.a_worker(), bench.a_worker()
    with at_work(bench, leaving, threads=1):
        assert claimed.wait(PATIENCE)
        leaving.leases.release_all()
        may_go_on.set()
        leaving.close()
    given_back, too_late = run.activation(node), list(began)
    bench.play(other)

    assert (given_back.status, given_back.attempt, given_back.strikes) == ("ready", 1, 0)
    assert (too_late, began) == ([], [node])
    assert (run.status, run.outputs(node)) == ("succeeded", {"result": "done"})


def test_reserved_continuation_is_released_on_shutdown(bench: Bench):
    began: list[str] = []

    def begins(ctx: NodeContext) -> Finished:
        began.append(ctx.node_id)
        return Finished()

    bench.does(work=begins)
    run, leaving, other = bench.start("begin -> work"), bench.a_worker(), bench.a_worker()
    eager = leaving.execution.new_continuation()
    leaving.execute(run.id, run.activation("begin").id, eager)
    taken = eager.next
    assert taken is not None
    assert run.statuses["work"] == "running"

    leaving.leases.release_all()
    leaving.execute(run.id, taken.attempt.activation_id, eager)
    given_back, too_late = run.activation("work"), list(began)
    bench.play(other)

    assert (given_back.status, given_back.attempt, given_back.strikes) == ("ready", 1, 0)
    assert (eager.next, leaving.leases.attempts()) == (None, [])
    assert (too_late, began) == ([], ["work"])
    assert run.status == "succeeded"


def test_worker_that_shuts_down_claims_nothing(bench: Bench):
    run = bench.start("begin -> work")
    leaving = bench.a_worker()
    leaving.leases.release_all()

    taken = leaving.execute(run.id, run.activation("begin").id)

    assert not taken
    assert (run.statuses["begin"], run.activation("begin").attempt) == ("ready", 0)


def test_shutdown_does_not_wait_for_an_attempt_that_does_not_stop(bench: Bench):
    may_end, ended = threading.Event(), list[str]()

    def compute(ctx: NodeContext) -> Finished:
        may_end.wait(PATIENCE)
        ended.append(ctx.node_id)
        return Finished(outputs={"result": "late"})

    bench.does(compute=compute)
    run, leaving = bench.start("begin -> compute"), bench.a_worker(shutdown_grace=timedelta(milliseconds=100))
    bench.play(leaving, until=lambda: "compute" in run.statuses)
    left_behind = in_a_thread(leaving, run, "compute")
    until(lambda: run.statuses["compute"] == "running")

    leaving.close()

    assert ended == []
    assert (run.statuses["compute"], run.activation("compute").strikes) == ("ready", 0)
    may_end.set()
    left_behind.join(10)
    assert run.outputs("compute") == {}
    bench.does(compute=lambda ctx: Finished(outputs={"result": "fresh"}))
    bench.play(bench.a_worker())
    assert run.outputs("compute") == {"result": "fresh"}


def test_a_worker_may_be_closed_twice(bench: Bench):
    worker = bench.a_worker()

    worker.close()
    worker.close()

    assert worker.leases.is_closed


def in_a_thread(worker: Worker, run: Run, node: str) -> threading.Thread:
    thread = threading.Thread(target=worker.execute, args=(run.id, run.activation(node).id), daemon=True)
    thread.start()
    return thread
