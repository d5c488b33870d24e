"""A hint that we write ourselves is the message that Celery would have sent."""

import base64
import json
from typing import Any

from celery import Celery

from scheduler.messaging.celery_app import ADVANCE, EXECUTE, NODES, RUNS
from scheduler.messaging.celery_message import encode_message
from store.primitives.ids import new_id

OF_EACH = ("id", "root_id", "correlation_id", "delivery_tag", "reply_to", "origin")
IDS = (str(new_id()), str(new_id()))


def sent_by_celery(queue: str, task: str, args: tuple[str, ...], **options: Any) -> dict[str, Any]:
    """What Celery puts into a list, for transports without a protocol of their own."""
    app = Celery(broker="memory://")
    with app.connection_for_write() as connection:
        app.send_task(task, args=args, queue=queue, connection=connection, ignore_result=True, **options)
        channel: Any = connection.channel()
        message = channel.basic_get(queue)
    assert message is not None
    return message._raw


def without(message: Any, names: tuple[str, ...]) -> Any:
    """A message without what differs from one to the next."""
    if not isinstance(message, dict):
        return message
    return {name: without(value, names) for name, value in message.items() if name not in names}  # pyright: ignore[reportUnknownVariableType]


def read(message: dict[str, Any]) -> dict[str, Any]:
    return message | {"body": json.loads(base64.b64decode(message["body"]))}


def test_encoded_message_equals_celerys_own_in_every_field():
    ours = json.loads(encode_message(EXECUTE, IDS, NODES, "node:LLM"))

    theirs = sent_by_celery(NODES, EXECUTE, IDS, shadow="node:LLM", argsrepr=repr(IDS), kwargsrepr="{}")

    shown_again = ("argsrepr", "kwargsrepr")  # Celery says these a second time, where nobody reads them
    theirs["properties"] = without(theirs["properties"], shown_again)
    assert without(read(ours), OF_EACH) == without(read(theirs), OF_EACH)
    assert ours["properties"].keys() == theirs["properties"].keys()
    assert ours["headers"].keys() == theirs["headers"].keys()


def test_each_message_is_a_task_of_its_own_without_a_reply_queue():
    first, second = (json.loads(encode_message(EXECUTE, IDS, NODES)) for _ in range(2))

    assert first["headers"]["id"] == first["headers"]["root_id"] == first["properties"]["correlation_id"]
    assert first["headers"]["id"] != second["headers"]["id"]
    assert first["properties"]["delivery_tag"] != second["properties"]["delivery_tag"]
    assert first["headers"]["ignore_result"]


def test_it_names_the_queue_in_which_it_lies_so_that_it_can_be_put_back():
    message = json.loads(encode_message(ADVANCE, IDS[:1], RUNS))

    assert message["properties"]["delivery_info"] == {"exchange": "", "routing_key": RUNS}
