"""Messages sent after a commit: task messages to Celery and event notifications to Redis, with Redis up or down."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from celery.signals import before_task_publish
from structlog.testing import capture_logs

from canvas.state.run_state import RunStatus
from scheduler.messaging import redis_bus
from scheduler.messaging.celery_app import NODES, RUNS, make_app
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.notifications import Notifications, RunEnd
from scheduler.messaging.redis_bus import Bus, channel
from store.primitives.ids import new_id
from store.runs.new_activations import TaskMessage
from tests.integration.engine import REDIS_AWAY, WAIT_TIMEOUT, subscribe, until


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(params=[True, False], ids=["straight", "by Celery"])
def dispatch(redis_url: str, request: pytest.FixtureRequest) -> Iterator[Dispatch]:
    app = make_app(redis_url)
    dispatch = Dispatch(app, Bus(redis_url), is_straight=request.param)
    yield dispatch
    dispatch.bus.close()
    app.close()


def test_task_message_has_ids_only_and_shows_its_component_node_and_run(dispatch: Dispatch, server: redis.Redis):
    task_message = TaskMessage(new_id(), new_id(), "Categorize", "Categorize:0")

    dispatch.enqueue_nodes([task_message])

    (message,) = messages_in(server, NODES)
    ids = [str(task_message.run_id), str(task_message.activation_id)]
    assert message["headers"]["task"] == "worker.execute"
    assert message["headers"]["shadow"] == "node:Categorize"
    assert message["headers"]["argsrepr"] == repr((*ids, "Categorize:0"))
    assert message["headers"]["root_id"] == str(task_message.run_id)
    assert body(message)[:2] == [ids, {}]


def test_node_and_advance_messages_go_to_separate_queues(dispatch: Dispatch, server: redis.Redis):
    dispatch.enqueue_nodes(
        [TaskMessage(new_id(), new_id(), "Begin", "Begin:0"), TaskMessage(new_id(), new_id(), "LLM", "LLM:0")]
    )
    dispatch.advance(run_id := new_id())

    assert [message["headers"]["task"] for message in messages_in(server, NODES)] == ["worker.execute"] * 2
    (message,) = messages_in(server, RUNS)
    assert message["headers"]["task"] == "scheduler.advance"
    assert body(message)[0] == [str(run_id)]


def test_queue_probe_expires_but_not_because_clocks_differ(dispatch: Dispatch, server: redis.Redis):
    dispatch.send_probe(datetime.now(UTC))

    (message,) = messages_in(server, NODES)
    expires = datetime.fromisoformat(message["headers"]["expires"])
    assert timedelta(hours=5) < expires - datetime.now(UTC) <= timedelta(hours=6)


def test_applied_decision_is_sent_to_workers_and_readers(dispatch: Dispatch, server: redis.Redis):
    run_id = new_id()
    applied = Notifications(run_id, [TaskMessage(run_id, new_id(), "LLM", "LLM:0")], events=range(5, 6))
    with server.pubsub() as pubsub:
        subscribe(pubsub, channel(run_id))

        dispatch.publish(applied)

        assert next_message(pubsub) == {"n": 5, "over": False}
    assert len(messages_in(server, NODES)) == 1


def test_task_messages_and_notification_of_a_decision_are_one_round_trip(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
):
    dispatch = Dispatch(make_app(redis_url), Bus(redis_url), is_straight=True)
    dispatch.bus.ping()
    round_trips = 0
    send: Any = redis.Connection.send_packed_command

    def send_and_count(*args: Any, **options: Any) -> Any:
        nonlocal round_trips
        round_trips += 1
        return send(*args, **options)

    monkeypatch.setattr(redis.Connection, "send_packed_command", send_and_count)
    run_id = new_id()

    dispatch.publish(
        Notifications(run_id, [TaskMessage(run_id, new_id(), "LLM", "LLM:0") for _ in range(20)], events=range(1, 2))
    )

    assert round_trips == 1
    dispatch.bus.close()


class OneFetch:
    """A thread that wants one message."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def wants_next(self) -> bool:
        return not self.kept

    def keep(self, raw: bytes) -> None:
        self.kept.append(raw)


def test_sender_that_wants_a_message_gets_the_oldest_of_the_queue(redis_url: str, server: redis.Redis):
    with closing_dispatch(redis_url) as dispatch, server.pubsub() as pubsub:
        run_id = new_id()
        subscribe(pubsub, channel(run_id))
        dispatch.enqueue_nodes([TaskMessage(run_id, new_id(), "LLM", "first")])
        dispatch.fetcher = fetcher = OneFetch()

        dispatch.publish(
            Notifications(
                run_id, [TaskMessage(run_id, new_id(), "LLM", "second") for _ in range(3)], events=range(5, 6)
            )
        )

        assert [json.loads(raw)["headers"]["argsrepr"].split("'")[5] for raw in fetcher.kept] == ["first"]
        assert len(messages_in(server, NODES)) == 3
        assert next_message(pubsub) == {"n": 5, "over": False}


def test_sender_that_wants_a_message_reports_a_queue_that_is_none(redis_url: str, server: redis.Redis):
    server.set(NODES, "not a list")
    with closing_dispatch(redis_url) as dispatch, capture_logs() as logs:
        dispatch.fetcher = fetcher = OneFetch()
        dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM", "first")])

    assert [line["event"] for line in logs] == ["task_messages_not_sent"]
    assert fetcher.kept == []


def test_message_that_a_sender_puts_back_is_the_next_one(redis_url: str, server: redis.Redis):
    with closing_dispatch(redis_url) as dispatch:
        dispatch.fetcher = fetcher = OneFetch()
        dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM", node) for node in ("first", "second")])

        dispatch.bus.requeue_task(NODES, fetcher.kept[0])

        assert server.rpop(NODES) == fetcher.kept[0]
        assert len(messages_in(server, NODES)) == 1


def test_waiting_consumer_gets_what_the_sender_leaves(redis_url: str, server: redis.Redis):
    received: list[Any] = []

    def wait_for_message() -> None:
        with redis.Redis.from_url(redis_url) as client:
            received.append(client.brpop([NODES], timeout=WAIT_TIMEOUT))

    consumer = threading.Thread(target=wait_for_message)
    with closing_dispatch(redis_url) as dispatch:
        dispatch.fetcher = fetcher = OneFetch()
        consumer.start()
        until(lambda: server.info("clients")["blocked_clients"])
        dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM", node) for node in ("first", "second")])
        consumer.join(WAIT_TIMEOUT)

    ((_, raw),) = received
    assert [json.loads(each)["headers"]["argsrepr"].split("'")[5] for each in (*fetcher.kept, raw)] == [
        "first",
        "second",
    ]


@contextmanager
def closing_dispatch(redis_url: str) -> Iterator[Dispatch]:
    """A dispatch that pushes task messages directly."""
    app = make_app(redis_url)
    dispatch = Dispatch(app, Bus(redis_url), is_straight=True)
    try:
        yield dispatch
    finally:
        dispatch.bus.close()
        app.close()


def test_thousands_of_task_messages_arrive_in_order(redis_url: str, server: redis.Redis):
    task_messages = [TaskMessage(new_id(), new_id(), "LLM", "LLM:0") for _ in range(3000)]

    with closing(Bus(redis_url)) as bus:
        Dispatch(make_app(redis_url), bus, is_straight=True).enqueue_nodes(task_messages)

    assert [body(message)[0][1] for message in messages_in(server, NODES)] == [
        str(task_message.activation_id) for task_message in task_messages
    ]


def test_celery_publish_signals_see_every_task_message(redis_url: str, server: redis.Redis):
    dispatch = Dispatch(make_app(redis_url), Bus(redis_url), is_straight=True)

    def add_trace(headers: dict[str, Any], **_: Any) -> None:
        headers["traceparent"] = "00-1-1-01"

    before_task_publish.connect(add_trace)
    try:
        dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM", "LLM:0")])
    finally:
        before_task_publish.disconnect(add_trace)

    (message,) = messages_in(server, NODES)
    assert message["headers"]["traceparent"] == "00-1-1-01"
    dispatch.bus.close()


def test_readers_are_notified_although_the_queue_accepts_nothing(dispatch: Dispatch, server: redis.Redis):
    run_id = new_id()
    server.set(NODES, "no list")
    with server.pubsub() as pubsub:
        subscribe(pubsub, channel(run_id))

        dispatch.publish(Notifications(run_id, [TaskMessage(run_id, new_id(), "LLM", "LLM:0")], events=range(4, 5)))

        assert next_message(pubsub) == {"n": 4, "over": False}
    server.delete(NODES)


def test_end_of_a_run_deletes_its_cancel_keys_and_advances_the_next_queued_run(dispatch: Dispatch, server: redis.Redis):
    run_id, conversation_id, next_run = new_id(), new_id(), new_id()
    for name in (f"{run_id}-cancel", f"{conversation_id.hex}-cancel"):
        server.set(name, "x")

    dispatch.publish(Notifications(run_id, status=RunStatus.SUCCEEDED, end=RunEnd(conversation_id, next_run)))

    assert server.keys("*-cancel") == []
    assert [body(message)[0] for message in messages_in(server, RUNS)] == [[str(next_run)]]


def test_task_messages_arrive_after_redis_was_flushed(dispatch: Dispatch, server: redis.Redis):
    dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "Begin", "Begin:0")])
    server.flushdb()

    dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM", "LLM:0")])

    assert [message["headers"]["shadow"] for message in messages_in(server, NODES)] == ["node:LLM"]


def test_bus_reports_a_flush_of_redis_once(dispatch: Dispatch, server: redis.Redis):
    bus = dispatch.bus

    at_first = [bus.was_flushed(), bus.was_flushed()]
    server.flushdb()
    then = [bus.was_flushed(), bus.was_flushed()]

    assert at_first == [False, False]  # its earlier state is unknown
    assert then == [True, False]


def test_bus_does_not_report_a_flush_of_another_broker(dispatch: Dispatch, server: redis.Redis):
    dispatch.was_flushed()
    server.flushdb()

    assert not dispatch.was_flushed()


@pytest.mark.parametrize("is_straight", [True, False])
def test_dispatch_neither_raises_nor_waits_while_redis_is_unreachable(is_straight: bool, pauses: list[float]):
    dispatch = Dispatch(make_app(REDIS_AWAY), Bus(REDIS_AWAY), is_straight=is_straight)
    run_id = new_id()

    dispatch.publish(
        Notifications(
            run_id,
            [TaskMessage(run_id, new_id(), "LLM", "LLM:0")],
            events=range(1, 2),
            status=RunStatus.SUCCEEDED,
            end=RunEnd(new_id(), new_id()),
        )
    )
    dispatch.send_probe(datetime.now(UTC))

    assert dispatch.bus.find_cancelled({run_id: new_id()}) == set()
    assert sum(pauses) == 0


@pytest.mark.parametrize(
    "spelling",
    [
        "{run}-cancel",
        "{session}-cancel",
        "{run.hex}-cancel",
        "{session.hex}-cancel",
        "cancel:{run}",
        "cancel:{session.hex}",
    ],
)
def test_cancel_key_of_any_spelling_and_value_cancels_its_run(dispatch: Dispatch, server: redis.Redis, spelling: str):
    run, session, other = new_id(), new_id(), new_id()
    server.set(spelling.format(run=run, session=session), "")

    assert dispatch.bus.find_cancelled({run: session, other: new_id()}) == {run}


def test_cancel_subscription_ignores_messages_of_other_programs(dispatch: Dispatch, server: redis.Redis):
    run_id = new_id()
    requests = dispatch.bus.cancel_requests()
    assert next(requests) is None  # subscribed

    for payload in ("no JSON", "[]", "{}", '{"run": "no id"}', '{"run": 7}', "null"):
        server.publish("easel:call-off", payload)
    dispatch.bus.publish_cancel(run_id)

    assert until(lambda: next(requests)) == run_id


def test_cancel_subscription_is_confirmed_without_waiting_for_a_ping(
    dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(redis_bus, "PING_INTERVAL", 3600.0)
    monkeypatch.setattr(redis_bus, "SUBSCRIPTION_TIMEOUT", 20.0)

    assert next(dispatch.bus.cancel_requests()) is None


# -- helpers ---------------------------------------------------------------------------------------------------------
def messages_in(server: redis.Redis, queue: str) -> list[dict[str, Any]]:
    """Messages in a queue, oldest first."""
    found: Any = server.lrange(queue, 0, -1)
    return [json.loads(message) for message in reversed(found)]


def body(message: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(message["body"]))


def next_message(listener: Any) -> Any:
    return json.loads(until(lambda: listener.get_message(timeout=0.05))["data"])
