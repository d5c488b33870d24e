"""Chat models over Gemini's own API, with replies as in the vendor's documentation."""

import gzip
import re
import sys
from base64 import b64decode, urlsafe_b64encode
from typing import Any
from urllib.parse import quote

import pytest

from providers.models.transport import open_responses
from providers.models.types.chat import (
    CallsDelta,
    ContentDelta,
    ErrorDelta,
    ReasoningDelta,
    ToolCall,
    Usage,
    UsageDelta,
)
from tests.integration.providers.scripted_vendor import (
    MESSAGES,
    PIXEL,
    WEATHER,
    ScriptedVendor,
    conversation,
    without_usage,
)
from tests.vendor_server import Reply, events, streamed, whole

KEY = "AIza-a-long-secret"
SIGNATURE = "c2lnbmVk+/8="
FIGURES = {"promptTokenCount": 4, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "totalTokenCount": 9}


def gemini(model: str = "gemini-2.5-flash", **extra: Any) -> ScriptedVendor:
    return ScriptedVendor("Gemini", model, KEY, extra=extra)


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **more}


def sent(model: ScriptedVendor) -> Any:
    """Return the body of the first request in one spelling: the SDK mixes the two that the API accepts."""
    return _camel_case(model.server.bodies[0])


def _camel_case(value: Any) -> Any:
    if isinstance(value, list):
        return [_camel_case(each) for each in value]
    if isinstance(value, dict):
        return {
            re.sub(r"_(\w)", lambda found: found[1].upper(), name): _camel_case(each) for name, each in value.items()
        }
    return value


def test_an_answer_is_streamed_with_its_usage_at_the_end():
    model = gemini()
    last = chunk({"text": "lo"}, finish="STOP", usageMetadata=FIGURES)
    deltas = model.stream(events(chunk({"text": "Hel"}, usageMetadata={"promptTokenCount": 4}), last))

    (request,) = model.server.requests
    assert deltas == [ContentDelta("Hel"), ContentDelta("lo"), UsageDelta(Usage(4, 5, 9, calls=1))]
    assert request.target == "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == KEY
    assert KEY not in request.target
    assert request.json == {
        "contents": [{"role": "user", "parts": [{"text": "Q"}]}],
        "systemInstruction": {"parts": [{"text": "S"}]},
        "generationConfig": {},
    }


def test_complete_answer_separates_reasoning_from_text():
    model = gemini()
    answer = model.complete(
        whole(chunk({"text": "Hm.", "thought": True}, {"text": "hi"}, finish="STOP")), params={"thinking": "enabled"}
    )

    assert (answer.text, answer.reasoning) == ("hi", "Hm.")
    assert model.server.requests[0].target.endswith(":generateContent")
    assert sent(model)["generationConfig"] == {"thinkingConfig": {"includeThoughts": True}}


@pytest.mark.parametrize("body", [chunk(), {}, [], None, "text"])
def test_complete_reply_without_an_answer_is_an_error(body: Any):
    answer = gemini().complete(whole(body))

    assert answer.error is not None
    assert answer.error.code in ("SERVER_ERROR", "MODEL_ERROR")


def test_complete_answer_without_a_finish_reason_is_accepted():
    assert gemini().complete(whole(chunk({"text": "hi"}))).text == "hi"


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("gemini-2.5-flash", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", {"thinkingBudget": 128}),
        ("gemini-3-pro-preview", {"thinkingLevel": "LOW"}),
        ("gemini-2.0-flash", None),
    ],
)
def test_disabled_thinking_is_sent_as_the_model_supports_it(name: str, config: dict[str, Any] | None):
    model = gemini(name)
    model.complete(whole(chunk({"text": "hi"}, finish="STOP")), params={"thinking": "disabled"})

    assert sent(model).get("generationConfig", {}).get("thinkingConfig") == config


def test_generation_parameters_have_the_vendors_names():
    model = gemini()
    params: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 50,
        "stop": "END",
        "presence_penalty": 0.3,
    }
    params["response_format"] = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    model.complete(whole(chunk({"text": "hi"}, finish="STOP")), params=params)

    assert sent(model)["generationConfig"] == {
        "temperature": 0.5,
        "topP": 0.9,
        "maxOutputTokens": 50,
        "stopSequences": ["END"],
        "presencePenalty": 0.3,
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
    }


def test_parallel_tool_calls_arrive_together_with_their_signature():
    model = gemini()
    first = {"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": SIGNATURE}
    second = {"functionCall": {"name": "weather", "args": {"city": "Köln"}, "id": "f2"}}
    deltas = model.stream(events(chunk(first, second, finish="STOP", usageMetadata=FIGURES)), tools=[WEATHER])

    assert without_usage(deltas) == [
        CallsDelta(
            (
                ToolCall("call_0", "weather", '{"city": "Rome"}', {"google": {"thought_signature": SIGNATURE}}),
                ToolCall("f2", "weather", '{"city": "Köln"}'),
            )
        )
    ]
    declared = {
        "name": "weather",
        "description": "Of a city",
        "parametersJsonSchema": WEATHER["function"]["parameters"],
    }
    assert sent(model)["tools"] == [{"functionDeclarations": [declared]}]
    assert sent(model)["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}


def test_tool_results_are_one_user_message_after_the_signed_calls():
    model = gemini()
    model.complete(
        whole(chunk({"text": "done"}, finish="STOP")),
        messages=conversation({"google": {"thought_signature": SIGNATURE}}),
        tools=[WEATHER],
    )

    signed = {"thoughtSignature": urlsafe_b64encode(b64decode(SIGNATURE)).decode()}
    assert sent(model)["contents"] == [
        {"role": "user", "parts": [{"text": "Q"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Looking."},
                {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Rome"}}, **signed},
                {"functionCall": {"id": "c2", "name": "weather", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "weather", "response": {"result": "sunny"}}},
                {"functionResponse": {"id": "c2", "name": "weather", "response": {"result": ""}}},
                {"text": "And?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"a_b": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "enum": [1]}}},
        {"type": "object", "properties": {"a": True}, "additionalProperties": False},
    ],
)
def test_parameters_of_a_function_are_sent_as_their_json_schema(schema: dict[str, Any]):
    model = gemini()
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    model.complete(whole(chunk({"text": "hi"}, finish="STOP")), tools=[tool])

    (declared,) = model.server.bodies[0]["tools"][0]["functionDeclarations"]
    assert declared == {"name": "f", "parameters_json_schema": schema}


def test_id_that_was_made_up_for_a_call_is_not_sent():
    model = gemini()
    calls = [{"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_0", "content": "sunny"},
    ]
    model.complete(whole(chunk({"text": "hi"}, finish="STOP")), messages=messages, tools=[WEATHER])

    _, called, result = sent(model)["contents"]
    assert "id" not in called["parts"][0]["functionCall"]
    assert "id" not in result["parts"][0]["functionResponse"]


def test_answer_beyond_the_limit_of_a_request_is_continued_with_the_usage_of_all_requests():
    model = gemini("gemini-4-argon")
    usage = {"promptTokenCount": 4, "candidatesTokenCount": 3}
    first = chunk({"text": "Hel"}, finish="CONTINUATION", usageMetadata=usage)
    first["candidates"][0]["continuationToken"] = SIGNATURE
    last = chunk({"text": "lo"}, finish="STOP", usageMetadata=usage)
    deltas = model.stream(events(first), events(last))

    assert deltas == [ContentDelta("Hel"), ContentDelta("lo"), UsageDelta(Usage(8, 6, 14, calls=1))]
    assert [body.get("continuationToken") is not None for body in map(_camel_case, model.server.bodies)] == [
        False,
        True,
    ]


def test_complete_answer_beyond_the_limit_of_a_request_is_continued():
    model = gemini("gemini-4-argon")
    first = chunk({"text": "Hel"}, finish="CONTINUATION")
    first["candidates"][0]["continuationToken"] = SIGNATURE
    answer = model.complete(whole(first), whole(chunk({"text": "lo"}, finish="STOP")))

    assert answer.text == "Hello"
    assert len(model.server.requests) == 2


def test_missing_sdk_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "google.genai", None)

    answer = gemini().complete(whole(chunk({"text": "hi"}, finish="STOP")))

    assert answer.error is not None
    assert "pip install easel[google-genai]" in answer.error.detail


def test_nothing_of_the_environment_reaches_the_vendor(monkeypatch: pytest.MonkeyPatch):
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"):
        monkeypatch.setenv(name, "of-the-operator")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_GENAI_USE_ENTERPRISE", "true")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "of-the-operator")
    monkeypatch.setenv("GOOGLE_GENAI_CLIENT_MODE", "replay")
    model = gemini()

    answer = model.complete(whole(chunk({"text": "hi"}, finish="STOP")))

    assert answer.text == "hi"
    assert model.server.requests[0].target == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert "of-the-operator" not in str(model.server.requests[0].headers)


@pytest.mark.parametrize("name", ["gemini-x?key=1#a", "gemini-x:other", "a&b"])
def test_model_name_with_url_syntax_stays_in_its_place(name: str):
    model = gemini(name)
    model.complete(whole(chunk({"text": "hi"}, finish="STOP")))

    assert model.server.requests[0].target == f"/v1beta/models/{quote(name)}:generateContent"


@pytest.mark.parametrize(
    ("name", "params", "text"),
    [("..", {}, 'no model with the name ".."'), ("gemini-2.5-flash", {"temperature": "hot"}, "temperature")],
)
def test_request_that_the_sdk_does_not_allow_is_an_error_without_a_call(name: str, params: dict[str, Any], text: str):
    model = gemini(name)
    answer = model.complete(whole(chunk({"text": "hi"}, finish="STOP")), params=params)

    assert answer.error is not None
    assert (answer.error.code, text in answer.error.detail) == ("INVALID_REQUEST", True)
    assert model.server.requests == []


def test_half_of_a_surrogate_pair_is_sent_as_a_replacement_character():
    model = gemini()
    model.complete(whole(chunk({"text": "hi"}, finish="STOP")), messages=[{"role": "user", "content": "a\ud83d"}])

    assert sent(model)["contents"] == [{"role": "user", "parts": [{"text": "a\ufffd"}]}]


def test_stream_that_is_left_between_two_deltas_closes_its_connection():
    gemini().leave_after_first_delta(events(chunk({"text": "Hi"}), then="hang"))


def test_event_beyond_the_limit_ends_the_answer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(open_responses, "MAX_LINE_BYTES", 1000)
    (error,) = without_usage(gemini().stream(streamed(b"data: " + b"x" * 900, b"x" * 900, then="hang")))

    assert isinstance(error, ErrorDelta)
    assert "a line of more than 1,000 bytes" in error.detail


def test_compressed_answer_is_refused_because_its_size_is_unknown():
    model = gemini()
    answer = model.complete(whole(gzip.compress(b"{}"), content_encoding="gzip"))

    assert answer.error is not None
    assert "compressed" in answer.error.detail
    assert model.server.requests[0].headers["accept-encoding"] == "identity"


def test_image_is_sent_with_the_last_user_message():
    model = gemini()
    model.complete(whole(chunk({"text": "a dot"}, finish="STOP")), messages=MESSAGES, images=[PIXEL])

    assert sent(model)["contents"][-1]["parts"] == [
        {"text": "Q"},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
    ]


def test_truncated_answer_ends_with_a_notice():
    *_, notice = without_usage(gemini().stream(events(chunk({"text": "Half"}, finish="MAX_TOKENS"))))

    assert isinstance(notice, ContentDelta)
    assert notice.text.endswith("limitation on context length.")


def error_reply(status: int, status_name: str, message: str, *details: Any) -> Reply:
    error = {"code": status, "message": message, "status": status_name}
    return whole({"error": error | ({"details": list(details)} if details else {})}, status)


BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


@pytest.mark.parametrize(
    ("play", "code", "requests"),
    [
        (error_reply(400, "INVALID_ARGUMENT", "API key not valid.", BAD_KEY), "AUTH_ERROR", 1),
        (error_reply(403, "PERMISSION_DENIED", f"not {KEY}"), "AUTH_ERROR", 1),
        (error_reply(400, "INVALID_ARGUMENT", "bad schema"), "INVALID_REQUEST", 1),
        (error_reply(404, "NOT_FOUND", "models/x is not found"), "MODEL_ERROR", 1),
        (error_reply(503, "UNAVAILABLE", "overloaded"), "SERVER_ERROR", 2),
        (whole([{"error": {"code": 500, "message": "x", "status": "INTERNAL"}}], 500), "SERVER_ERROR", 2),
        (events({"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}}), "RATE_LIMIT_EXCEEDED", 2),
        (events({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}), "CONTENT_FILTERED", 1),
        (events(chunk(finish="SAFETY")), "CONTENT_FILTERED", 1),
        (events(chunk(finish="MALFORMED_FUNCTION_CALL")), "SERVER_ERROR", 2),
        (events(chunk()), "SERVER_ERROR", 2),
        (events([1]), "SERVER_ERROR", 2),
        (events({"candidates": [1]}), "MODEL_ERROR", 1),
        (streamed(b"data: {rubbish\n\n"), "SERVER_ERROR", 2),
        (streamed(then="break"), "CONNECTION_ERROR", 2),
    ],
)
def test_vendor_error_has_its_code_and_no_key(play: Reply, code: str, requests: int):
    model = gemini()
    (error,) = without_usage(model.stream(play, retries=1))

    assert isinstance(error, ErrorDelta)
    assert error.code == code
    assert KEY not in error.detail
    assert len(model.server.requests) == requests


def test_rate_limited_request_is_retried_after_the_delay_in_the_error():
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}
    model = gemini()
    deltas = model.stream(
        error_reply(429, "RESOURCE_EXHAUSTED", "quota per minute", info),
        events(chunk({"text": "hi"}, finish="STOP")),
        retries=1,
    )

    assert without_usage(deltas) == [ContentDelta("hi")]
    assert model.waits == [7.5]


@pytest.mark.parametrize(("then", "code"), [("end", "SERVER_ERROR"), ("break", "CONNECTION_ERROR")])
def test_broken_stream_keeps_its_text_and_is_not_restarted(then: str, code: str):
    model = gemini()
    delta, error = without_usage(model.stream(events(chunk({"text": "Half"}), then=then), retries=5))

    assert delta == ContentDelta("Half")
    assert isinstance(error, ErrorDelta)
    assert error.code == code
    assert len(model.server.requests) == 1


def test_thoughts_are_streamed_as_reasoning_deltas():
    thought, text = chunk({"text": "Hm.", "thought": True}), chunk({"text": "hi"}, finish="STOP")

    assert without_usage(gemini().stream(events(thought, text))) == [ReasoningDelta("Hm."), ContentDelta("hi")]


def test_cancelled_stream_closes_the_connection_to_the_vendor():
    gemini().cancel_after_first_delta(events(chunk({"text": "Hi"}), then="hang"))


def test_tool_call_keeps_its_signature_over_the_openai_endpoint():
    extra = {"google": {"thought_signature": SIGNATURE}}
    function = {"name": "weather", "arguments": "{}"}
    call = {"id": "c1", "type": "function", "function": function, "extra_content": extra}
    reply = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    model = gemini("gemini-3-pro", dialect="openai")
    answer = model.complete(whole(reply), messages=conversation(extra), tools=[WEATHER])

    assert answer.calls == (ToolCall("c1", "weather", "{}", extra),)
    assert model.server.requests[0].target == "/v1/chat/completions"
    assert model.server.bodies[0]["messages"][2]["tool_calls"][0]["extra_content"] == extra
