"""Messages that nobody can carry out, among those that somebody can: each costs its own log line, and nothing else."""

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

TURNS = 12
PROMISED = 90.0  # seconds within which all runs end by themselves
SECRET = "a-secret-of-somebody"

Envelope = dict[str, Any]


def changed(change: Callable[[Envelope], object]) -> Callable[[str, str], bytes]:
    """A message as Celery writes it, but for one thing."""

    def made(task: str, queue: str) -> bytes:
        message: Envelope = json.loads(encode_message(task, (str(new_id()), str(new_id())), queue))
        change(message)
        return json.dumps(message).encode()

    return made


def body(value: Any) -> Callable[[str, str], bytes]:
    """A message with this in its body."""
    return changed(lambda message: message.update(body=b64encode(json.dumps(value).encode()).decode()))


def raw(data: bytes) -> Callable[[str, str], bytes]:
    """No message at all."""
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
    "no properties": changed(lambda message: message.pop("properties")),
    "properties that are a list": changed(lambda message: message.update(properties=[1])),
    "no delivery tag": changed(lambda message: message["properties"].pop("delivery_tag")),
    "a delivery tag that is a list": changed(lambda message: message["properties"].update(delivery_tag=[1])),
    "no way by which it came": changed(lambda message: message["properties"].pop("delivery_info")),
    "headers that are a list": changed(lambda message: message.update(headers=[1])),
    "no headers": changed(lambda message: message.pop("headers")),
    "an unknown encoding": changed(lambda message: message["properties"].update(body_encoding="rot13")),
    "no base64": changed(lambda message: message.update(body="%")),
    "no body": changed(lambda message: message.pop("body")),
    "a body of one member": body([1, SECRET][:1]),
    "a body that is null": body(None),
    "a body that is an object": body({}),
    "a body that is a text": body(SECRET),
    "a body that is deep": body(json.loads("[" * 500 + "]" * 500)),
    "keywords that are a list": body([[], [1], {}]),
    "an id that is a list": changed(lambda message: message["headers"].update(id=[SECRET])),
    "an id that is an object": changed(lambda message: message["headers"].update(id={})),
    "a task that is a list": changed(lambda message: message["headers"].update(task=[1])),
    "an unknown task": changed(lambda message: message["headers"].update(task="os.system")),
    "no task": changed(lambda message: message["headers"].pop("task")),
    "a pickle": changed(
        lambda message: message.update(
            {"content-type": "application/x-python-serialize", "body": b64encode(pickle.dumps([[], {}, {}])).decode()}
        )
    ),
    "an unknown compression": changed(lambda message: message["headers"].update(compression="none of ours")),
    "a time that is none": changed(lambda message: message["headers"].update(eta="tomorrow")),
}
CARRIED_OUT_IN_VAIN: Mapping[str, Callable[[str, str], bytes]] = {
    "too few arguments": body([[], {}, {}]),
    "arguments that are no ids": body([["x", "y"], {}, {}]),
    "arguments that are null": body([[None, None], {}, {}]),
    "an expiry that is none": changed(lambda message: message["headers"].update(expires="soon")),
}


@pytest.mark.parametrize(("program", "queue", "task"), [("worker", NODES, EXECUTE), ("scheduler", RUNS, ADVANCE)])
def test_messages_that_nobody_understands_are_dropped_and_all_others_are_carried_out(
    cluster: Cluster, program: str, queue: str, task: str
):
    shapes = {**DROPPED, **CARRIED_OUT_IN_VAIN}
    worker = cluster.start("worker", EASEL_INLINE_ADVANCE="0", **LONG_LEASES)
    scheduler = cluster.start("scheduler")
    process = worker if program == "worker" else scheduler
    log = cluster.home / f"{cluster.processes.index(process):02}-{program}.log"
    with redis.Redis.from_url(cluster.redis_url) as client:
        for shape in shapes.values():  # many at once: a worker takes several with one command
            client.lpush(queue, shape(task, queue))
        cluster.begin(TURNS)
        cluster.wait_until_all_have_succeeded(TURNS, seconds=PROMISED)
        for name, shape in shapes.items():  # and one after another
            client.lpush(queue, shape(task, queue))
            cluster.wait_for(lambda: client.llen(queue) == 0, 30)
            assert process.poll() is None, f"{name} has ended the {program}\n{cluster.logs()}"
        cluster.wait_for(lambda: log.read_text().count("message_malformed") >= 2 * len(DROPPED), 30)
        cluster.wait_for(lambda: client.hlen("unacked") == 0, 30)  # none of them is held for ever

    assert SECRET not in log.read_text()
    assert (worker.poll(), scheduler.poll()) == (None, None)
    cluster.assert_everything_happened_once(TURNS)
