"""Malformed messages among valid ones: each costs one log line, and nothing else."""

import json
import pickle
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import redis

from scheduler.messaging.celery_app import ADVANCE, EXECUTE, NODES, RUNS
from scheduler.messaging.celery_message import encode_message
from store.primitives.ids import new_id
from tests.faults.cluster import LONG_LEASES, Cluster

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUN_COUNT = 12
RECOVERY_TIME = 90.0  # seconds within which all runs end
SECRET = "a-secret-of-somebody"

Envelope = dict[str, Any]


def with_change(change: Callable[[Envelope], object]) -> Callable[[str, str], bytes]:
    """Make a message as Celery writes it, with one change."""

    def encode(task: str, queue: str) -> bytes:
        message: Envelope = json.loads(encode_message(task, (str(new_id()), str(new_id())), queue))
        change(message)
        return json.dumps(message).encode()

    return encode


def with_body(value: Any) -> Callable[[str, str], bytes]:
    """Make a message with this body."""
    return with_change(lambda message: message.update(body=b64encode(json.dumps(value).encode()).decode()))


def raw(data: bytes) -> Callable[[str, str], bytes]:
    """Return these bytes as a message."""
    return lambda task, queue: data


DROPPED: Mapping[str, Callable[[str, str], bytes]] = {
    "garbage": raw(b"garbage " + SECRET.encode()),
    "nothing": raw(b""),
    "no utf-8": raw(b"\xff\xfe\x80"),
    "a list": raw(b"[1, 2]"),
    "null": raw(b"null"),
    "a number": raw(b"42"),
    "a text": raw(b'"x"'),
    "deep": raw(b"[" * 5_000 + b"]" * 5_000),
    "no properties": with_change(lambda message: message.pop("properties")),
    "properties that are a list": with_change(lambda message: message.update(properties=[1])),
    "no delivery tag": with_change(lambda message: message["properties"].pop("delivery_tag")),
    "a delivery tag that is a list": with_change(lambda message: message["properties"].update(delivery_tag=[1])),
    "no way by which it came": with_change(lambda message: message["properties"].pop("delivery_info")),
    "headers that are a list": with_change(lambda message: message.update(headers=[1])),
    "no headers": with_change(lambda message: message.pop("headers")),
    "an unknown encoding": with_change(lambda message: message["properties"].update(body_encoding="rot13")),
    "no base64": with_change(lambda message: message.update(body="%")),
    "no body": with_change(lambda message: message.pop("body")),
    "a body of one member": with_body([1, SECRET][:1]),
    "a body that is null": with_body(None),
    "a body that is an object": with_body({}),
    "a body that is a text": with_body(SECRET),
    "a body that is deep": with_body(json.loads("[" * 500 + "]" * 500)),
    "keywords that are a list": with_body([[], [1], {}]),
    "an id that is a list": with_change(lambda message: message["headers"].update(id=[SECRET])),
    "an id that is an object": with_change(lambda message: message["headers"].update(id={})),
    "a task that is a list": with_change(lambda message: message["headers"].update(task=[1])),
    "an unknown task": with_change(lambda message: message["headers"].update(task="os.system")),
    "no task": with_change(lambda message: message["headers"].pop("task")),
    "a pickle": with_change(
        lambda message: message.update(
            {"content-type": "application/x-python-serialize", "body": b64encode(pickle.dumps([[], {}, {}])).decode()}
        )
    ),
    "an unknown compression": with_change(lambda message: message["headers"].update(compression="none of ours")),
    "a time that is none": with_change(lambda message: message["headers"].update(eta="tomorrow")),
}
PROCESSED_WITHOUT_EFFECT: Mapping[str, Callable[[str, str], bytes]] = {
    "too few arguments": with_body([[], {}, {}]),
    "arguments that are no ids": with_body([["x", "y"], {}, {}]),
    "arguments that are null": with_body([[None, None], {}, {}]),
    "an expiry that is none": with_change(lambda message: message["headers"].update(expires="soon")),
}


@pytest.mark.parametrize(("program", "queue", "task"), [("worker", NODES, EXECUTE), ("scheduler", RUNS, ADVANCE)])
def test_malformed_messages_are_dropped_and_all_others_are_processed(
    cluster: Cluster, program: str, queue: str, task: str
):
    shapes = {**DROPPED, **PROCESSED_WITHOUT_EFFECT}
    worker = cluster.start("worker", EASEL_INLINE_ADVANCE="0", **LONG_LEASES)
    scheduler = cluster.start("scheduler")
    process = worker if program == "worker" else scheduler
    log = cluster.home / f"{cluster.processes.index(process):02}-{program}.log"
    with redis.Redis.from_url(cluster.redis_url) as client:
        for shape in shapes.values():  # many at once: a worker receives several with one command
            client.lpush(queue, shape(task, queue))
        cluster.start_runs(RUN_COUNT)
        cluster.wait_until_all_succeeded(RUN_COUNT, seconds=RECOVERY_TIME)
        for name, shape in shapes.items():  # and one after another
            client.lpush(queue, shape(task, queue))
            cluster.wait_for(lambda: client.llen(queue) == 0, 30)
            assert process.poll() is None, f"{name} has ended the {program}\n{cluster.logs()}"
        cluster.wait_for(lambda: log.read_text().count("message_malformed") >= 2 * len(DROPPED), 30)
        cluster.wait_for(lambda: client.hlen("unacked") == 0, 30)  # none of them stays unacknowledged

    assert SECRET not in log.read_text()
    assert (worker.poll(), scheduler.poll()) == (None, None)
    cluster.assert_everything_happened_once(RUN_COUNT)
