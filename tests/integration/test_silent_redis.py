"""Redis takes connections and answers nothing: everybody goes on, soon, and a cancel is kept all the same."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import redis

from canvas.state.run_state import RunStatus
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.circuit_breaker import CircuitBreaker
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.notifications import Notifications, RunEnd
from scheduler.messaging.redis_bus import Bus
from scheduler.sweeper.sweeper import Sweeper
from store.primitives.ids import new_id
from store.runs.new_activations import TaskMessage
from tests.integration.engine import Bench, at_work, until
from tests.integration.silent import Line, black_hole, line_to
from tests.integration.worker.conftest import Patient

NEVER = timedelta(hours=1)
ONCE = 3  # waits: for the broker, for the bus, and of the thread that sends echoes over the bus meanwhile


@pytest.fixture
def silent() -> Iterator[str]:
    with black_hole() as url:
        yield url


@pytest.fixture
def line(redis_url: str) -> Iterator[Line]:
    with line_to(redis_url) as line:
        yield line


@pytest.fixture
def patient(bench: Bench) -> Iterator[Patient]:
    patient = Patient(bench)
    yield patient
    patient.let_go()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[CircuitBreaker]:
    """Who has waited in vain, each time. The clock of silence stands still, so nobody may wait a second time."""
    seen: list[CircuitBreaker] = []
    begins = CircuitBreaker.record_failure

    def noted(silence: CircuitBreaker) -> None:
        seen.append(silence)
        begins(silence)

    monkeypatch.setattr("scheduler.messaging.circuit_breaker.time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(CircuitBreaker, "record_failure", noted)
    return seen


def cut_off(bench: Bench, silent: str) -> Coordinator:
    """A coordinator whose broker and bus never answer."""
    return Coordinator(bench.database, Dispatch(make_app(silent), Bus(silent)), VersionCache())


# -- who sends -------------------------------------------------------------------------------------------------------
def test_the_bus_is_waited_for_once_and_then_left_alone(silent: str, waits: list[CircuitBreaker]):
    bus, run_id = Bus(silent), new_id()

    for number in range(50):
        bus.notify_event(run_id, number)
        bus.set_cancel_key(run_id)
        bus.clear_cancel_keys(run_id, new_id())
        assert bus.find_cancelled({run_id: new_id()}) == set()

    assert 1 <= len(waits) <= ONCE


def test_a_call_to_stop_is_tried_although_redis_has_kept_silent(silent: str, redis_url: str):
    bus, run_id = Bus(silent), new_id()
    bus.notify_event(run_id, 1)
    bus._redis = redis.Redis.from_url(redis_url)
    calls = Bus(redis_url).cancel_requests()
    assert next(calls) is None

    bus.publish_cancel(run_id)

    assert until(lambda: next(calls)) == run_id


def test_the_broker_is_waited_for_once_and_then_left_alone(silent: str, waits: list[CircuitBreaker]):
    dispatch, run_id = Dispatch(make_app(silent), Bus(silent)), new_id()

    for _ in range(20):
        dispatch.publish(
            Notifications(
                run_id,
                [TaskMessage(run_id, new_id(), "LLM")],
                status=RunStatus.SUCCEEDED,
                end=RunEnd(new_id(), new_id()),
            )
        )
        dispatch.send_probe(datetime.now(UTC))

    assert 1 <= len(waits) <= ONCE


def test_hints_go_out_again_once_the_broker_is_back(line: Line, redis_url: str):
    dispatch = Dispatch(make_app(line.url), Bus(line.url))
    line.goes_dead()
    dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM")])
    line.is_back()

    with redis.Redis.from_url(redis_url) as client:

        def arrives() -> int:
            dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM")])
            return int(client.llen("nodes"))  # pyright: ignore[reportArgumentType] (sync client)

        until(arrives)


def test_the_sweeper_keeps_its_pace(bench: Bench, silent: str, waits: list[CircuitBreaker]):
    sweeper = Sweeper(cut_off(bench, silent))
    bench.start("begin -> work")

    for _ in range(4):
        assert sweeper.tick()

    assert 1 <= len(waits) <= ONCE


# -- who cancels -----------------------------------------------------------------------------------------------------
def test_a_cancel_is_accepted_soon(bench: Bench, silent: str, waits: list[CircuitBreaker]):
    run = bench.start("begin -> work")
    bench.claim(run, "begin")

    status = Lifecycle(cut_off(bench, silent)).cancel_run(bench.tenant_id, run.id)

    assert 1 <= len(waits) <= ONCE
    assert status == run.status == "stopping"
    assert run.activation("begin").called_off


def test_a_cancelled_attempt_learns_of_it_from_its_row(bench: Bench, patient: Patient, silent: str):
    run = patient.start("begin -> work")

    worker = bench.a_worker(bench.a_coordinator(redis_url=silent), renew_every=NEVER)

    with at_work(bench, worker):  # it renews only because it cannot hear the call
        patient.wait_for("work")
        Lifecycle(cut_off(bench, silent)).cancel_run(bench.tenant_id, run.id)
        until(lambda: patient.stopped == ["work"])
        until(lambda: run.status == "cancelled")


# -- who listens -----------------------------------------------------------------------------------------------------
def test_a_listener_notices_that_its_line_is_dead(line: Line):
    calls = Bus(line.url).cancel_requests()
    assert next(calls) is None
    line.goes_dead()

    with pytest.raises(redis.RedisError):
        until(lambda: next(calls))


def test_a_worker_hears_calls_again_once_its_line_is_back(bench: Bench, patient: Patient, line: Line):
    run = patient.start("begin -> work")
    worker = bench.a_worker(bench.a_coordinator(redis_url=line.url), renew_every=NEVER, cancel_poll=NEVER)

    with at_work(bench, worker):
        patient.wait_for("work")
        until(lambda: worker.leases.is_subscribed)
        line.goes_dead()
        until(lambda: not worker.leases.is_subscribed)
        line.is_back()
        until(lambda: worker.leases.is_subscribed)
        bench.lifecycle.cancel_run(bench.tenant_id, run.id)
        until(lambda: patient.stopped == ["work"])


def test_a_call_that_was_lost_while_nobody_heard_is_made_good_when_the_worker_hears_again(
    bench: Bench, patient: Patient, line: Line, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("worker.leases.leases.RENEW_WHILE_UNSUBSCRIBED", NEVER.total_seconds())
    run = patient.start("begin -> work")
    worker = bench.a_worker(bench.a_coordinator(redis_url=line.url), renew_every=NEVER, cancel_poll=NEVER)

    with at_work(bench, worker):
        patient.wait_for("work")
        until(lambda: worker.leases.is_subscribed)
        line.goes_dead()
        until(lambda: not worker.leases.is_subscribed)
        bench.lifecycle.cancel_run(bench.tenant_id, run.id)
        assert patient.stopped == []
        line.is_back()
        until(lambda: patient.stopped == ["work"])
