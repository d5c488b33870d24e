"""Redis accepts connections and never answers: processes continue after one timeout, and a cancel takes effect."""

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
from scheduler.messaging.event_notifier import EventNotification
from scheduler.messaging.notifications import Notifications, RunEnd
from scheduler.messaging.redis_bus import Bus
from scheduler.sweeper.sweeper import Sweeper
from store.primitives.ids import new_id
from store.runs.new_activations import TaskMessage
from tests.integration.engine import Bench, at_work, until
from tests.integration.unresponsive_redis import DroppingProxy, black_hole, proxy_to
from tests.integration.worker.conftest import PausedNodes

NEVER = timedelta(hours=1)
MAX_TIMEOUTS = 3  # timeouts: of the broker, of the bus, and of the thread that sends event notifications


@pytest.fixture
def unresponsive_url() -> Iterator[str]:
    with black_hole() as url:
        yield url


@pytest.fixture
def proxy(redis_url: str) -> Iterator[DroppingProxy]:
    with proxy_to(redis_url) as proxy:
        yield proxy


@pytest.fixture
def paused_nodes(bench: Bench) -> Iterator[PausedNodes]:
    paused_nodes = PausedNodes(bench)
    yield paused_nodes
    paused_nodes.release()


@pytest.fixture
def timeouts(monkeypatch: pytest.MonkeyPatch) -> list[CircuitBreaker]:
    """Record the circuit breakers that open. Their clock stands still, so that none closes again."""
    breakers: list[CircuitBreaker] = []
    record_failure = CircuitBreaker.record_failure

    def record(breaker: CircuitBreaker) -> None:
        breakers.append(breaker)
        record_failure(breaker)

    monkeypatch.setattr("scheduler.messaging.circuit_breaker.time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(CircuitBreaker, "record_failure", record)
    return breakers


def make_coordinator(bench: Bench, unresponsive_url: str) -> Coordinator:
    """Return a coordinator whose broker and bus never answer."""
    return Coordinator(bench.database, Dispatch(make_app(unresponsive_url), Bus(unresponsive_url)), VersionCache())


# -- senders ---------------------------------------------------------------------------------------------------------
def test_circuit_breaker_of_the_bus_opens_after_one_timeout(unresponsive_url: str, timeouts: list[CircuitBreaker]):
    bus, run_id = Bus(unresponsive_url), new_id()

    for number in range(50):
        bus.notify_event(EventNotification(run_id, number, number))
        bus.set_cancel_key(run_id)
        bus.clear_cancel_keys(run_id, new_id())
        assert bus.find_cancelled({run_id: new_id()}) == set()

    assert 1 <= len(timeouts) <= MAX_TIMEOUTS


def test_cancel_request_is_published_although_the_circuit_breaker_is_open(unresponsive_url: str, redis_url: str):
    bus, run_id = Bus(unresponsive_url), new_id()
    bus.notify_event(EventNotification(run_id, 1, 1))
    bus._redis = redis.Redis.from_url(redis_url)
    cancel_requests = Bus(redis_url).cancel_requests()
    assert next(cancel_requests) is None

    bus.publish_cancel(run_id)

    assert until(lambda: next(cancel_requests)) == run_id


def test_circuit_breaker_of_the_broker_opens_after_one_timeout(unresponsive_url: str, timeouts: list[CircuitBreaker]):
    dispatch, run_id = Dispatch(make_app(unresponsive_url), Bus(unresponsive_url)), new_id()

    for _ in range(20):
        dispatch.publish(
            Notifications(
                run_id,
                [TaskMessage(run_id, new_id(), "LLM", "LLM:0")],
                status=RunStatus.SUCCEEDED,
                end=RunEnd(new_id(), new_id()),
            )
        )
        dispatch.send_probe(datetime.now(UTC))

    assert 1 <= len(timeouts) <= MAX_TIMEOUTS


def test_task_messages_are_sent_again_once_the_broker_answers(proxy: DroppingProxy, redis_url: str):
    dispatch = Dispatch(make_app(proxy.url), Bus(proxy.url))
    proxy.drop_data()
    dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM", "LLM:0")])
    proxy.forward_data()

    with redis.Redis.from_url(redis_url) as client:

        def queued_messages() -> int:
            dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM", "LLM:0")])
            return int(client.llen("nodes"))  # pyright: ignore[reportArgumentType] (sync client)

        until(queued_messages)


def test_sweeper_ticks_wait_for_one_timeout_only_if_redis_does_not_answer(
    bench: Bench, unresponsive_url: str, timeouts: list[CircuitBreaker]
):
    sweeper = Sweeper(make_coordinator(bench, unresponsive_url))
    bench.start("begin -> work")

    for _ in range(4):
        assert sweeper.tick()

    assert 1 <= len(timeouts) <= MAX_TIMEOUTS


# -- cancels ---------------------------------------------------------------------------------------------------------
def test_cancel_is_accepted_after_one_timeout_if_redis_does_not_answer(
    bench: Bench, unresponsive_url: str, timeouts: list[CircuitBreaker]
):
    run = bench.start("begin -> work")
    bench.claim(run, "begin")

    status = Lifecycle(make_coordinator(bench, unresponsive_url)).cancel_run(bench.tenant_id, run.id)

    assert 1 <= len(timeouts) <= MAX_TIMEOUTS
    assert status == run.status == "stopping"
    assert run.activation("begin").cancel_requested


def test_attempt_is_cancelled_by_its_row_if_redis_does_not_answer(
    bench: Bench, paused_nodes: PausedNodes, unresponsive_url: str
):
    run = paused_nodes.start("begin -> work")

    worker = bench.a_worker(bench.a_coordinator(redis_url=unresponsive_url), lease=NEVER, renew_every=NEVER)

    with at_work(bench, worker):  # it renews only because it receives no cancel requests
        paused_nodes.wait_for("work")
        Lifecycle(make_coordinator(bench, unresponsive_url)).cancel_run(bench.tenant_id, run.id)
        until(lambda: paused_nodes.stopped == ["work"])
        until(lambda: run.status == "cancelled")


# -- subscribers -----------------------------------------------------------------------------------------------------
def test_subscriber_detects_a_dead_connection(proxy: DroppingProxy):
    cancel_requests = Bus(proxy.url).cancel_requests()
    assert next(cancel_requests) is None
    proxy.drop_data()

    with pytest.raises(redis.RedisError):
        until(lambda: next(cancel_requests))


def test_worker_receives_cancel_requests_again_after_it_reconnects(
    bench: Bench, paused_nodes: PausedNodes, proxy: DroppingProxy
):
    run = paused_nodes.start("begin -> work")
    worker = bench.a_worker(bench.a_coordinator(redis_url=proxy.url), lease=NEVER, renew_every=NEVER, cancel_poll=NEVER)

    with at_work(bench, worker):
        paused_nodes.wait_for("work")
        until(lambda: worker.leases.is_subscribed)
        proxy.drop_data()
        until(lambda: not worker.leases.is_subscribed)
        proxy.forward_data()
        until(lambda: worker.leases.is_subscribed)
        bench.lifecycle.cancel_run(bench.tenant_id, run.id)
        until(lambda: paused_nodes.stopped == ["work"])


def test_cancel_request_lost_while_disconnected_is_applied_after_the_worker_reconnects(
    bench: Bench, paused_nodes: PausedNodes, proxy: DroppingProxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("worker.leases.leases.RENEW_WHILE_UNSUBSCRIBED", NEVER.total_seconds())
    run = paused_nodes.start("begin -> work")
    worker = bench.a_worker(bench.a_coordinator(redis_url=proxy.url), lease=NEVER, renew_every=NEVER, cancel_poll=NEVER)

    with at_work(bench, worker):
        paused_nodes.wait_for("work")
        until(lambda: worker.leases.is_subscribed)
        proxy.drop_data()
        until(lambda: not worker.leases.is_subscribed)
        bench.lifecycle.cancel_run(bench.tenant_id, run.id)
        assert paused_nodes.stopped == []
        proxy.forward_data()
        until(lambda: paused_nodes.stopped == ["work"])
