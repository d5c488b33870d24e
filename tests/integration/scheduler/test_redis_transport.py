"""The Redis transport: task messages are not recorded as unacknowledged, and a broken connection loses none."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from celery import Celery
from kombu.message import Message
from kombu.messaging import Consumer
from kombu.transport import redis as kombu_redis

from scheduler.messaging import redis_transport
from scheduler.messaging.celery_app import NODES, RUNS, make_app
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_transport import CAPACITY_CHECK_INTERVAL, RedisChannel
from store.primitives.ids import new_id
from store.runs.new_activations import TaskMessage
from tests.integration.engine import Bench


@pytest.fixture
def app(bench: Bench) -> Iterator[Celery]:
    app = make_app(bench.redis_url)
    Dispatch(app, bench.coordinator.dispatch.bus).enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM", "LLM:0")])
    yield app
    app.close()


@pytest.fixture
def server(bench: Bench) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(bench.redis_url) as client:
        yield client


def receive(app: Celery, queue: str = NODES) -> tuple[Any, Message]:
    """Return a channel and the unacknowledged message that was received on it."""
    channel = app.connection_for_read().channel()
    message = channel.basic_get(queue)
    assert message is not None
    return channel, message


def break_connection(channel: Any) -> None:
    """Do what kombu does to a broken connection before it closes the remaining channels."""
    channel.connection.client = None


def queued_ids(server: redis.Redis, queue: str) -> list[str]:
    """Return the ids of the tasks in a queue, the next one first."""
    found: Any = server.lrange(queue, 0, -1)
    return [json.loads(message)["headers"]["id"] for message in reversed(found)]


def test_channel_of_the_app_is_a_redis_channel(app: Celery):
    channel, message = receive(app)

    message.ack()
    channel.close()

    assert isinstance(channel, RedisChannel)


def test_message_of_a_broken_connection_is_not_acknowledged_and_nothing_raises(app: Celery):
    channel, message = receive(app)
    break_connection(channel)

    message.ack()
    channel.basic_reject(message.delivery_tag, requeue=True)
    channel.close()

    assert channel.closed


def test_unstarted_messages_are_requeued_at_a_graceful_shutdown(app: Celery, server: redis.Redis):
    channel, _ = receive(app)

    channel.close()

    assert server.llen(NODES) == 1


def test_requeued_task_messages_keep_their_order_and_come_first(bench: Bench, app: Celery, server: redis.Redis):
    dispatch = Dispatch(app, bench.coordinator.dispatch.bus)
    dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM", "LLM:0") for _ in range(3)])
    before = queued_ids(server, NODES)
    channel, _ = receive(app)
    channel.basic_get(NODES)

    channel.close()

    assert queued_ids(server, NODES) == before


def test_unacknowledged_task_message_is_not_recorded_in_redis(app: Celery, server: redis.Redis):
    channel, message = receive(app)

    unacknowledged = server.keys("unacked*")
    message.ack()
    channel.close()

    assert unacknowledged == []
    assert server.llen(NODES) == 0


def test_start_message_is_recorded_in_redis_until_it_is_acknowledged(bench: Bench, app: Celery, server: redis.Redis):
    Dispatch(app, bench.coordinator.dispatch.bus).advance(new_id())
    channel, message = receive(app, RUNS)

    unacknowledged = server.hlen("unacked")
    message.ack()
    channel.close()

    assert unacknowledged == 1
    assert server.hlen("unacked") == 0


def test_rejected_task_message_is_requeued_as_the_last(bench: Bench, app: Celery, server: redis.Redis):
    Dispatch(app, bench.coordinator.dispatch.bus).enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM", "LLM:0")])
    first, second = queued_ids(server, NODES)
    channel, message = receive(app)

    message.reject(requeue=True)
    channel.close()

    assert queued_ids(server, NODES) == [second, first]


def test_channel_holds_at_most_its_prefetch_count(app: Celery):
    channel, message = receive(app)
    channel.basic_qos(prefetch_count=1)

    while_it_has_one = channel.qos.can_consume()
    message.ack()

    assert not while_it_has_one
    assert channel.qos.can_consume()
    channel.close()


def test_channel_uses_one_client_for_all_commands(app: Celery):
    channel, _ = receive(app)

    with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
        assert first is second
    assert channel.client is not first  # which waits for messages, on a connection of its own
    channel.close()


# -- fetching several messages ---------------------------------------------------------------------------------------
@pytest.fixture
def open_consumer(bench: Bench) -> Iterator[Callable[..., "LimitedConsumer"]]:
    with ExitStack() as opened:

        def consume(room: int, queue: str = NODES) -> LimitedConsumer:
            app = opened.enter_context(make_app(bench.redis_url))
            return LimitedConsumer(opened.enter_context(app.connection_for_read()), room, queue)

        yield consume


class LimitedConsumer:
    """A consumer with room for `room` messages, which acknowledges nothing by itself."""

    def __init__(self, connection: Any, room: int, queue: str) -> None:
        self._connection = connection
        self.channel = connection.default_channel
        self.messages: list[Message] = []
        self.channel.basic_qos(prefetch_count=room)
        queues = [each for each in make_app("redis://").conf.task_queues if each.name == queue]
        consumer = Consumer(self.channel, queues, on_message=self.messages.append, accept=["json"])
        consumer.consume()

    def receive_ids(self, number: int) -> list[str]:
        """Wait until `number` messages were received; return the ids of their tasks."""
        while len(self.messages) < number:
            self._connection.drain_events(timeout=5)
        return [message.headers["id"] for message in self.messages]

    def receives_nothing_more(self) -> bool:
        """Wait a moment; return whether nothing was received."""
        with pytest.raises(TimeoutError):
            self._connection.drain_events(timeout=0.2)
        return True


def commands(server: redis.Redis, name: str, count: str = "calls") -> int:
    stats: Any = server.info("commandstats")
    return stats.get(f"cmdstat_{name}", {}).get(count, 0)


def fill_queue(bench: Bench, app: Celery, server: redis.Redis, number: int) -> list[str]:
    """Fill the queue up to `number` task messages, with the one of the fixture `app`; return their ids in order."""
    Dispatch(app, bench.coordinator.dispatch.bus).enqueue_nodes(
        [TaskMessage(new_id(), new_id(), "LLM", "LLM:0") for _ in range(number - 1)]
    )
    return queued_ids(server, NODES)


def test_backlog_of_task_messages_is_fetched_in_order_by_few_commands(
    bench: Bench, app: Celery, server: redis.Redis, open_consumer: Callable[..., LimitedConsumer]
):
    expected, before = fill_queue(bench, app, server, 60), commands(server, "brpop") + commands(server, "blmpop")

    found = open_consumer(100).receive_ids(60)

    assert found == expected
    assert commands(server, "brpop") + commands(server, "blmpop") - before <= 10


def test_consumer_fetches_no_more_messages_than_its_prefetch_count(
    bench: Bench, app: Celery, server: redis.Redis, open_consumer: Callable[..., LimitedConsumer]
):
    expected, consumer = fill_queue(bench, app, server, 30), open_consumer(9)

    found = consumer.receive_ids(9)

    assert consumer.receives_nothing_more()
    assert (found, server.llen(NODES)) == (expected[:9], 21)
    consumer.messages.pop().ack()
    assert consumer.receive_ids(9)[-1] == expected[9]
    assert server.llen(NODES) == 20


class RecordingLoop:
    """A replacement for Celery's event loop that records what was scheduled."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []
        self.later: list[tuple[float, Callable[[], object]]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        self.later.append((delay, callback))


def test_consumer_fetches_no_more_messages_than_the_capacity_of_its_threads(
    bench: Bench, app: Celery, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    expected, loop, callbacks = fill_queue(bench, app, server, 30), RecordingLoop(), list[Callable[[], object]]()
    monkeypatch.setattr(redis_transport, "get_event_loop", lambda: loop)
    room = 5

    def capacity(call: Callable[[], object]) -> int:
        callbacks.append(call)
        return max(0, room - len(consumer.messages))

    with make_app(bench.redis_url, capacity=capacity) as limited, limited.connection_for_read() as connection:
        consumer = LimitedConsumer(connection, 100, NODES)
        assert consumer.receive_ids(5) == expected[:5]
        assert consumer.receives_nothing_more()
        assert server.llen(NODES) == 25
        assert consumer.receives_nothing_more()
        # one later check is scheduled, and after it the next one
        assert [delay for delay, _ in loop.later] == [CAPACITY_CHECK_INTERVAL]
        loop.later[0][1]()
        assert consumer.receives_nothing_more()
        assert len(loop.later) == 2

        callbacks[-1]()
        assert len(loop.soon) == 1  # the callback schedules a check at once

        room = 12
        assert consumer.receive_ids(12) == expected[:12]
        assert consumer.receives_nothing_more()


def test_start_messages_are_fetched_regardless_of_the_capacity(
    bench: Bench, app: Celery, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(redis_transport, "get_event_loop", RecordingLoop)
    Dispatch(app, bench.coordinator.dispatch.bus).advance(new_id())

    with make_app(bench.redis_url, capacity=lambda call: 0) as limited, limited.connection_for_read() as connection:
        assert len(LimitedConsumer(connection, 100, RUNS).receive_ids(1)) == 1


def test_few_task_messages_are_shared_among_processes(
    bench: Bench, app: Celery, server: redis.Redis, open_consumer: Callable[..., LimitedConsumer]
):
    fill_queue(bench, app, server, 6)
    consumers = [open_consumer(100) for _ in range(3)]

    for consumer in consumers:
        consumer.receive_ids(1)

    assert sum(len(consumer.messages) for consumer in consumers) + server.llen(NODES) == 6
    assert all(1 <= len(consumer.messages) <= 2 for consumer in consumers)


def test_messages_fetched_together_are_requeued_in_their_order(
    bench: Bench, app: Celery, server: redis.Redis, open_consumer: Callable[..., LimitedConsumer]
):
    expected, consumer = fill_queue(bench, app, server, 12), open_consumer(8)
    consumer.receive_ids(8)
    lookups = commands(server, "hget")

    consumer.channel.close()

    assert queued_ids(server, NODES) == expected
    assert commands(server, "hget") == lookups, "a round trip for each message would make a shutdown slow"


def test_messages_are_fetched_one_by_one_after_the_server_refused_blmpop(
    bench: Bench,
    app: Celery,
    server: redis.Redis,
    open_consumer: Callable[..., LimitedConsumer],
    monkeypatch: pytest.MonkeyPatch,
):
    expected, consumer = fill_queue(bench, app, server, 8), open_consumer(100)
    refused = commands(server, "blmpop", "rejected_calls")
    server.execute_command("ACL SETUSER default -blmpop")
    try:
        found = consumer.receive_ids(8)
    finally:
        server.execute_command("ACL SETUSER default +blmpop")

    assert found == expected
    assert commands(server, "blmpop", "rejected_calls") - refused == 1


def test_message_is_received_though_several_were_to_be_requested(
    bench: Bench,
    app: Celery,
    server: redis.Redis,
    open_consumer: Callable[..., LimitedConsumer],
    monkeypatch: pytest.MonkeyPatch,
):
    def request_one(channel: RedisChannel, timeout: Any = None) -> None:
        kombu_redis.Channel._brpop_start(channel, timeout)
        channel._requested = 4

    monkeypatch.setattr(RedisChannel, "_brpop_start", request_one)
    expected = fill_queue(bench, app, server, 3)

    assert open_consumer(100).receive_ids(3) == expected


def test_reply_of_another_command_closes_the_connection_and_later_messages_are_received(
    bench: Bench, app: Celery, server: redis.Redis, open_consumer: Callable[..., LimitedConsumer]
):
    expected, consumer = fill_queue(bench, app, server, 3), open_consumer(100)
    assert consumer.receive_ids(1) == expected[:1]
    connection = consumer.channel.client.connection
    consumer.channel.client.parse_response = lambda *_, **__: [b"nodes", 1]

    with pytest.raises(redis.ConnectionError, match="answered a request for messages with"):
        consumer.receive_ids(2)

    assert connection._sock is None
    del consumer.channel.client.parse_response
    server.delete(NODES)
    later = fill_queue(bench, app, server, 2)
    assert consumer.receive_ids(2)[1:] == later


def test_messages_of_the_runs_queue_are_fetched_one_by_one(
    bench: Bench, app: Celery, server: redis.Redis, open_consumer: Callable[..., LimitedConsumer]
):
    for _ in range(5):
        Dispatch(app, bench.coordinator.dispatch.bus).advance(new_id())
    before = commands(server, "blmpop")
    consumer = open_consumer(100, RUNS)

    consumer.receive_ids(5)

    assert commands(server, "blmpop") == before
    assert server.hlen("unacked") == 5
