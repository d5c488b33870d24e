"""Chat models over Anthropic's Messages API, with replies as in the vendor's documentation."""

import sys
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

KEY = "sk-ant-a-long-secret"


def claude(**extra: Any) -> ScriptedVendor:
    return ScriptedVendor("Anthropic", "claude-sonnet-4-5", KEY, extra=extra)


def message(*content: Any, stop: str = "end_turn", **usage: int) -> dict[str, Any]:
    figures = usage or {"input_tokens": 3, "output_tokens": 2}
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": list(content), "stop_reason": stop,
            "usage": figures}  # fmt: skip


def message_start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": usage or {"input_tokens": 25}}}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(*texts: str, index: int = 0) -> list[dict[str, Any]]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": part} for part in texts))


def message_end(stop: str = "end_turn", tokens: int = 15) -> list[dict[str, Any]]:
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}}, {"type": "message_stop"}]


def event_stream(*parts: Any, then: str = "end") -> Reply:
    flat = [event for part in parts for event in (part if isinstance(part, list) else [part])]
    return events(*flat, named=True, then=then)


def test_an_answer_is_streamed_with_its_usage_at_the_end():
    model = claude()
    deltas = model.stream(event_stream(message_start(), {"type": "ping"}, text("Hel", "lo"), message_end()))

    (request,) = model.server.requests
    assert deltas == [ContentDelta("Hel"), ContentDelta("lo"), UsageDelta(Usage(25, 15, 40, calls=1))]
    assert request.target == "/v1/messages"
    assert (request.headers["authorization"], request.headers["anthropic-version"]) == (f"Bearer {KEY}", "2026-10-21")
    assert "x-api-key" not in request.headers
    assert request.json == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 32_000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Q"}]}],
        "system": "S",
        "stream": True,
    }


def test_cached_tokens_count_as_prompt_tokens():
    model = claude()
    usage: dict[str, Any] = {
        "input_tokens": 1,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 4,
        "output_tokens": 2,
    }
    answer = model.complete(whole(message({"type": "text", "text": "hi"}, **usage)))

    assert (answer.text, answer.usage) == ("hi", Usage(10, 2, 12, calls=1))
    assert "stream" not in model.server.bodies[0]


def test_sampling_parameters_are_not_sent_because_the_api_refuses_them():
    model = claude()
    params = {"temperature": 0.1, "top_p": 0.9, "max_tokens": 50, "stop": ["END"]}
    model.complete(whole(message({"type": "text", "text": "hi"})), params=params)

    assert not {"temperature", "top_p", "top_k"} & model.server.bodies[0].keys()
    assert model.server.bodies[0]["stop_sequences"] == ["END"]


def test_missing_sdk_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "anthropic", None)

    answer = claude().complete(whole(message({"type": "text", "text": "hi"})))

    assert answer.error is not None
    assert "pip install easel[anthropic]" in answer.error.detail


def test_nothing_of_the_environment_reaches_the_vendor(monkeypatch: pytest.MonkeyPatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "sk-ant-of-the-operator")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "Authorization: Bearer sk-ant-of-the-operator")
    model = claude()

    answer = model.complete(whole(message({"type": "text", "text": "hi"})))

    assert answer.text == "hi"
    assert "of-the-operator" not in str(model.server.requests[0].headers)


def test_generation_parameters_of_the_version_before_have_the_vendors_names():
    model = claude(set_params={"top_k": 5}, anthropic_version="2023-06-01")
    params = {"temperature": 1.4, "top_p": 0.9, "max_tokens": 50, "stop": ["END"], "presence_penalty": 0.3}
    model.complete(whole(message({"type": "text", "text": "hi"})), params=params)

    body = model.server.bodies[0]
    assert {name: body.get(name) for name in ("max_tokens", "temperature", "stop_sequences", "top_k")} == {
        "max_tokens": 50, "temperature": 1.0, "stop_sequences": ["END"], "top_k": 5,
    }  # fmt: skip
    assert not {"top_p", "presence_penalty", "stop"} & body.keys()


def test_parallel_tool_calls_arrive_together_with_their_reasoning():
    thought = block(
        0,
        {"type": "thinking", "thinking": ""},
        {"type": "thinking_delta", "thinking": "Two "},
        {"type": "thinking_delta", "thinking": "cities."},
        {"type": "signature_delta", "signature": "sig"},
    )
    first = block(
        1,
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"city": '},
        {"type": "input_json_delta", "partial_json": '"Rome"}'},
    )
    second = block(2, {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {}})
    model = claude()
    deltas = model.stream(
        event_stream(message_start(), thought, first, second, message_end("tool_use")),
        tools=[WEATHER],
        params={"thinking": "enabled"},
    )

    signature = {"anthropic": [{"type": "thinking", "thinking": "Two cities.", "signature": "sig"}]}
    assert without_usage(deltas) == [
        ReasoningDelta("Two "),
        ReasoningDelta("cities."),
        CallsDelta((
            ToolCall("toolu_1", "weather", '{"city": "Rome"}', signature),
            ToolCall("toolu_2", "weather", "{}"),
        )),
    ]  # fmt: skip
    body = model.server.bodies[0]
    assert body["tools"] == [
        {"name": "weather", "description": "Of a city", "input_schema": WEATHER["function"]["parameters"]}
    ]
    assert body["tool_choice"] == {"type": "auto"}
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 16_000}


def test_tool_results_are_one_user_message_after_the_calls_and_their_reasoning():
    signature = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    model = claude()
    model.complete(
        whole(message({"type": "text", "text": "done"})),
        messages=conversation({"anthropic": [signature]}),
        tools=[WEATHER],
    )

    assert model.server.bodies[0]["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Q"}]},
        {
            "role": "assistant",
            "content": [
                signature,
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}},
                {"type": "tool_use", "id": "c2", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "(nothing)"},
                {"type": "text", "text": "And?"},
            ],
        },
    ]


def test_request_without_tools_declares_the_tools_of_earlier_calls():
    model = claude()
    model.complete(whole(message({"type": "text", "text": "done"})), messages=conversation())

    body = model.server.bodies[0]
    assert [tool["name"] for tool in body["tools"]] == ["weather"]
    assert body["tool_choice"] == {"type": "none"}


def test_image_is_sent_with_the_last_user_message():
    model = claude()
    messages = [MESSAGES[1], {"role": "assistant", "content": "A"}, {"role": "user", "content": "What is it?"}]
    model.complete(whole(message({"type": "text", "text": "a dot"})), messages=messages, images=[PIXEL])

    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert model.server.bodies[0]["messages"][-1]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "source": source},
    ]


@pytest.mark.parametrize(
    ("stop", "ending"),
    [("max_tokens", "limitation on context length."), ("model_context_window_exceeded", "context length.")],
)
def test_truncated_answer_ends_with_a_notice(stop: str, ending: str):
    deltas = claude().stream(event_stream(message_start(), text("Half"), message_end(stop)))

    *_, notice = without_usage(deltas)
    assert isinstance(notice, ContentDelta)
    assert notice.text.endswith(ending)


def test_refusal_without_text_is_an_error():
    deltas = claude().stream(event_stream(message_start(), message_end("refusal")))

    assert [delta.code for delta in deltas if isinstance(delta, ErrorDelta)] == ["CONTENT_FILTERED"]


def error_reply(status: int, kind: str, message: str, **headers: str) -> Reply:
    return whole({"type": "error", "error": {"type": kind, "message": message}}, status, **headers)


@pytest.mark.parametrize(
    ("play", "code", "requests"),
    [
        (error_reply(401, "authentication_error", f"invalid x-api-key {KEY}"), "AUTH_ERROR", 1),
        (error_reply(400, "invalid_request_error", "max_tokens: too many"), "INVALID_REQUEST", 1),
        (error_reply(404, "not_found_error", "model: claude-x"), "MODEL_ERROR", 1),
        (error_reply(413, "request_too_large", "too large"), "INVALID_REQUEST", 1),
        (error_reply(500, "api_error", "Internal"), "SERVER_ERROR", 2),
        (error_reply(529, "overloaded_error", "Overloaded"), "SERVER_ERROR", 2),
        (whole("<html>bad gateway</html>", 502, content_type="text/html"), "SERVER_ERROR", 2),
        (
            event_stream(message_start(), {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}),
            "SERVER_ERROR",
            2,
        ),
        (event_stream(message_start()), "SERVER_ERROR", 2),
        (event_stream(message_start(), then="break"), "CONNECTION_ERROR", 2),
        (streamed(b"data: {rubbish\n\n"), "SERVER_ERROR", 2),
    ],
)
def test_vendor_error_has_its_code_and_no_key(play: Reply, code: str, requests: int):
    model = claude()
    deltas = model.stream(play, retries=1)

    (error,) = without_usage(deltas)
    assert isinstance(error, ErrorDelta)
    assert error.code == code
    assert KEY not in error.detail
    assert len(model.server.requests) == requests


def test_rate_limited_request_is_retried_after_the_vendors_delay():
    model = claude()
    deltas = model.stream(
        error_reply(429, "rate_limit_error", "slow down", retry_after="7"),
        event_stream(message_start(), text("hi"), message_end()),
        retries=1,
    )

    assert without_usage(deltas) == [ContentDelta("hi")]
    assert model.waits == [7.0]


@pytest.mark.parametrize(
    ("play", "code"),
    [
        (event_stream(message_start(), text("Half")), "SERVER_ERROR"),
        (event_stream(message_start(), text("Half"), then="break"), "CONNECTION_ERROR"),
        (
            event_stream(
                message_start(),
                text("Half"),
                {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
            ),
            "SERVER_ERROR",
        ),
    ],
)
def test_broken_stream_keeps_its_text_and_is_not_restarted(play: Reply, code: str):
    model = claude()
    delta, error = without_usage(model.stream(play, retries=5))

    assert delta == ContentDelta("Half")
    assert isinstance(error, ErrorDelta)
    assert error.code == code
    assert len(model.server.requests) == 1


@pytest.mark.parametrize("body", ["[]", '"text"', '{"content": 3}', "null"])
def test_malformed_reply_is_an_error(body: str):
    answer = claude().complete(whole(body))

    assert answer.error is not None
    assert answer.error.code == "MODEL_ERROR"


def test_cancelled_stream_closes_the_connection_to_the_vendor():
    claude().cancel_after_first_delta(event_stream(message_start(), text("Hi"), then="hang"))
