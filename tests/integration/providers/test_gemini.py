"""Chat models over Gemini's own API, with replies as in the vendor's documentation."""

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
FIGURES = {"promptTokenCount": 4, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "totalTokenCount": 9}


def gemini(model: str = "gemini-2.5-flash", **extra: Any) -> ScriptedVendor:
    return ScriptedVendor("Gemini", model, KEY, extra=extra)


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **more}


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
    }


def test_complete_answer_separates_reasoning_from_text():
    model = gemini()
    answer = model.complete(
        whole(chunk({"text": "Hm.", "thought": True}, {"text": "hi"}, finish="STOP")), params={"thinking": "enabled"}
    )

    assert (answer.text, answer.reasoning) == ("hi", "Hm.")
    assert model.server.requests[0].target.endswith(":generateContent")
    assert model.server.bodies[0]["generationConfig"] == {"thinkingConfig": {"includeThoughts": True}}


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
        ("gemini-3-pro-preview", {"thinkingLevel": "low"}),
        ("gemini-2.0-flash", None),
    ],
)
def test_disabled_thinking_is_sent_as_the_model_supports_it(name: str, config: dict[str, Any] | None):
    model = gemini(name)
    model.complete(whole(chunk({"text": "hi"}, finish="STOP")), params={"thinking": "disabled"})

    assert model.server.bodies[0].get("generationConfig", {}).get("thinkingConfig") == config


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

    assert model.server.bodies[0]["generationConfig"] == {
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
    first = {"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": "sig"}
    second = {"functionCall": {"name": "weather", "args": {"city": "Köln"}, "id": "f2"}}
    deltas = model.stream(events(chunk(first, second, finish="STOP", usageMetadata=FIGURES)), tools=[WEATHER])

    assert without_usage(deltas) == [
        CallsDelta(
            (
                ToolCall("call_0", "weather", '{"city": "Rome"}', {"google": {"thought_signature": "sig"}}),
                ToolCall("f2", "weather", '{"city": "Köln"}'),
            )
        )
    ]
    assert model.server.bodies[0]["tools"] == [{"functionDeclarations": [WEATHER["function"]]}]
    assert model.server.bodies[0]["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}


def test_tool_results_are_one_user_message_after_the_signed_calls():
    model = gemini()
    model.complete(
        whole(chunk({"text": "done"}, finish="STOP")),
        messages=conversation({"google": {"thought_signature": "sig"}}),
        tools=[WEATHER],
    )

    assert model.server.bodies[0]["contents"] == [
        {"role": "user", "parts": [{"text": "Q"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Looking."},
                {"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": "sig"},
                {"functionCall": {"name": "weather", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "weather", "response": {"result": "sunny"}}},
                {"functionResponse": {"name": "weather", "response": {"result": ""}}},
                {"text": "And?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}, "parameters"),
        ({"type": "object", "properties": {"type": {"type": "string", "enum": ["x"]}}}, "parameters"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}}, "parametersJsonSchema"),
        ({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}, "parametersJsonSchema"),
        ({"type": "object", "properties": {"a": {"type": "integer", "enum": [1]}}}, "parametersJsonSchema"),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, "parametersJsonSchema"),
        ({"type": "object", "properties": {"a": True}}, "parametersJsonSchema"),
    ],
)
def test_schema_beyond_geminis_own_format_is_sent_as_a_json_schema(schema: dict[str, Any], kind: str):
    model = gemini()
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    model.complete(whole(chunk({"text": "hi"}, finish="STOP")), tools=[tool])

    (declared,) = model.server.bodies[0]["tools"][0]["functionDeclarations"]
    assert declared == {"name": "f", kind: schema}


def test_image_is_sent_with_the_last_user_message():
    model = gemini()
    model.complete(whole(chunk({"text": "a dot"}, finish="STOP")), messages=MESSAGES, images=[PIXEL])

    assert model.server.bodies[0]["contents"][-1]["parts"] == [
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
        (events([1]), "MODEL_ERROR", 1),
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
    extra = {"google": {"thought_signature": "sig"}}
    function = {"name": "weather", "arguments": "{}"}
    call = {"id": "c1", "type": "function", "function": function, "extra_content": extra}
    reply = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    model = gemini("gemini-3-pro", dialect="openai")
    answer = model.complete(whole(reply), messages=conversation(extra), tools=[WEATHER])

    assert answer.calls == (ToolCall("c1", "weather", "{}", extra),)
    assert model.server.requests[0].target == "/v1/chat/completions"
    assert model.server.bodies[0]["messages"][2]["tool_calls"][0]["extra_content"] == extra
