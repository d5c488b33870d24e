"""`easel models test`: every kind of model gets a test request, and errors are reported."""

import asyncio
import io
import wave
from typing import Any

import pytest

from canvas.errors import InvalidRequest, ModelError
from cli.models.model_test import RECORDING_SECONDS, ModelTest, ModelTestResult, make_empty_recording, resolve_model
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.models.billing.metering import Meter
from providers.models.chat.catalogue import RequestLimits
from providers.models.transport.clients import close_connections
from providers.models.vendors.accounts import AccountModel, VendorAccount
from tests.vendor_server import Reply, VendorServer, vendor_server, whole

FACTORY = "OpenAI-API-Compatible"
MODEL = f"m@{FACTORY}"


def account(url: str = "http://model.test/v1", *kinds: str, instance: str = "default") -> VendorAccount:
    models = {"m": AccountModel(kinds=frozenset(kinds or ("chat",)))}
    return VendorAccount(FACTORY, instance, base_url=url, api_key="sk-a-secret-key", models=models)


def run_model_test(
    kind: str, *plays: Reply, model: str = MODEL, instance: str = "default"
) -> tuple[ModelTestResult, VendorServer]:
    async def run() -> tuple[ModelTestResult, VendorServer]:
        async with vendor_server(*plays) as server:
            spec, found = resolve_model(model, [account(server.url, kind, instance=instance)])
            assert found == kind
            http = HttpClient(Guard.parse())
            try:
                return await ModelTest(spec, kind, RequestLimits(), Meter(spec, kind), http).run(), server
            finally:
                await http.aclose()
                await close_connections()

    return asyncio.run(run())


def vectors(*found: list[float]) -> Reply:
    return whole({"data": [{"index": at, "embedding": vector} for at, vector in enumerate(found)]})


def ranks(*scores: float) -> Reply:
    return whole({"results": [{"index": at, "relevance_score": score} for at, score in enumerate(scores)]})


def test_embedding_model_test_reports_the_dimension():
    result, _ = run_model_test("embedding", vectors([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))

    assert result.error is None
    assert result.figures["dimension"] == 3
    assert "vectors of 3 numbers" in result.text


def test_embedding_model_test_fails_if_all_texts_have_one_vector():
    result, _ = run_model_test("embedding", vectors([1.0, 0.0], [1.0, 0.0]))

    assert result.error == "It returns the same vector for different texts."


def test_rerank_model_test_fails_unless_the_right_text_is_first():
    right, _ = run_model_test("rerank", ranks(0.1, 0.9))
    wrong, _ = run_model_test("rerank", ranks(0.9, 0.1))

    assert (right.error, right.figures["scores"]) == (None, [0.1, 0.9])
    assert wrong.error is not None
    assert "ranks the wrong text first" in wrong.error


def test_speech_model_test_synthesizes_a_word():
    result, server = run_model_test("tts", whole(b"ID3-some-audio", content_type="audio/mpeg"))

    assert (result.error, result.figures) == (None, {"bytes": 14})
    assert server.requests[0].json["input"] == "Ready."


def test_transcription_model_test_sends_an_empty_recording():
    result, server = run_model_test("asr", whole({"text": ""}))

    assert (result.error, result.figures) == (None, {"transcript": ""})
    assert make_empty_recording() in server.requests[0].content
    with wave.open(io.BytesIO(make_empty_recording())) as recording:
        assert recording.getnframes() / recording.getframerate() == RECORDING_SECONDS


TOOL_CALLS = [{"id": "c", "type": "function", "function": {"name": "report_ready", "arguments": "{}"}}]
TOOL_CALL_REPLY = {"choices": [{"message": {"content": None, "tool_calls": TOOL_CALLS}, "finish_reason": "tool_calls"}]}
READY_REPLY = {"choices": [{"message": {"content": "ready"}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("reply", "status", "tools"),
    [
        (TOOL_CALL_REPLY, 200, "called"),
        (READY_REPLY, 200, "not called"),
        ({"error": {"message": "m does not support tools"}}, 400, "refused"),
    ],
)
def test_chat_model_test_reports_whether_the_model_calls_tools(reply: dict[str, Any], status: int, tools: str):
    result, server = run_model_test("chat", whole(READY_REPLY), whole(reply, status))

    assert (result.error, result.figures) == (None, {"tools": tools})
    assert f"tools: {tools}" in result.text
    assert "tools" not in server.requests[0].json
    assert server.requests[1].json["tools"][0]["function"]["name"] == "report_ready"
    assert ("--no-tools" in result.text) == (tools == "refused")


@pytest.mark.parametrize("kind", ["chat", "embedding", "rerank", "tts", "asr"])
def test_model_test_error_has_the_vendors_text_without_the_key(kind: str):
    result, server = run_model_test(kind, whole({"error": {"message": "bad key sk-a-secret-key"}}, 401))

    assert result.error is not None
    assert "bad key" in result.error
    assert "sk-a-secret-key" not in result.error
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("kind", "play"),
    [
        ("chat", whole({"choices": [{"message": {"content": "ready"}, "finish_reason": "stop"}]})),
        ("embedding", vectors([1.0, 0.0], [0.0, 1.0])),
        ("rerank", ranks(0.1, 0.9)),
        ("tts", whole(b"ID3-some-audio", content_type="audio/mpeg")),
        ("asr", whole({"text": ""})),
    ],
)
def test_ragflow_suffix_of_a_model_name_is_not_sent_to_the_server(kind: str, play: Reply):
    result, server = run_model_test(kind, play, model=f"m___OpenAI-API@{FACTORY}#admin", instance="admin")

    assert result.error is None
    assert server.requests
    for request in server.requests:
        assert b"___OpenAI-API" not in request.content
        assert b'name="model"\r\n\r\nm\r\n' in request.content if kind == "asr" else request.json["model"] == "m"


def test_unused_kind_and_wrong_kind_of_a_model_are_refused():
    with pytest.raises(InvalidRequest, match="Easel does not use models of the kind ocr"):
        resolve_model(MODEL, [account()], "ocr")
    with pytest.raises(ModelError, match="cannot be used as rerank"):
        resolve_model(MODEL, [account()], "rerank")
    with pytest.raises(ModelError, match="cannot be used as chat"):
        resolve_model(MODEL, [account("http://model.test/v1", "ocr")])


def test_kind_of_a_model_is_that_of_its_account_or_chat():
    accounts = [account("http://m.test/v1", *kinds) for kinds in ((), ("asr",), ("rerank", "tts"))]

    assert [resolve_model(MODEL, [each])[1] for each in accounts] == ["chat", "asr", "rerank"]
