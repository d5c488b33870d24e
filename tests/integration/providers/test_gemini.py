"""Gemini's own API, as the vendor's documentation shows it on the wire."""

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
from tests.integration.providers.asked import ASK, PIXEL, WEATHER, Asked, conversation, without_usage
from tests.vendor_server import Play, events, streamed, whole

KEY = "AIza-a-long-secret"
FIGURES = {"promptTokenCount": 4, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "totalTokenCount": 9}


def gemini(model: str = "gemini-2.5-flash", **extra: Any) -> Asked:
    return Asked("Gemini", model, KEY, extra=extra)


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **more}


def test_an_answer_is_streamed_with_its_usage_at_the_end():
    model = gemini()
    last = chunk({"text": "lo"}, finish="STOP", usageMetadata=FIGURES)
    deltas = model.stream(events(chunk({"text": "Hel"}, usageMetadata={"promptTokenCount": 4}), last))

    (asked,) = model.server.requests
    assert deltas == [ContentDelta("Hel"), ContentDelta("lo"), UsageDelta(Usage(4, 5, 9, calls=1))]
    assert asked.target == "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    assert asked.headers["x-goog-api-key"] == KEY
    assert KEY not in asked.target
    assert asked.json == {
        "contents": [{"role": "user", "parts": [{"text": "Q"}]}],
        "systemInstruction": {"parts": [{"text": "S"}]},
    }


def test_a_whole_answer_keeps_its_thoughts_apart():
    model = gemini()
    answer = model.complete(
        whole(chunk({"text": "Hm.", "thought": True}, {"text": "hi"}, finish="STOP")), params={"thinking": "enabled"}
    )

    assert (answer.text, answer.reasoning) == ("hi", "Hm.")
    assert model.server.requests[0].target.endswith(":generateContent")
    assert model.server.bodies[0]["generationConfig"] == {"thinkingConfig": {"includeThoughts": True}}


@pytest.mark.parametrize("body", [chunk(), {}, [], None, "text"])
def test_a_whole_reply_without_an_answer_is_a_failure(body: Any):
    answer = gemini().complete(whole(body))

    assert answer.error is not None
    assert answer.error.code in ("SERVER_ERROR", "MODEL_ERROR")


def test_a_whole_answer_need_not_say_that_it_ended():
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
def test_a_model_is_told_not_to_think_as_far_as_it_can_be(name: str, config: dict[str, Any] | None):
    model = gemini(name)
    model.complete(whole(chunk({"text": "hi"}, finish="STOP")), params={"thinking": "disabled"})

    assert model.server.bodies[0].get("generationConfig", {}).get("thinkingConfig") == config


def test_generation_parameters_are_said_in_the_vendors_words():
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


def test_calls_that_run_side_by_side_come_together_with_their_signature():
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


def test_results_of_calls_go_back_in_one_turn_behind_the_signed_calls():
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
def test_a_schema_that_says_more_than_geminis_own_kind_is_given_as_a_json_schema(schema: dict[str, Any], kind: str):
    model = gemini()
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    model.complete(whole(chunk({"text": "hi"}, finish="STOP")), tools=[tool])

    (declared,) = model.server.bodies[0]["tools"][0]["functionDeclarations"]
    assert declared == {"name": "f", kind: schema}


def test_an_image_belongs_to_the_last_question():
    model = gemini()
    model.complete(whole(chunk({"text": "a dot"}, finish="STOP")), messages=ASK, images=[PIXEL])

    assert model.server.bodies[0]["contents"][-1]["parts"] == [
        {"text": "Q"},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
    ]


def test_an_answer_that_was_cut_short_says_so():
    *_, notice = without_usage(gemini().stream(events(chunk({"text": "Half"}, finish="MAX_TOKENS"))))

    assert isinstance(notice, ContentDelta)
    assert notice.text.endswith("limitation on context length.")


def refused(status: int, word: str, message: str, *details: Any) -> Play:
    error = {"code": status, "message": message, "status": word}
    return whole({"error": error | ({"details": list(details)} if details else {})}, status)


BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


@pytest.mark.parametrize(
    ("play", "code", "requests"),
    [
        (refused(400, "INVALID_ARGUMENT", "API key not valid.", BAD_KEY), "AUTH_ERROR", 1),
        (refused(403, "PERMISSION_DENIED", f"not {KEY}"), "AUTH_ERROR", 1),
        (refused(400, "INVALID_ARGUMENT", "bad schema"), "INVALID_REQUEST", 1),
        (refused(404, "NOT_FOUND", "models/x is not found"), "MODEL_ERROR", 1),
        (refused(503, "UNAVAILABLE", "overloaded"), "SERVER_ERROR", 2),
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
def test_a_failure_is_told_by_its_kind_and_shows_no_key(play: Play, code: str, requests: int):
    model = gemini()
    (error,) = without_usage(model.stream(play, retries=1))

    assert isinstance(error, ErrorDelta)
    assert error.code == code
    assert KEY not in error.detail
    assert len(model.server.requests) == requests


def test_a_rate_limit_is_waited_for_as_long_as_the_error_says():
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}
    model = gemini()
    deltas = model.stream(
        refused(429, "RESOURCE_EXHAUSTED", "quota per minute", info),
        events(chunk({"text": "hi"}, finish="STOP")),
        retries=1,
    )

    assert without_usage(deltas) == [ContentDelta("hi")]
    assert model.waits == [7.5]


@pytest.mark.parametrize(("then", "code"), [("end", "SERVER_ERROR"), ("break", "CONNECTION_ERROR")])
def test_a_stream_that_breaks_off_keeps_what_was_said_and_is_not_begun_again(then: str, code: str):
    model = gemini()
    spoken, error = without_usage(model.stream(events(chunk({"text": "Half"}), then=then), retries=5))

    assert spoken == ContentDelta("Half")
    assert isinstance(error, ErrorDelta)
    assert error.code == code
    assert len(model.server.requests) == 1


def test_thoughts_are_streamed_as_thoughts():
    thought, text = chunk({"text": "Hm.", "thought": True}), chunk({"text": "hi"}, finish="STOP")

    assert without_usage(gemini().stream(events(thought, text))) == [ReasoningDelta("Hm."), ContentDelta("hi")]


def test_whoever_leaves_takes_the_vendors_work_along():
    gemini().leave_early(events(chunk({"text": "Hi"}), then="hang"))


def test_over_the_endpoint_for_openais_clients_a_call_keeps_its_signature():
    extra = {"google": {"thought_signature": "sig"}}
    function = {"name": "weather", "arguments": "{}"}
    called = {"id": "c1", "type": "function", "function": function, "extra_content": extra}
    reply = {"choices": [{"message": {"content": None, "tool_calls": [called]}, "finish_reason": "tool_calls"}]}
    model = gemini("gemini-3-pro", dialect="openai")
    answer = model.complete(whole(reply), messages=conversation(extra), tools=[WEATHER])

    assert answer.calls == (ToolCall("c1", "weather", "{}", extra),)
    assert model.server.requests[0].target == "/v1/chat/completions"
    assert model.server.bodies[0]["messages"][2]["tool_calls"][0]["extra_content"] == extra
