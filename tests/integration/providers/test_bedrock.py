"""Chat models over Bedrock's Converse API: signed requests, and event streams as in the documentation of AWS."""

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
from tests.integration.providers.scripted_vendor import PIXEL, WEATHER, ScriptedVendor, conversation, without_usage
from tests.vendor_server import Reply, streamed, whole

pytest.importorskip("botocore")


@pytest.fixture(autouse=True)
def forget_machine_credentials() -> None:
    """Clear the machine's credentials, which are looked up once per process."""
    find_machine_credentials.cache_clear()


MODEL = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
ACCESS, SECRET = "AKIAEXAMPLE", "a-secret-of-forty-letters"
KEYS = {
    "auth_mode": "access_key_secret",
    "bedrock_ak": ACCESS,
    "bedrock_sk": SECRET,
    "bedrock_region": "eu-west-1",
}


def bedrock(key: Any = KEYS, **extra: Any) -> ScriptedVendor:
    return ScriptedVendor("Bedrock", MODEL, key if isinstance(key, str) else json.dumps(key), extra=extra)


def frame(name: str, document: Any, kind: str = "event") -> bytes:
    """Return a message of an AWS event stream: lengths, headers, payload, and both checksums."""
    fields = {":message-type": kind, f":{kind}-type": name, ":content-type": "application/json"}
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in fields.items()
    )
    payload = json.dumps(document).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return message + struct.pack(">I", crc32(message))


def event_stream(*frames: bytes, then: str = "end") -> Reply:
    return streamed(*frames, kind="application/vnd.amazon.eventstream", then=then)


def delta(document: Any, index: int = 0) -> bytes:
    return frame("contentBlockDelta", {"contentBlockIndex": index, "delta": document})


MESSAGE_STOP = frame("messageStop", {"stopReason": "end_turn"})
METADATA = frame("metadata", {"usage": {"inputTokens": 4, "outputTokens": 3, "totalTokens": 7}})


def converse_reply(*content: Any, stop: str = "end_turn") -> Reply:
    usage = {"inputTokens": 4, "outputTokens": 3, "totalTokens": 7, "cacheReadInputTokens": 2}
    output = {"message": {"role": "assistant", "content": list(content)}}
    return whole({"output": output, "stopReason": stop, "usage": usage})


def test_an_answer_is_streamed_with_its_usage_at_the_end():
    model = bedrock()
    stream = b"".join(
        (
            frame("messageStart", {"role": "assistant"}),
            delta({"text": "Hel"}),
            delta({"text": "lo"}),
            MESSAGE_STOP,
            METADATA,
        )
    )
    deltas = model.stream(event_stream(*(stream[at : at + 7] for at in range(0, len(stream), 7))))

    (request,) = model.server.requests
    assert deltas == [ContentDelta("Hel"), ContentDelta("lo"), UsageDelta(Usage(4, 3, 7, calls=1))]
    assert request.target == "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    assert request.json == {
        "messages": [{"role": "user", "content": [{"text": "Q"}]}],
        "system": [{"text": "S"}],
    }


def test_request_is_signed_for_its_region_and_contains_no_secret():
    model = bedrock()
    model.complete(converse_reply({"text": "hi"}))

    (request,) = model.server.requests
    signature = request.headers["authorization"]
    assert signature.startswith(f"AWS4-HMAC-SHA256 Credential={ACCESS}/")
    assert "/eu-west-1/bedrock/aws4_request, SignedHeaders=" in signature
    assert request.headers["x-amz-date"]
    assert SECRET not in str(request.headers)


def test_bedrock_api_key_is_sent_as_a_bearer_token():
    model = bedrock("bedrock-api-key-1")
    model.complete(converse_reply({"text": "hi"}))

    assert model.server.requests[0].headers["authorization"] == "Bearer bedrock-api-key-1"


def test_role_is_assumed_once_and_its_keys_sign_the_requests():
    document = (
        '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
        "<AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>other</SecretAccessKey><SessionToken>tok/en=</SessionToken>"
        "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )
    model = bedrock({**KEYS, "auth_mode": "iam_role", "aws_role_arn": "arn:aws:iam::1:role/r"}, sts_url="here")
    busy = whole({"message": "busy"}, 503)
    answer = model.complete(whole(document, content_type="text/xml"), busy, converse_reply({"text": "hi"}), retries=1)

    sts, first, second = model.server.requests
    assert answer.text == "hi"
    assert b"Action=AssumeRole" in sts.content
    assert b"RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr" in sts.content
    assert "/eu-west-1/sts/aws4_request" in sts.headers["authorization"]
    for request in (first, second):
        assert "Credential=ASIAROLE/" in request.headers["authorization"]
        assert request.headers["x-amz-security-token"] == "tok/en="


def test_missing_machine_credentials_are_an_error_without_a_request(monkeypatch: pytest.MonkeyPatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    model = bedrock({"auth_mode": "assume_role", "bedrock_region": "eu-west-1"})
    answer = model.complete(converse_reply({"text": "hi"}))

    assert answer.error is not None
    assert answer.error.code == "AUTH_ERROR"
    assert model.server.requests == []


def test_machine_credentials_are_used_if_the_account_has_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMACHINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    model = bedrock({"auth_mode": "assume_role", "bedrock_region": "eu-west-1"})
    model.complete(converse_reply({"text": "hi"}))

    assert "Credential=AKIAMACHINE/" in model.server.requests[0].headers["authorization"]


def test_generation_parameters_have_the_vendors_names():
    model = bedrock(set_params={"top_k": 5})
    params = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "stop": "END", "presence_penalty": 0.3}
    model.complete(converse_reply({"text": "hi"}), params=params)

    body = model.server.bodies[0]
    assert body["inferenceConfig"] == {"maxTokens": 50, "temperature": 0.5, "stopSequences": ["END"]}
    assert body["additionalModelRequestFields"] == {"top_k": 5}


def test_thinking_budget_is_added_to_the_token_limit():
    model = bedrock(thinking_budget=2000)
    params = {"temperature": 0.5, "max_tokens": 50, "thinking": "enabled"}
    model.complete(converse_reply({"text": "hi"}), params=params)

    body = model.server.bodies[0]
    assert body["inferenceConfig"] == {"maxTokens": 3024}
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 2000}}


def test_parallel_tool_calls_arrive_together_with_their_reasoning():
    def tool_use_start(index: int, name: str) -> bytes:
        start = {"toolUse": {"toolUseId": name, "name": "weather"}}
        return frame("contentBlockStart", {"contentBlockIndex": index, "start": start})

    model = bedrock()
    deltas = model.stream(
        event_stream(
            delta({"reasoningContent": {"text": "Two "}}),
            delta({"reasoningContent": {"text": "cities."}}),
            delta({"reasoningContent": {"signature": "sig"}}),
            tool_use_start(1, "t1"),
            delta({"toolUse": {"input": '{"city": '}}, 1),
            delta({"toolUse": {"input": '"Rome"}'}}, 1),
            tool_use_start(2, "t2"),
            frame("messageStop", {"stopReason": "tool_use"}),
        ),
        tools=[WEATHER],
    )

    signature = {"bedrock": [{"reasoningContent": {"reasoningText": {"text": "Two cities.", "signature": "sig"}}}]}
    calls = (ToolCall("t1", "weather", '{"city": "Rome"}', signature), ToolCall("t2", "weather", "{}"))
    assert without_usage(deltas) == [ReasoningDelta("Two "), ReasoningDelta("cities."), CallsDelta(calls)]
    spec = {
        "name": "weather",
        "description": "Of a city",
        "inputSchema": {"json": WEATHER["function"]["parameters"]},
    }
    assert model.server.bodies[0]["toolConfig"] == {"tools": [{"toolSpec": spec}]}


def test_complete_answer_has_reasoning_text_and_tool_calls():
    thought = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}}
    call = {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Rome"}}}
    answer = bedrock().complete(converse_reply(thought, {"text": "Looking."}, call, stop="tool_use"), tools=[WEATHER])

    assert (answer.text, answer.reasoning, answer.usage) == ("Looking.", "Hm.", Usage(6, 3, 9, calls=1))
    assert answer.calls == (ToolCall("t1", "weather", '{"city": "Rome"}', {"bedrock": [thought]}),)


def test_tool_results_and_images_are_sent_in_one_user_message():
    thought = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}}
    model = bedrock()
    model.complete(converse_reply({"text": "done"}), messages=conversation({"bedrock": [thought]}), images=[PIXEL])

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


def error_reply(status: int, kind: str, message: str = "message") -> Reply:
    return whole({"message": message}, status, x_amzn_errortype=f"{kind}:http://internal.amazon.com/")


@pytest.mark.parametrize(
    ("play", "code", "requests"),
    [
        (error_reply(403, "AccessDeniedException", f"no {SECRET}"), "AUTH_ERROR", 1),
        (error_reply(400, "ValidationException"), "INVALID_REQUEST", 1),
        (error_reply(400, "ServiceQuotaExceededException"), "QUOTA_EXCEEDED", 1),
        (error_reply(404, "ResourceNotFoundException"), "MODEL_ERROR", 1),
        (error_reply(408, "ModelTimeoutException"), "TIMEOUT", 2),
        (error_reply(424, "ModelErrorException"), "SERVER_ERROR", 2),
        (error_reply(429, "ThrottlingException"), "RATE_LIMIT_EXCEEDED", 2),
        (event_stream(frame("throttlingException", {"message": "slow"}, "exception")), "RATE_LIMIT_EXCEEDED", 2),
        (event_stream(frame("validationException", {"message": "bad"}, "exception")), "INVALID_REQUEST", 1),
        (event_stream(frame("guess", {"message": "service unavailable"}, "exception")), "SERVER_ERROR", 2),
        (event_stream(frame("messageStart", {"role": "assistant"})), "SERVER_ERROR", 2),
        (event_stream(frame("messageStop", {"stopReason": "guardrail_intervened"})), "CONTENT_FILTERED", 1),
        (event_stream(b"\x00" * 16), "SERVER_ERROR", 2),
        (event_stream(MESSAGE_STOP[:-1] + bytes([MESSAGE_STOP[-1] ^ 1])), "SERVER_ERROR", 2),
        (event_stream(then="break"), "CONNECTION_ERROR", 2),
    ],
)
def test_vendor_error_has_its_code_and_no_key(play: Reply, code: str, requests: int):
    model = bedrock()
    (error,) = without_usage(model.stream(play, retries=1))

    assert isinstance(error, ErrorDelta)
    assert error.code == code
    assert SECRET not in error.detail
    assert len(model.server.requests) == requests


@pytest.mark.parametrize(("then", "code"), [("end", "SERVER_ERROR"), ("break", "CONNECTION_ERROR")])
def test_broken_stream_keeps_its_text_and_is_not_restarted(then: str, code: str):
    model = bedrock()
    text_delta, error = without_usage(
        model.stream(event_stream(delta({"text": "Half"}), MESSAGE_STOP[:9], then=then), retries=5)
    )

    assert text_delta == ContentDelta("Half")
    assert isinstance(error, ErrorDelta)
    assert error.code == code
    assert len(model.server.requests) == 1


def test_malformed_reply_is_an_error():
    answer = bedrock().complete(whole({"output": 3}))

    assert answer.error is not None
    assert answer.error.code == "MODEL_ERROR"


def test_cancelled_stream_closes_the_connection_to_the_vendor():
    bedrock().cancel_after_first_delta(event_stream(delta({"text": "Hi"}), then="hang"))
