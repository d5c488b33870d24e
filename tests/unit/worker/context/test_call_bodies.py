"""Bodies of model calls as they are stored: parts by digest, cut where they are large, with secrets masked."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.models.recording.model_calls import ModelCall
from providers.models.types.chat import ChatRequest, ModelSpec
from worker.context import call_bodies
from worker.context.call_bodies import MAX_CALL_BYTES, MAX_DATA_BYTES, MAX_PART_BYTES, BodyParts
from worker.context.outcomes import sanitize_json

SPEC = ModelSpec("m@F", "m", "F", None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def chat(messages: Sequence[Mapping[str, Any]], **more: Any) -> ModelCall:
    return ModelCall("chat", SPEC, ChatRequest(messages, **more))


def messages_of(parts: BodyParts, body: Mapping[str, Any]) -> list[Any]:
    return [json.loads(parts.parts[UUID(hex=digest)]) for digest in body["messages"]]


def stored_messages(messages: Sequence[Mapping[str, Any]], **more: Any) -> list[Any]:
    parts = BodyParts()
    return messages_of(parts, parts.request_of(chat(messages, **more)))


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=5))
def test_small_messages_are_stored_as_they_were_sent(messages: list[dict[str, Any]]):
    assert stored_messages(messages) == sanitize_json(messages)


@given(st.lists(st.tuples(st.integers(0, 300_000), st.sampled_from('x"é漢\n')), max_size=30), st.integers(0, 70_000))
def test_parts_of_any_call_stay_within_the_limits(messages: list[tuple[int, str]], tools: int):
    parts = BodyParts()

    body = parts.request_of(
        chat([{"role": "user", "content": letter * size} for size, letter in messages], tools=[{"d": "x" * tools}])
    )

    sizes = [len(parts.parts[UUID(hex=digest)].encode()) for digest in (*body["messages"], body["tools"])]
    assert max(sizes) <= MAX_PART_BYTES
    assert sum(sizes) <= MAX_CALL_BYTES + 200  # of the part that stands for the messages between


def test_same_message_in_two_calls_is_one_part():
    parts = BodyParts()
    first = parts.request_of(chat([{"role": "user", "content": "Hi"}]))
    second = parts.request_of(chat([{"role": "user", "content": "Hi"}, {"role": "user", "content": "And?"}]))

    assert first["messages"] == second["messages"][:1]
    assert len(parts.parts) == 2


def test_call_above_the_limit_keeps_its_first_and_last_messages():
    messages = [{"role": "user", "content": f"{number} " + "x" * 60_000} for number in range(40)]

    stored = stored_messages(messages)

    (at,) = [number for number, message in enumerate(stored) if "$cut" in message]
    assert at == 1
    assert stored[0] == messages[0]
    assert stored[2:] == messages[-len(stored[2:]) :]
    assert stored[at]["parts"] == 40 - 1 - len(stored[2:])
    assert stored[at]["$cut"] > 60_000 * stored[at]["parts"]


def test_large_message_is_cut_with_its_role_and_beginning():
    (stored,) = stored_messages([{"role": "user", "content": "word " * 20_000}])

    assert (stored["role"], stored["$cut"]) == (
        "user",
        len(json.dumps({"role": "user", "content": "word " * 20_000}, separators=(",", ":"))),
    )
    assert stored["head"] == ("word " * 20_000)[:60_000]


@pytest.mark.parametrize(("size", "is_stored"), [(MAX_DATA_BYTES, True), (MAX_DATA_BYTES + 1, False)])
def test_data_url_is_a_part_of_its_own_up_to_its_limit(size: int, is_stored: bool):
    content = b"\x01" * size
    url = f"data:image/jpeg;base64,{base64.b64encode(content).decode()}"
    parts = BodyParts()
    (message,) = messages_of(parts, parts.request_of(chat([{"role": "user", "content": "See."}], images=[url])))

    described = message["content"][1]["image_url"]["url"]["$data"]
    assert described["sha256"] == hashlib.sha256(content).hexdigest()
    assert (described["type"], described["bytes"]) == ("image/jpeg", size)
    assert (described["part"] is not None) == is_stored
    if is_stored:
        assert json.loads(parts.parts[UUID(hex=described["part"])]) == url


def test_data_urls_of_messages_that_are_left_out_are_not_stored():
    url = f"data:image/png;base64,{'A' * 200_000}"
    parts = BodyParts()

    parts.request_of(chat([{"role": "user", "content": [{"image": f"{url}{number:04}"}]} for number in range(20)]))

    assert sum(len(text) for text in parts.parts.values()) <= MAX_CALL_BYTES + 10_000


def test_secrets_are_masked_in_every_part_in_the_spelling_of_json():
    secret = 'a "quoted" secret with é'
    parts = BodyParts([secret, "short"])
    call = chat(
        [{"role": "user", "content": f"It is {secret}, in short."}], params={"stop": secret}, tools=[{"d": secret}]
    )
    call.end("ok", "", {"content": f"{secret}!"})

    body, response = parts.request_of(call), parts.response_of(call)

    assert response is not None
    everything = json.dumps([body, list(parts.parts.values())], ensure_ascii=False)
    assert "quoted" not in everything
    assert "in short." in everything  # a short secret may be an ordinary word
    assert json.loads(parts.parts[UUID(hex=response)]) == {"content": "***!"}
    assert body["params"] == {"stop": "***"}


def test_value_that_cannot_be_stored_is_described():
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]

    (stored,) = stored_messages([{"role": "user", "content": deep}])

    assert "nested deeper" in stored["$unreadable"]


def test_large_params_are_cut():
    assert BodyParts().request_of(chat([], params={"stop": "x" * 10_000}))["params"] == {"$cut": 10_011}


def test_spoken_text_and_recordings_are_described_by_their_kind():
    parts = BodyParts()
    spoken = parts.request_of(ModelCall("speech", SPEC, content=b"Guten Tag"))
    heard = parts.request_of(ModelCall("transcription", SPEC, content=b"RIFF"))

    assert json.loads(parts.parts[UUID(hex=spoken["texts"][0])]) == "Guten Tag"
    assert heard == {"content": {"bytes": 4, "sha256": hashlib.sha256(b"RIFF").hexdigest()}}


def test_limits_of_the_page_are_those_of_the_code():
    page = call_bodies.__doc__ or ""
    assert (MAX_PART_BYTES, MAX_CALL_BYTES, MAX_DATA_BYTES) == (64 * 1024, 1024 * 1024, 256 * 1024)
    assert all(limit in page for limit in ("64 KiB", "1 MiB", "256 KiB"))
