"""Bedrock's Converse, as AWS' documentation shows it on the wire: signed requests, frames with check sums."""

import json
import struct
from binascii import crc32
from typing import Any

import pytest

from providers.models.types.chat import (
    CallsDelta,
    ContentDelta,
    ErrorDelta,
    ReasoningDelta,
    ToolCall,
    Usage,
    UsageDelta,
)
from providers.models.wires.aws import find_machine_credentials
from tests.integration.providers.asked import PIXEL, WEATHER, Asked, conversation, without_usage
from tests.vendor_server import Play, streamed, whole

pytest.importorskip("botocore")


@pytest.fixture(autouse=True)
def nobody_is_known() -> None:
    """Who this machine is is found once per process; each test has a machine of its own."""
    find_machine_credentials.cache_clear()


MODEL = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
ACCESS, SECRET = "AKIAEXAMPLE", "a-secret-of-forty-letters"
KEYS = {
    "auth_mode": "access_key_secret",
    "bedrock_ak": ACCESS,
    "bedrock_sk": SECRET,
    "bedrock_region": "eu-west-1",
}


def bedrock(key: Any = KEYS, **extra: Any) -> Asked:
    return Asked("Bedrock", MODEL, key if isinstance(key, str) else json.dumps(key), extra=extra)


def frame(name: str, document: Any, kind: str = "event") -> bytes:
    """A message of AWS' event stream: lengths, headers, payload, and check sums of both."""
    named = {":message-type": kind, f":{kind}-type": name, ":content-type": "application/json"}
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in named.items()
    )
    payload = json.dumps(document).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return message + struct.pack(">I", crc32(message))


def said(*frames: bytes, then: str = "end") -> Play:
    return streamed(*frames, kind="application/vnd.amazon.eventstream", then=then)


def delta(document: Any, index: int = 0) -> bytes:
    return frame("contentBlockDelta", {"contentBlockIndex": index, "delta": document})


STOPPED = frame("messageStop", {"stopReason": "end_turn"})
METADATA = frame("metadata", {"usage": {"inputTokens": 4, "outputTokens": 3, "totalTokens": 7}})


def answered(*content: Any, stop: str = "end_turn") -> Play:
    usage = {"inputTokens": 4, "outputTokens": 3, "totalTokens": 7, "cacheReadInputTokens": 2}
    output = {"message": {"role": "assistant", "content": list(content)}}
    return whole({"output": output, "stopReason": stop, "usage": usage})


def test_an_answer_is_streamed_with_its_usage_at_the_end():
    model = bedrock()
    whole_stream = b"".join(
        (frame("messageStart", {"role": "assistant"}), delta({"text": "Hel"}), delta({"text": "lo"}), STOPPED, METADATA)
    )
    deltas = model.stream(said(*(whole_stream[at : at + 7] for at in range(0, len(whole_stream), 7))))

    (asked,) = model.server.requests
    assert deltas == [ContentDelta("Hel"), ContentDelta("lo"), UsageDelta(Usage(4, 3, 7, calls=1))]
    assert asked.target == "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    assert asked.json == {
        "messages": [{"role": "user", "content": [{"text": "Q"}]}],
        "system": [{"text": "S"}],
    }


def test_a_request_is_signed_for_its_region_and_shows_no_secret():
    model = bedrock()
    model.complete(answered({"text": "hi"}))

    (asked,) = model.server.requests
    signature = asked.headers["authorization"]
    assert signature.startswith(f"AWS4-HMAC-SHA256 Credential={ACCESS}/")
    assert "/eu-west-1/bedrock/aws4_request, SignedHeaders=" in signature
    assert asked.headers["x-amz-date"]
    assert SECRET not in str(asked.headers)


def test_an_api_key_of_bedrocks_own_is_a_bearers():
    model = bedrock("bedrock-api-key-1")
    model.complete(answered({"text": "hi"}))

    assert model.server.requests[0].headers["authorization"] == "Bearer bedrock-api-key-1"


def test_a_role_is_taken_on_once_and_signs_with_its_own_keys():
    document = (
        '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
        "<AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>other</SecretAccessKey><SessionToken>tok/en=</SessionToken>"
        "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )
    model = bedrock({**KEYS, "auth_mode": "iam_role", "aws_role_arn": "arn:aws:iam::1:role/r"}, sts_url="here")
    busy = whole({"message": "busy"}, 503)
    answer = model.complete(whole(document, content_type="text/xml"), busy, answered({"text": "hi"}), retries=1)

    sts, first, second = model.server.requests
    assert answer.text == "hi"
    assert b"Action=AssumeRole" in sts.content
    assert b"RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr" in sts.content
    assert "/eu-west-1/sts/aws4_request" in sts.headers["authorization"]
    for asked in (first, second):
        assert "Credential=ASIAROLE/" in asked.headers["authorization"]
        assert asked.headers["x-amz-security-token"] == "tok/en="


def test_a_machine_without_keys_of_its_own_says_so(monkeypatch: pytest.MonkeyPatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    model = bedrock({"auth_mode": "assume_role", "bedrock_region": "eu-west-1"})
    answer = model.complete(answered({"text": "hi"}))

    assert answer.error is not None
    assert answer.error.code == "AUTH_ERROR"
    assert model.server.requests == []


def test_the_keys_of_the_machine_are_used_where_an_account_names_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMACHINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    model = bedrock({"auth_mode": "assume_role", "bedrock_region": "eu-west-1"})
    model.complete(answered({"text": "hi"}))

    assert "Credential=AKIAMACHINE/" in model.server.requests[0].headers["authorization"]


def test_generation_parameters_are_said_in_the_vendors_words():
    model = bedrock(set_params={"top_k": 5})
    params = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "stop": "END", "presence_penalty": 0.3}
    model.complete(answered({"text": "hi"}), params=params)

    body = model.server.bodies[0]
    assert body["inferenceConfig"] == {"maxTokens": 50, "temperature": 0.5, "stopSequences": ["END"]}
    assert body["additionalModelRequestFields"] == {"top_k": 5}


def test_a_model_that_thinks_gets_room_for_it():
    model = bedrock(thinking_budget=2000)
    params = {"temperature": 0.5, "max_tokens": 50, "thinking": "enabled"}
    model.complete(answered({"text": "hi"}), params=params)

    body = model.server.bodies[0]
    assert body["inferenceConfig"] == {"maxTokens": 3024}
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 2000}}


def test_calls_that_run_side_by_side_come_together_with_the_thoughts_that_led_to_them():
    def started(index: int, name: str) -> bytes:
        start = {"toolUse": {"toolUseId": name, "name": "weather"}}
        return frame("contentBlockStart", {"contentBlockIndex": index, "start": start})

    model = bedrock()
    deltas = model.stream(
        said(
            delta({"reasoningContent": {"text": "Two "}}),
            delta({"reasoningContent": {"text": "cities."}}),
            delta({"reasoningContent": {"signature": "sig"}}),
            started(1, "t1"),
            delta({"toolUse": {"input": '{"city": '}}, 1),
            delta({"toolUse": {"input": '"Rome"}'}}, 1),
            started(2, "t2"),
            frame("messageStop", {"stopReason": "tool_use"}),
        ),
        tools=[WEATHER],
    )

    signed = {"bedrock": [{"reasoningContent": {"reasoningText": {"text": "Two cities.", "signature": "sig"}}}]}
    calls = (ToolCall("t1", "weather", '{"city": "Rome"}', signed), ToolCall("t2", "weather", "{}"))
    assert without_usage(deltas) == [ReasoningDelta("Two "), ReasoningDelta("cities."), CallsDelta(calls)]
    spec = {
        "name": "weather",
        "description": "Of a city",
        "inputSchema": {"json": WEATHER["function"]["parameters"]},
    }
    assert model.server.bodies[0]["toolConfig"] == {"tools": [{"toolSpec": spec}]}


def test_a_whole_answer_may_hold_thoughts_text_and_calls():
    thought = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}}
    call = {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Rome"}}}
    answer = bedrock().complete(answered(thought, {"text": "Looking."}, call, stop="tool_use"), tools=[WEATHER])

    assert (answer.text, answer.reasoning, answer.usage) == ("Looking.", "Hm.", Usage(6, 3, 9, calls=1))
    assert answer.calls == (ToolCall("t1", "weather", '{"city": "Rome"}', {"bedrock": [thought]}),)


def test_results_of_calls_and_images_go_back_in_their_turns():
    thought = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}}
    model = bedrock()
    model.complete(answered({"text": "done"}), messages=conversation({"bedrock": [thought]}), images=[PIXEL])

    _, called, results = model.server.bodies[0]["messages"]
    assert called["content"] == [
        thought,
        {"text": "Looking."},
        {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Rome"}}},
        {"toolUse": {"toolUseId": "c2", "name": "weather", "input": {}}},
    ]
    assert results["content"] == [
        {"toolResult": {"toolUseId": "c1", "content": [{"text": "sunny"}]}},
        {"toolResult": {"toolUseId": "c2", "content": [{"text": "(nothing)"}]}},
        {"text": "And?"},
        {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
    ]
    assert [tool["toolSpec"]["name"] for tool in model.server.bodies[0]["toolConfig"]["tools"]] == ["weather"]


def refused(status: int, kind: str, message: str = "told") -> Play:
    return whole({"message": message}, status, x_amzn_errortype=f"{kind}:http://internal.amazon.com/")


@pytest.mark.parametrize(
    ("play", "code", "requests"),
    [
        (refused(403, "AccessDeniedException", f"no {SECRET}"), "AUTH_ERROR", 1),
        (refused(400, "ValidationException"), "INVALID_REQUEST", 1),
        (refused(400, "ServiceQuotaExceededException"), "QUOTA_EXCEEDED", 1),
        (refused(404, "ResourceNotFoundException"), "MODEL_ERROR", 1),
        (refused(408, "ModelTimeoutException"), "TIMEOUT", 2),
        (refused(424, "ModelErrorException"), "SERVER_ERROR", 2),
        (refused(429, "ThrottlingException"), "RATE_LIMIT_EXCEEDED", 2),
        (said(frame("throttlingException", {"message": "slow"}, "exception")), "RATE_LIMIT_EXCEEDED", 2),
        (said(frame("validationException", {"message": "bad"}, "exception")), "INVALID_REQUEST", 1),
        (said(frame("guess", {"message": "service unavailable"}, "exception")), "SERVER_ERROR", 2),
        (said(frame("messageStart", {"role": "assistant"})), "SERVER_ERROR", 2),
        (said(frame("messageStop", {"stopReason": "guardrail_intervened"})), "CONTENT_FILTERED", 1),
        (said(b"\x00" * 16), "SERVER_ERROR", 2),
        (said(STOPPED[:-1] + bytes([STOPPED[-1] ^ 1])), "SERVER_ERROR", 2),
        (said(then="break"), "CONNECTION_ERROR", 2),
    ],
)
def test_a_failure_is_told_by_its_kind_and_shows_no_key(play: Play, code: str, requests: int):
    model = bedrock()
    (error,) = without_usage(model.stream(play, retries=1))

    assert isinstance(error, ErrorDelta)
    assert error.code == code
    assert SECRET not in error.detail
    assert len(model.server.requests) == requests


@pytest.mark.parametrize(("then", "code"), [("end", "SERVER_ERROR"), ("break", "CONNECTION_ERROR")])
def test_a_stream_that_breaks_off_keeps_what_was_said_and_is_not_begun_again(then: str, code: str):
    model = bedrock()
    spoken, error = without_usage(model.stream(said(delta({"text": "Half"}), STOPPED[:9], then=then), retries=5))

    assert spoken == ContentDelta("Half")
    assert isinstance(error, ErrorDelta)
    assert error.code == code
    assert len(model.server.requests) == 1


def test_a_reply_that_is_no_answer_is_a_failure():
    answer = bedrock().complete(whole({"output": 3}))

    assert answer.error is not None
    assert answer.error.code == "MODEL_ERROR"


def test_whoever_leaves_takes_the_vendors_work_along():
    bedrock().leave_early(said(delta({"text": "Hi"}), then="hang"))
