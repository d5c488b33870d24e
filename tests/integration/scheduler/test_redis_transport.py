"""Hints are not written down twice, and a connection to the broker that breaks takes nothing with it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from kombu.message import Message

from scheduler.broker import NODES, RUNS, make_app
from scheduler.dispatch import Dispatch
from scheduler.redis_transport import Channel
from store.activating import Hint
from store.ids import new_id
from tests.integration.engine import Bench


@pytest.fixture
def app(bench: Bench) -> Iterator[Celery]:
    app = make_app(bench.redis_url)
    Dispatch(app, bench.coordinator.dispatch.bus).hint([Hint(new_id(), new_id(), "LLM")])
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

    assert isinstance(channel, Channel)


def test_a_message_whose_connection_has_broken_is_acknowledged_by_nobody_and_nothing_raises(app: Celery):
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


def test_hints_go_back_in_their_old_order_and_before_what_came_later(bench: Bench, app: Celery, server: redis.Redis):
    dispatch = Dispatch(app, bench.coordinator.dispatch.bus)
    dispatch.hint([Hint(new_id(), new_id(), "LLM") for _ in range(3)])
    before = in_line(server, NODES)
    channel, _ = taken(app)
    channel.basic_get(NODES)

    channel.close()

    assert in_line(server, NODES) == before


def test_a_hint_in_hand_is_written_down_nowhere(app: Celery, server: redis.Redis):
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


def test_who_takes_nothing_more_gives_a_hint_back_behind_all_others(bench: Bench, app: Celery, server: redis.Redis):
    Dispatch(app, bench.coordinator.dispatch.bus).hint([Hint(new_id(), new_id(), "LLM")])
    first, second = in_line(server, NODES)
    channel, message = taken(app)

    message.reject(requeue=True)
    channel.close()

    assert in_line(server, NODES) == [second, first]


def test_a_channel_holds_no_more_hints_than_it_may(app: Celery):
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
