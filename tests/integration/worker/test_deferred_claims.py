"""A node that only computes begins with the claim that its task message carries; the claim is written afterwards."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from canvas.outcome import Finished
from canvas.state.run_state import OpenForm, RunFailure, RunState, RunStatus
from components.context import NodeContext
from scheduler.messaging.celery_app import EXECUTE, PREPARED_CLAIM
from store.monitoring import sweep_queries
from store.runs import prepared_claims
from store.runs.activations import Deferral
from store.tables.runs import activations as rows
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work, until

SOON = timedelta(milliseconds=40)


@pytest.fixture
def compute(bench: Bench) -> Callable[[Callable[[Run], Any]], Run]:
    """Runs a canvas whose node `compute` calls a function with its run, on a thread that messages are played on."""

    def run_with(while_computing: Callable[[Run], Any], **settings: Any) -> Run:
        holder: list[Run] = []

        def work(ctx: NodeContext) -> Finished:
            while_computing(holder[0])
            return Finished({"result": "done"})

        bench.does(compute=work)
        holder.append(bench.start("begin -> compute -> say", say=content("{compute@result}")))
        bench.play(bench.a_worker(**settings))
        return holder[0]

    return run_with


def test_node_that_computes_begins_before_its_claim_is_written(bench: Bench, compute: Any):
    seen: list[Any] = []

    run = compute(lambda run: seen.append(run.activation("compute")))

    assert [(row.status, row.attempt, row.lease_id) for row in seen] == [("ready", 0, None)]
    row = run.activation("compute")
    assert (row.status, row.attempt, row.worker) == ("done", 1, run.activation("begin").worker)
    assert row.lease_id is not None
    assert row.created_at <= row.started_at <= row.finished_at
    assert run.status == "succeeded"


def test_node_that_waits_is_claimed_before_it_begins(bench: Bench):
    seen: list[str] = []

    async def ask(ctx: NodeContext) -> Finished:
        seen.append(run.activation("ask").status)
        return Finished({})

    bench.does(ask=ask)
    run = bench.start("begin -> ask")
    bench.play()

    assert (seen, run.status) == (["running"], "succeeded")


def test_node_is_claimed_first_if_deferred_claims_are_off(compute: Any):
    seen: list[str] = []

    compute(lambda run: seen.append(run.activation("compute").status), defer_claims=False)

    assert seen == ["running"]


def test_claim_of_a_node_that_computes_for_long_is_written_within_a_second(compute: Any):
    def wait_until_claimed(run: Run) -> None:
        until(lambda: run.activation("compute").status == "running", seconds=5)
        renewed = run.activation("compute").lease_until
        until(lambda: run.activation("compute").lease_until > renewed)

    run = compute(wait_until_claimed, renew_every=SOON)

    row = run.activation("compute")
    assert (row.status, row.attempt, run.status) == ("done", 1, "succeeded")


def test_report_of_an_activation_that_another_worker_has_claimed_is_refused(bench: Bench, compute: Any):
    run = compute(lambda run: bench.claim(run, "compute"))

    row = run.activation("compute")
    assert (row.status, row.attempt, row.worker) == ("running", 1, "by hand")
    assert run.outputs("compute") == {}


def test_report_of_a_run_that_was_cancelled_meanwhile_is_refused(bench: Bench, compute: Any):
    run = compute(lambda run: bench.lifecycle.cancel_run(bench.tenant_id, run.id))

    assert run.status == "cancelled"
    assert run.activation("compute").status == "closed"
    assert run.outputs("compute") == {}


def test_attempt_that_computes_for_long_learns_of_a_cancel_whose_message_was_lost(bench: Bench):
    began, may_end, worker = threading.Event(), threading.Event(), bench.a_worker()
    bench.does(compute=lambda ctx: began.set() or (may_end.wait(20) and Finished({})))
    run = bench.start("begin -> compute")

    with at_work(bench, worker):
        assert began.wait(30)
        with bench.database.transaction() as tx:
            tx.execute(rows.update().where(rows.c.run_id == run.id, rows.c.status == "ready").values(status="closed"))
        until(lambda: [str(attempt.stopped) for attempt in worker.leases.attempts()] == ["lease"])
        may_end.set()


def test_of_two_deliveries_of_one_message_one_report_is_stored(bench: Bench):
    executed: list[str] = []
    run = bench.start("begin -> compute")
    bench.play(until=lambda: run.statuses.get("compute") == "ready")
    run_id, activation_id, carried = message_of(bench, run, "compute")
    inner, outer = (prepared_claims.decode(run_id, activation_id, carried) for _ in range(2))

    def begin_again(ctx: NodeContext) -> Finished:
        bench.does(compute=lambda ctx: executed.append("again") or Finished({"result": "second"}))
        other = threading.Thread(target=bench.worker.execute, args=(run_id, activation_id, None, inner))
        other.start()
        other.join()
        return Finished({"result": "first"})

    bench.does(compute=begin_again)
    bench.worker.execute(run_id, activation_id, None, outer)

    assert executed == ["again"]
    assert run.outputs("compute")["result"] == "second"
    assert run.activation("compute").attempt == 1
    assert run.status == "succeeded"


def test_prepared_claim_is_what_a_claim_returns(bench: Bench):
    bench.does(**{name: lambda ctx: Finished({"list": [1, 2]}) for name in ("list", "left", "right")})
    run = bench.start("begin -> list, left; list, left -> right", "right -> say", say=content("done"))
    compared: set[str] = set()

    while (message := bench.outbox.pop()) is not None:
        if message.task != EXECUTE:
            continue
        run_id, activation_id = map(UUID, message.args)
        carried = (message.options.get("headers") or {}).get(PREPARED_CLAIM)
        received = prepared_claims.decode(run_id, activation_id, carried)
        (node,) = (row.node_id for row in run.activations if row.id == activation_id)
        if received is not None and node != "begin":
            claimed = bench.claim(run, node)
            assert received.claim(claimed.lease_id, Deferral("", 0.0)) == replace(claimed, deferral=Deferral("", 0.0))
            compared.add(node)
            with bench.database.transaction() as tx:  # as before the claim
                unclaimed = {"status": "ready", "attempt": 0, "lease_id": None, "lease_until": None}
                tx.execute(rows.update().where(rows.c.id == activation_id).values(**unclaimed))
        bench.worker.execute(run_id, activation_id)

    assert compared == {"list", "left", "right"}
    assert run.status == "succeeded"


def test_a_message_that_is_sent_again_carries_no_claim(bench: Bench):
    run = bench.start("begin -> compute")
    bench.play(until=lambda: run.statuses.get("compute") == "ready")
    bench.outbox.lose()

    with bench.database.transaction() as tx:
        lost = sweep_queries.redispatch_unclaimed(tx, datetime.now(UTC) + timedelta(hours=1), 10_000)
    bench.coordinator.dispatch.enqueue_nodes([message for message in lost if message.run_id == run.id])

    *_, carried = message_of(bench, run, "compute")
    assert carried is None


def test_state_with_a_users_text_does_not_travel():
    run_id = uuid4()

    assert prepared_claims.may_travel(RunState(run_id, RunStatus.RUNNING))
    failing = RunState(run_id, RunStatus.RUNNING, failure=RunFailure(1, "", "ask", "a secret of mine", "node_failure"))
    asking = RunState(run_id, RunStatus.RUNNING, forms={uuid4(): OpenForm("ask", "", (), {}, "a secret of mine", True)})
    assert not prepared_claims.may_travel(failing)
    assert not prepared_claims.may_travel(asking)


@pytest.mark.parametrize("carried", [None, 5, "", "{", "[]", '{"v": 0}', "null"])
def test_header_that_is_no_prepared_claim_is_ignored(carried: Any):
    assert prepared_claims.decode(uuid4(), uuid4(), carried) is None


def message_of(bench: Bench, run: Run, node: str) -> tuple[UUID, UUID, Any]:
    """Return the run, the activation and the prepared claim of the last message of a node."""
    activation_id = run.activation(node).id
    message = [each for each in bench.outbox.sent if each.args == (str(run.id), str(activation_id))][-1]
    return run.id, activation_id, (message.options.get("headers") or {}).get(PREPARED_CLAIM)
