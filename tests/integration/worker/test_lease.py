"""A lease is renewed while its attempt works; the attempt stops when the lease is lost or its run is cancelled."""

import threading
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import uuid4

import openai  # the first call imports it for a second, which counts against a node's time limit
import pytest
import redis

from canvas.errors import NotFound
from canvas.outcome import Finished
from store.runs import activations, run_rows
from store.tables.runs import activations as rows
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work, until
from tests.integration.worker.conftest import PausedNodes
from tests.integration.worker.provider import MODEL, hanging_model
from worker.execution.reporter import Reporter
from worker.leases import cancel_listener, leases
from worker.leases.attempt_handle import Attempt

QUICK = {"renew_every": timedelta(milliseconds=40), "cancel_poll": timedelta(milliseconds=40)}
NEVER = timedelta(hours=1)


# -- renewal ---------------------------------------------------------------------------------------------------------
def test_lease_is_renewed_while_the_attempt_works(bench: Bench, paused_nodes: PausedNodes):
    run = paused_nodes.start("begin -> work")
    worker = bench.a_worker(lease=timedelta(milliseconds=300), renew_every=timedelta(milliseconds=50))

    with at_work(bench, worker):
        paused_nodes.wait_for("work")
        first = run.activation("work").lease_until
        until(lambda: run.activation("work").lease_until > first + timedelta(milliseconds=300))
        paused_nodes.release()
        until(lambda: run.status == "succeeded")

    assert run.activation("work").attempt == 1


def test_leases_are_renewed_while_a_report_of_another_attempt_hangs(
    bench: Bench, paused_nodes: PausedNodes, monkeypatch: pytest.MonkeyPatch
):
    hangs, may_end = threading.Event(), threading.Event()
    report = Reporter.report

    def report_slowly(self: Reporter, *args: Any) -> None:
        if self.claim.node_id == "compute":
            hangs.set()
            may_end.wait(20)
        report(self, *args)

    monkeypatch.setattr(Reporter, "report", report_slowly)
    bench.does(compute=lambda ctx: may_end.wait(20) and Finished())
    stuck, run = bench.start("begin -> compute"), paused_nodes.start("begin -> work")
    limits = {"Compute": 0.05, "Act": 60.0}
    worker = bench.a_worker(time_limit=lambda name, *_: limits.get(name, 60.0), shutdown_grace=timedelta(0), **QUICK)

    with at_work(bench, worker):
        paused_nodes.wait_for("work")
        assert hangs.wait(30)
        first = run.activation("work").lease_until
        until(lambda: run.activation("work").lease_until > first)
        paused_nodes.release()
        may_end.set()
        until(lambda: run.status == "succeeded" and stuck.status == "failed")


def test_attempt_with_a_lost_lease_stops_and_reports_nothing(bench: Bench, paused_nodes: PausedNodes):
    run = paused_nodes.start("begin -> work")

    with at_work(bench, bench.a_worker(**QUICK)):
        paused_nodes.wait_for("work")
        change(bench, run, lease_id=uuid4())
        until(lambda: paused_nodes.stopped == ["work"])

    assert run.statuses["work"] == "running"
    assert run.outputs("work") == {}


# -- cancel ----------------------------------------------------------------------------------------------------------
def test_cancel_stops_an_attempt_at_once(bench: Bench, paused_nodes: PausedNodes):
    run = paused_nodes.start("begin -> work -> say", say=content("never"))

    with at_work(bench, bench.a_worker(lease=NEVER, renew_every=NEVER, cancel_poll=NEVER)):
        paused_nodes.wait_for("work")
        bench.lifecycle.cancel_run(bench.tenant_id, run.id)
        until(lambda: run.status == "cancelled")

    assert paused_nodes.stopped == ["work"]
    assert run.events[-1].body == {"outputs": "Task has been canceled"}


def test_cancel_with_a_lost_message_is_found_at_the_renewal(bench: Bench, paused_nodes: PausedNodes):
    run = paused_nodes.start("begin -> work")

    with at_work(bench, bench.a_worker(renew_every=timedelta(milliseconds=40), cancel_poll=NEVER)):
        paused_nodes.wait_for("work")
        cancel_without_message(bench, run)
        until(lambda: paused_nodes.stopped == ["work"])


def test_cancel_with_a_lost_message_is_found_when_the_subscription_is_back(
    bench: Bench, paused_nodes: PausedNodes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leases, "RENEW_WHILE_UNSUBSCRIBED", NEVER.total_seconds())
    run = paused_nodes.start("begin -> work")
    worker = bench.a_worker(lease=NEVER, renew_every=NEVER, cancel_poll=NEVER)

    with at_work(bench, worker):
        paused_nodes.wait_for("work")
        until(lambda: worker.leases.is_subscribed)
        cancel_without_message(bench, run)
        with redis.Redis.from_url(bench.redis_url) as client:
            client.client_kill_filter(_type="pubsub")
        until(lambda: paused_nodes.stopped == ["work"])


@pytest.mark.parametrize("whose", ["run", "session"])
def test_cancel_key_of_another_program_stops_the_attempt(bench: Bench, paused_nodes: PausedNodes, whose: str):
    run = paused_nodes.start("begin -> work")
    named = run.id if whose == "run" else run.conversation_id

    with (
        at_work(bench, bench.a_worker(lease=NEVER, renew_every=NEVER)),
        redis.Redis.from_url(bench.redis_url) as client,
    ):
        paused_nodes.wait_for("work")
        began = monotonic()
        client.set(f"{named}-cancel", "any value")
        until(lambda: paused_nodes.stopped == ["work"])
        noticed = monotonic() - began
        until(lambda: run.status == "cancelled")

        assert noticed < 1  # half a second, with time for a busy machine
        until(lambda: client.keys("*-cancel") == [])


def test_cancel_key_of_another_run_stops_no_attempt(bench: Bench, paused_nodes: PausedNodes):
    run = paused_nodes.start("begin -> work")
    was_polled = threading.Event()
    find_cancelled = bench.coordinator.dispatch.bus.find_cancelled
    polls = [0]

    def find_and_count(known: Any) -> Any:
        polls[0] += 1
        if polls[0] > 2:
            was_polled.set()
        return find_cancelled(known)

    bench.coordinator.dispatch.bus.find_cancelled = find_and_count  # type: ignore[method-assign]
    with at_work(bench, bench.a_worker(**QUICK)), redis.Redis.from_url(bench.redis_url) as client:
        paused_nodes.wait_for("work")
        client.set(f"{uuid4()}-cancel", "x")
        polls[0] = 0
        assert was_polled.wait(30)
        paused_nodes.release()
        until(lambda: run.status == "succeeded")

    assert paused_nodes.stopped == []


def test_cancel_keys_are_polled_after_a_run_that_cannot_be_cancelled(
    bench: Bench, paused_nodes: PausedNodes, monkeypatch: pytest.MonkeyPatch
):
    first, second = paused_nodes.start("begin -> work"), paused_nodes.start("begin -> work2")
    refused = threading.Event()

    def refuse(self: Any, tenant_id: Any, run_id: Any) -> Any:
        refused.set()
        raise NotFound("There is no such run.")

    with (
        at_work(bench, bench.a_worker(lease=NEVER, renew_every=NEVER)),
        redis.Redis.from_url(bench.redis_url) as client,
    ):
        paused_nodes.wait_for("work", "work2")
        with monkeypatch.context() as patch:
            patch.setattr(type(bench.lifecycle), "cancel_run", refuse)
            client.set(f"{first.id}-cancel", "x")
            assert refused.wait(30)
        client.set(f"{second.id}-cancel", "x")
        until(lambda: second.status == "cancelled")


# -- a model call in flight ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", ["our cancel", "a run key", "a session key", "the time limit"])
def test_stopping_a_model_node_closes_the_connection_to_its_provider(bench: Bench, way: str):
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = bench.start("begin -> model -> say", model={"llm_id": MODEL}, say=content("{model@content}"), inputs={})
        assert openai.__version__
        limit = 1.5 if way == "the time limit" else 60.0
        worker = bench.a_worker(time_limit=lambda name, *_: limit if name == "LLM" else 60.0)

        with at_work(bench, worker), redis.Redis.from_url(bench.redis_url) as client:
            assert provider.is_hanging.wait(30)
            match way:
                case "our cancel":
                    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
                case "a run key":
                    client.set(f"{run.id}-cancel", "x")
                case "a session key":
                    client.set(f"{run.conversation_id}-cancel", "x")
                case _:
                    pass
            assert provider.client_has_closed.wait(30), "the connection to the provider is still open"
            until(lambda: run.status in ("cancelled", "failed", "succeeded"))

    assert run.status == ("failed" if way == "the time limit" else "cancelled")
    assert run.activation("model").attempt == 1


def test_a_lost_lease_closes_the_connection_to_the_provider(bench: Bench):
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = bench.start("begin -> model -> say", model={"llm_id": MODEL}, say=content("{model@content}"))

        with at_work(bench, bench.a_worker(**QUICK)):
            assert provider.is_hanging.wait(30)
            change(bench, run, lease_id=uuid4())
            assert provider.client_has_closed.wait(30)


# -- an attempt ------------------------------------------------------------------------------------------------------
def test_attempt_keeps_its_first_stop_reason_and_reports_once(bench: Bench):
    attempt = Attempt(uuid4(), uuid4(), uuid4())
    loop = bench.worker.loop

    attempt.stop("deadline", loop)
    attempt.stop("user", loop)

    assert attempt.stopped is not None
    assert attempt.stopped.reason == "deadline"
    assert [attempt.acquire_report_right() for _ in range(2)] == [True, False]


def test_reported_attempt_is_not_stopped(bench: Bench):
    attempt = Attempt(uuid4(), uuid4(), uuid4())
    attempt.acquire_report_right()

    attempt.stop("user", bench.worker.loop)

    assert attempt.stopped is None


# -- helpers ---------------------------------------------------------------------------------------------------------
def change(bench: Bench, run: Run, **values: Any) -> None:
    with bench.database.transaction() as tx:
        tx.execute(rows.update().where(rows.c.run_id == run.id, rows.c.status == "running").values(**values))


def cancel_without_message(bench: Bench, run: Run) -> None:
    with bench.database.transaction() as tx:
        row = run_rows.lock(tx, run.id)
        assert row is not None
        bench.coordinator.stopper.cancel(tx, row)


# -- lease threads ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("thread", ["easel-leases", "easel-keys", "easel-calls"])
def test_lease_is_renewed_after_an_unexpected_error_of_a_thread(
    bench: Bench, paused_nodes: PausedNodes, thread: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cancel_listener, "FAILURE_PAUSE", 0.05)
    failed = threading.Event()
    worker = bench.a_worker(lease=timedelta(milliseconds=600), **QUICK)
    bus = bench.coordinator.dispatch.bus
    owner, name = {
        "easel-leases": (activations, "renew"),
        "easel-keys": (bus, "find_cancelled"),
        "easel-calls": (bus, "cancel_requests"),
    }[thread]
    original = getattr(owner, name)

    def fail_once(*args: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("can't start new thread")
        return original(*args)

    run = paused_nodes.start("begin -> work")
    with at_work(bench, worker):
        paused_nodes.wait_for("work")
        monkeypatch.setattr(owner, name, fail_once)
        if thread == "easel-calls":
            # so that the thread checks again
            bench.lifecycle.cancel_run(bench.tenant_id, paused_nodes.start("begin -> never").id)
            failed.set()
        assert failed.wait(30)
        first = run.activation("work").lease_until
        until(lambda: run.activation("work").lease_until > first + timedelta(milliseconds=600))
        assert worker.leases.check(1.0) is None
        bench.lifecycle.cancel_run(bench.tenant_id, run.id)
        until(lambda: run.status == "cancelled")


def test_process_exits_after_a_lease_thread_has_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    class Fatal(BaseException):
        pass

    def renew(self: Any) -> None:
        raise Fatal

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(leases.LeaseKeeper, "_renew", renew)
    worker = bench.a_worker(**QUICK)

    until(lambda: worker.leases.check(1.0) == "its thread easel-leases has ended")
    worker.close()
    assert worker.leases.check(1.0) is None
