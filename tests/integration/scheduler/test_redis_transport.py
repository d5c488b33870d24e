"""Hints are not written down twice, and a connection to the broker that breaks takes nothing with it."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from celery import Celery
from kombu.message import Message
from kombu.messaging import Consumer

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
    Dispatch(app, bench.coordinator.dispatch.bus).enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM")])
    yield app
    app.close()


@pytest.fixture
def server(bench: Bench) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(bench.redis_url) as client:
        yield client


def taken(app: Celery, queue: str = NODES) -> tuple[Any, Message]:
    """A channel, and the message that came over it and is being worked on."""
    channel = app.connection_for_read().channel()
    message = channel.basic_get(queue)
    assert message is not None
    return channel, message


def cut(channel: Any) -> None:
    """What kombu does to a connection that has broken, before it closes the channels that are left."""
    channel.connection.client = None


def in_line(server: redis.Redis, queue: str) -> list[str]:
    """Ids of the tasks in a queue, the next one first."""
    found: Any = server.lrange(queue, 0, -1)
    return [json.loads(message)["headers"]["id"] for message in reversed(found)]


def test_channels_are_ours(app: Celery):
    channel, message = taken(app)

    message.ack()
    channel.close()

    assert isinstance(channel, RedisChannel)


def test_message_of_a_broken_connection_is_not_acknowledged_and_nothing_raises(app: Celery):
    channel, message = taken(app)
    cut(channel)

    message.ack()
    channel.basic_reject(message.delivery_tag, requeue=True)
    channel.close()

    assert channel.closed


def test_what_was_not_begun_goes_back_when_a_process_ends_in_good_order(app: Celery, server: redis.Redis):
    channel, _ = taken(app)

    channel.close()

    assert server.llen(NODES) == 1


def test_requeued_task_messages_keep_their_order_and_come_first(bench: Bench, app: Celery, server: redis.Redis):
    dispatch = Dispatch(app, bench.coordinator.dispatch.bus)
    dispatch.enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM") for _ in range(3)])
    before = in_line(server, NODES)
    channel, _ = taken(app)
    channel.basic_get(NODES)

    channel.close()

    assert in_line(server, NODES) == before


def test_unacknowledged_task_message_is_not_recorded_in_redis(app: Celery, server: redis.Redis):
    channel, message = taken(app)

    in_hand = server.keys("unacked*")
    message.ack()
    channel.close()

    assert in_hand == []
    assert server.llen(NODES) == 0


def test_a_start_of_another_service_is_kept_until_it_is_done(bench: Bench, app: Celery, server: redis.Redis):
    Dispatch(app, bench.coordinator.dispatch.bus).advance(new_id())
    channel, message = taken(app, RUNS)

    in_hand = server.hlen("unacked")
    message.ack()
    channel.close()

    assert in_hand == 1
    assert server.hlen("unacked") == 0


def test_rejected_task_message_is_requeued_as_the_last(bench: Bench, app: Celery, server: redis.Redis):
    Dispatch(app, bench.coordinator.dispatch.bus).enqueue_nodes([TaskMessage(new_id(), new_id(), "LLM")])
    first, second = in_line(server, NODES)
    channel, message = taken(app)

    message.reject(requeue=True)
    channel.close()

    assert in_line(server, NODES) == [second, first]


def test_channel_holds_at_most_its_prefetch_count(app: Celery):
    channel, message = taken(app)
    channel.basic_qos(prefetch_count=1)

    while_it_has_one = channel.qos.can_consume()
    message.ack()

    assert not while_it_has_one
    assert channel.qos.can_consume()
    channel.close()


def test_connections_are_borrowed_by_one_client_and_not_by_one_for_each_command(app: Celery):
    channel, _ = taken(app)

    with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
        assert first is second
    assert channel.client is not first  # which waits for messages, on a connection of its own
    channel.close()


# -- taking several --------------------------------------------------------------------------------------------------
@pytest.fixture
def consuming(bench: Bench) -> Iterator[Callable[..., "Consuming"]]:
    with ExitStack() as opened:

        def consume(room: int, queue: str = NODES) -> Consuming:
            app = opened.enter_context(make_app(bench.redis_url))
            return Consuming(opened.enter_context(app.connection_for_read()), room, queue)

        yield consume


class Consuming:
    """A consumer of hints with room for so many, which acknowledges nothing by itself."""

    def __init__(self, connection: Any, room: int, queue: str) -> None:
        self._connection = connection
        self.channel = connection.default_channel
        self.messages: list[Message] = []
        self.channel.basic_qos(prefetch_count=room)
        queues = [each for each in make_app("redis://").conf.task_queues if each.name == queue]
        consumer = Consumer(self.channel, queues, on_message=self.messages.append, accept=["json"])
        consumer.consume()

    def take(self, number: int) -> list[str]:
        """Ids of the tasks that have come once there are so many."""
        while len(self.messages) < number:
            self._connection.drain_events(timeout=5)
        return [message.headers["id"] for message in self.messages]

    def finds_nothing_more(self) -> bool:
        """Whether nothing comes for a moment."""
        with pytest.raises(TimeoutError):
            self._connection.drain_events(timeout=0.2)
        return True


def commands(server: redis.Redis, name: str, count: str = "calls") -> int:
    stats: Any = server.info("commandstats")
    return stats.get(f"cmdstat_{name}", {}).get(count, 0)


def hinted(bench: Bench, app: Celery, server: redis.Redis, number: int) -> list[str]:
    """So many hints in line, the one that the app has sent already among them; their ids, the next one first."""
    Dispatch(app, bench.coordinator.dispatch.bus).enqueue_nodes(
        [TaskMessage(new_id(), new_id(), "LLM") for _ in range(number - 1)]
    )
    return in_line(server, NODES)


def test_backlog_of_task_messages_is_fetched_in_order_by_few_commands(
    bench: Bench, app: Celery, server: redis.Redis, consuming: Callable[..., Consuming]
):
    expected, before = hinted(bench, app, server, 60), commands(server, "brpop") + commands(server, "blmpop")

    found = consuming(100).take(60)

    assert found == expected
    assert commands(server, "brpop") + commands(server, "blmpop") - before <= 10


def test_no_more_is_taken_than_there_is_room_for(
    bench: Bench, app: Celery, server: redis.Redis, consuming: Callable[..., Consuming]
):
    expected, consumer = hinted(bench, app, server, 30), consuming(9)

    found = consumer.take(9)

    assert consumer.finds_nothing_more()
    assert (found, server.llen(NODES)) == (expected[:9], 21)
    consumer.messages.pop().ack()
    assert consumer.take(9)[-1] == expected[9]
    assert server.llen(NODES) == 20


class LoopOfCelery:
    """Stands where Celery's event loop is."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []
        self.later: list[tuple[float, Callable[[], object]]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        self.later.append((delay, callback))


def test_no_more_is_taken_than_the_threads_have_room_for(
    bench: Bench, app: Celery, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    expected, loop, told = hinted(bench, app, server, 30), LoopOfCelery(), list[Callable[[], object]]()
    monkeypatch.setattr(redis_transport, "get_event_loop", lambda: loop)
    room = 5

    def left(call: Callable[[], object]) -> int:
        told.append(call)
        return max(0, room - len(consumer.messages))

    with make_app(bench.redis_url, capacity=left) as limited, limited.connection_for_read() as connection:
        consumer = Consuming(connection, 100, NODES)
        assert consumer.take(5) == expected[:5]
        assert consumer.finds_nothing_more()
        assert server.llen(NODES) == 25
        # it looks again by itself, and one time is enough
        assert [delay for delay, _ in loop.later] == [CAPACITY_CHECK_INTERVAL]

        told[-1]()
        assert len(loop.soon) == 1  # and at once, when it is told

        room = 12
        assert consumer.take(12) == expected[:12]
        assert consumer.finds_nothing_more()


def test_start_messages_are_fetched_regardless_of_the_capacity(
    bench: Bench, app: Celery, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(redis_transport, "get_event_loop", LoopOfCelery)
    Dispatch(app, bench.coordinator.dispatch.bus).advance(new_id())

    with make_app(bench.redis_url, capacity=lambda call: 0) as limited, limited.connection_for_read() as connection:
        assert len(Consuming(connection, 100, RUNS).take(1)) == 1


def test_few_task_messages_are_shared_among_processes(
    bench: Bench, app: Celery, server: redis.Redis, consuming: Callable[..., Consuming]
):
    hinted(bench, app, server, 6)
    consumers = [consuming(100) for _ in range(3)]

    for consumer in consumers:
        consumer.take(1)

    assert sum(len(consumer.messages) for consumer in consumers) + server.llen(NODES) == 6
    assert all(1 <= len(consumer.messages) <= 2 for consumer in consumers)


def test_what_was_taken_together_and_not_begun_goes_back_in_its_old_order(
    bench: Bench, app: Celery, server: redis.Redis, consuming: Callable[..., Consuming]
):
    expected, consumer = hinted(bench, app, server, 12), consuming(8)
    consumer.take(8)

    consumer.channel.close()

    assert in_line(server, NODES) == expected


def test_a_server_that_gives_one_message_at_a_time_is_asked_for_one_at_a_time(
    bench: Bench, app: Celery, server: redis.Redis, consuming: Callable[..., Consuming], monkeypatch: pytest.MonkeyPatch
):
    expected, consumer = hinted(bench, app, server, 8), consuming(100)
    refused = commands(server, "blmpop", "rejected_calls")
    server.execute_command("ACL SETUSER default -blmpop")
    try:
        found = consumer.take(8)
    finally:
        server.execute_command("ACL SETUSER default +blmpop")

    assert found == expected
    assert commands(server, "blmpop", "rejected_calls") - refused == 1


def test_other_messages_come_one_at_a_time(
    bench: Bench, app: Celery, server: redis.Redis, consuming: Callable[..., Consuming]
):
    for _ in range(5):
        Dispatch(app, bench.coordinator.dispatch.bus).advance(new_id())
    before = commands(server, "blmpop")
    consumer = consuming(100, RUNS)

    consumer.take(5)

    assert commands(server, "blmpop") == before
    assert server.hlen("unacked") == 5
