"""Messages that cannot be executed are dropped with a log line that names them."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.messaging.consumer import Consumer
from scheduler.messaging.redis_transport import RedisChannel


class FakeMessage:
    """A message with headers; records that it was rejected."""

    def __init__(self, headers: Any, body: Any = b"[]") -> None:
        self.headers, self.body = headers, body
        self.delivery_info = {"routing_key": "nodes"}
        self.acknowledged = False

    def reject_log_error(self, *_: Any) -> None:
        self.acknowledged = True


def dropped(message: FakeMessage) -> Any:
    """Drop a message as one without a task; return its log line."""
    consumer: Any = Consumer.__new__(Consumer)
    consumer.connection_errors = ()
    with capture_logs() as lines:
        consumer.on_unknown_message(None, message)
    (line,) = lines
    return line


def test_dropped_message_is_logged_with_its_task_and_id_and_rejected():
    message = FakeMessage({"task": "easel.run", "id": "m1"})

    line = dropped(message)

    assert (line["event"], line["task"], line["id"], line["bytes"]) == ("message_malformed", "easel.run", "m1", 2)
    assert message.acknowledged


@pytest.mark.parametrize("headers", [None, "text", ["task"], {"task": 5, "id": None}])
def test_dropped_message_with_unreadable_headers_is_logged_without_a_task(headers: Any):
    line = dropped(FakeMessage(headers))

    assert (line["task"], line["id"]) == ("", "")


def test_dropped_message_with_a_body_of_another_type_is_logged_with_size_0():
    assert dropped(FakeMessage({}, body={"a": 1}))["bytes"] == 0


class BrokenConnection(Exception):
    """The broker is away."""


RAW = json.dumps(
    {"body": "W10=", "headers": {}, "properties": {"delivery_tag": "t", "delivery_info": {"routing_key": "nodes"}}}
).encode()


def channel_on(deliver: Any, errors: Sequence[type[Exception]] = (BrokenConnection, KeyError)) -> Any:
    channel: Any = RedisChannel.__new__(RedisChannel)
    channel.connection = SimpleNamespace(_deliver=deliver)
    channel.connection_errors = tuple(errors)
    return channel


def failing(error: Exception) -> Any:
    def deliver(*_: Any) -> None:
        raise error

    return deliver


@pytest.mark.parametrize("error", [ValueError("bad"), KeyError("properties")])
def test_message_that_fails_at_its_delivery_is_dropped(error: Exception):
    with capture_logs() as lines:
        channel_on(failing(error))._deliver_message(RAW, "nodes")

    assert [line["event"] for line in lines] == ["message_malformed"]


def test_broken_connection_at_a_delivery_is_not_taken_for_a_malformed_message():
    with capture_logs() as lines, pytest.raises(BrokenConnection):
        channel_on(failing(BrokenConnection()))._deliver_message(RAW, "nodes")

    assert lines == []
