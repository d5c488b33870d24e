"""A connection to the broker that breaks takes nothing with it."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from kombu.message import Message

from scheduler.broker import NODES, make_app
from scheduler.dispatch import Dispatch
from scheduler.redis_transport import Channel
from store.ids import new_id
from store.runs import Hint
from tests.integration.engine import Bench


@pytest.fixture
def app(bench: Bench) -> Iterator[Celery]:
    app = make_app(bench.redis_url)
    Dispatch(app, bench.coordinator.dispatch.bus).hint([Hint(new_id(), new_id(), "LLM")])
    yield app
    app.close()


def taken(app: Celery) -> tuple[Any, Message]:
    """A channel, and the message that came over it and is being worked on."""
    channel = app.connection_for_read().channel()
    message = channel.basic_get(NODES)
    assert message is not None
    return channel, message


def cut(channel: Any) -> None:
    """What kombu does to a connection that has broken, before it closes the channels that are left."""
    channel.connection.client = None


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


def test_what_was_not_begun_goes_back_when_a_process_ends_in_good_order(app: Celery, bench: Bench):
    channel, _ = taken(app)

    channel.close()

    with redis.Redis.from_url(bench.redis_url) as client:
        assert client.llen(NODES) == 1
