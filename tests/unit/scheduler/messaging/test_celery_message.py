"""A task message that Easel encodes equals the message that Celery would send."""

import base64
import json
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Context
from hypothesis import given
from hypothesis import strategies as st

from scheduler.messaging.celery_app import ADVANCE, EXECUTE, NODES, PREPARED_CLAIM, RUNS
from scheduler.messaging.celery_message import carried_claim, decode_node_message, encode_message, shown_node
from store.primitives.ids import new_id

UNIQUE_FIELDS = ("id", "root_id", "correlation_id", "delivery_tag", "reply_to", "origin")
RUN_ID, ACTIVATION_ID = new_id(), new_id()
IDS = (str(RUN_ID), str(ACTIVATION_ID))


def sent_by_celery(queue: str, task: str, args: tuple[str, ...], **options: Any) -> dict[str, Any]:
    """Return the message that Celery puts into a queue of its in-memory transport."""
    app = Celery(broker="memory://")
    with app.connection_for_write() as connection:
        app.send_task(task, args=args, queue=queue, connection=connection, ignore_result=True, **options)
        channel: Any = connection.channel()
        message = channel.basic_get(queue)
    assert message is not None
    return message._raw


def without(message: Any, names: tuple[str, ...]) -> Any:
    """Return a message without these fields, also in its parts."""
    if not isinstance(message, dict):
        return message
    return {name: without(value, names) for name, value in message.items() if name not in names}  # pyright: ignore[reportUnknownVariableType]


def read(message: dict[str, Any]) -> dict[str, Any]:
    return message | {"body": json.loads(base64.b64decode(message["body"]))}


def test_encoded_message_equals_celerys_own_in_every_field():
    before = new_id()
    shown = shown_node(RUN_ID, ACTIVATION_ID, "LLM", "LLM:Answer", is_first=True, parent=before)
    ours = json.loads(encode_message(EXECUTE, IDS, NODES, shown, {PREPARED_CLAIM: "{}"}))

    theirs = sent_by_celery(
        NODES,
        EXECUTE,
        IDS,
        shadow="node:LLM",
        argsrepr=shown.args,
        kwargsrepr="{}",
        task_id=str(ACTIVATION_ID),
        root_id=str(RUN_ID),
        parent_id=str(before),
        headers={PREPARED_CLAIM: "{}"},
    )

    repeated_fields = ("argsrepr", "kwargsrepr")  # Celery repeats these where no consumer reads them
    theirs["properties"] = without(theirs["properties"], repeated_fields)
    assert without(read(ours), UNIQUE_FIELDS) == without(read(theirs), UNIQUE_FIELDS)
    assert ours["properties"].keys() == theirs["properties"].keys()
    assert ours["headers"].keys() == theirs["headers"].keys()
    assert ours["headers"]["id"] == theirs["headers"]["id"] == str(ACTIVATION_ID)
    assert ours["headers"]["root_id"] == theirs["headers"]["root_id"] == str(RUN_ID)


def test_later_task_of_an_activation_is_the_child_of_its_first():
    first = shown_node(RUN_ID, ACTIVATION_ID, "LLM", "LLM:Answer", is_first=True)
    later = shown_node(RUN_ID, ACTIVATION_ID, "LLM", "LLM:Answer", is_first=False)

    assert (first.task_id, first.parent_id) == (str(ACTIVATION_ID), None)
    assert later.parent_id == first.task_id
    assert later.task_id != first.task_id


@pytest.mark.parametrize(
    ("delivery_info", "carried"), [({}, "a claim"), ({"redelivered": True}, None), (None, "a claim")]
)
def test_message_that_comes_again_carries_no_claim(delivery_info: Any, carried: str | None):
    request = Context({PREPARED_CLAIM: "a claim"}, delivery_info=delivery_info)

    assert carried_claim(request) == carried


def test_each_message_has_its_own_task_id_and_ignores_results():
    first, second = (json.loads(encode_message(EXECUTE, IDS, NODES)) for _ in range(2))

    assert first["headers"]["id"] == first["headers"]["root_id"] == first["properties"]["correlation_id"]
    assert first["headers"]["id"] != second["headers"]["id"]
    assert first["properties"]["delivery_tag"] != second["properties"]["delivery_tag"]
    assert first["headers"]["ignore_result"]


def test_message_names_its_queue_so_that_it_can_be_requeued():
    message = json.loads(encode_message(ADVANCE, IDS[:1], RUNS))

    assert message["properties"]["delivery_info"] == {"exchange": "", "routing_key": RUNS}


# -- messages that a thread fetches ----------------------------------------------------------------------------------
def test_node_message_of_easel_and_of_celery_is_decoded():
    ours = decode_node_message(encode_message(EXECUTE, IDS, NODES, further={PREPARED_CLAIM: "{}"}))
    theirs = decode_node_message(json.dumps(sent_by_celery(NODES, EXECUTE, IDS)).encode())

    assert ours is not None
    assert theirs is not None
    assert ours.headers[PREPARED_CLAIM] == "{}"
    for each in (ours, theirs):
        assert tuple(each.body[0]) == IDS
        assert each.headers["task"] == EXECUTE
        assert each.properties["delivery_info"]["routing_key"] == NODES


@pytest.mark.parametrize(
    ("task", "args", "options"),
    [
        (ADVANCE, IDS[:1], {}),
        (EXECUTE, IDS[:1], {}),
        (EXECUTE, (*IDS, "more"), {}),
        (EXECUTE, ("a run", "an activation"), {}),
        (EXECUTE, IDS, {"countdown": 5}),
        (EXECUTE, IDS, {"expires": 5}),
        (EXECUTE, IDS, {"kwargs": {"more": 1}}),
        (EXECUTE, IDS, {"serializer": "pickle"}),
    ],
)
def test_message_that_is_no_plain_node_is_left_to_celery(task: str, args: tuple[str, ...], options: dict[str, Any]):
    assert decode_node_message(json.dumps(sent_by_celery(NODES, task, args, **options)).encode()) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLACES = ("body", "headers", "properties", "content-type", "headers.task", "headers.id", "headers.eta")


@given(place=st.sampled_from(PLACES), value=JSON)
def test_message_with_any_value_in_any_place_is_decoded_or_left_to_celery(place: str, value: Any):
    message = json.loads(encode_message(EXECUTE, IDS, NODES))
    *parents, last = place.split(".")
    target = message[parents[0]] if parents else message
    target[last] = value

    decoded = decode_node_message(json.dumps(message).encode())

    assert decoded is None or (decoded.headers["task"] == EXECUTE and tuple(decoded.body[0]) == IDS)


@given(raw=st.binary(max_size=100))
def test_bytes_that_are_no_message_are_left_to_celery(raw: bytes):
    assert decode_node_message(raw) is None
