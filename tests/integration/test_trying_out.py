"""`easel models test`: every kind of model is asked what it is for, and what is wrong is told."""

import asyncio
import io
import wave
from typing import Any

import pytest

from canvas.errors import InvalidRequest, ModelError
from cli.models.model_test import RECORDING_SECONDS, ModelTest, ModelTestResult, make_empty_recording, resolve_model
from providers.http.address_policy import Guard
from providers.http.client import HttpClient
from providers.models.billing.metering import Meter
from providers.models.chat.catalogue import RequestLimits
from providers.models.transport.clients import close_connections
from providers.models.vendors.accounts import AccountModel, VendorAccount
from tests.vendor_server import Play, VendorServer, vendor_server, whole

FACTORY = "OpenAI-API-Compatible"
MODEL = f"m@{FACTORY}"


def account(url: str = "http://model.test/v1", *kinds: str, instance: str = "default") -> VendorAccount:
    models = {"m": AccountModel(kinds=frozenset(kinds or ("chat",)))}
    return VendorAccount(FACTORY, instance, base_url=url, api_key="sk-a-secret-key", models=models)


def tried(
    kind: str, *plays: Play, model: str = MODEL, instance: str = "default"
) -> tuple[ModelTestResult, VendorServer]:
    async def ask() -> tuple[ModelTestResult, VendorServer]:
        async with vendor_server(*plays) as server:
            spec, found = resolve_model(model, [account(server.url, kind, instance=instance)])
            assert found == kind
            http = HttpClient(Guard.parse())
            try:
                return await ModelTest(spec, kind, RequestLimits(), Meter(spec, kind), http).run(), server
            finally:
                await http.aclose()
                await close_connections()

    return asyncio.run(ask())


def vectors(*found: list[float]) -> Play:
    return whole({"data": [{"index": at, "embedding": vector} for at, vector in enumerate(found)]})


def ranks(*scores: float) -> Play:
    return whole({"results": [{"index": at, "relevance_score": score} for at, score in enumerate(scores)]})


def test_a_model_of_vectors_tells_how_many_numbers_they_have():
    told, _ = tried("embedding", vectors([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))

    assert told.error is None
    assert told.figures["dimension"] == 3
    assert "vectors of 3 numbers" in told.text


def test_a_model_that_gives_every_text_one_vector_is_no_good():
    told, _ = tried("embedding", vectors([1.0, 0.0], [1.0, 0.0]))

    assert told.error == "It returns the same vector for different texts."


def test_a_model_of_ranks_must_put_the_right_text_first():
    right, _ = tried("rerank", ranks(0.1, 0.9))
    wrong, _ = tried("rerank", ranks(0.9, 0.1))

    assert (right.error, right.figures["scores"]) == (None, [0.1, 0.9])
    assert wrong.error is not None
    assert "ranks the wrong text first" in wrong.error


def test_a_model_of_speech_says_a_word():
    told, server = tried("tts", whole(b"ID3-some-audio", content_type="audio/mpeg"))

    assert (told.error, told.figures) == (None, {"bytes": 14})
    assert server.requests[0].json["input"] == "Ready."


def test_a_model_of_transcripts_hears_silence():
    told, server = tried("asr", whole({"text": ""}))

    assert (told.error, told.figures) == (None, {"transcript": ""})
    assert make_empty_recording() in server.requests[0].content
    with wave.open(io.BytesIO(make_empty_recording())) as recording:
        assert recording.getnframes() / recording.getframerate() == RECORDING_SECONDS


CALLS = [{"id": "c", "type": "function", "function": {"name": "report_ready", "arguments": "{}"}}]
CALLED = {"choices": [{"message": {"content": None, "tool_calls": CALLS}, "finish_reason": "tool_calls"}]}
READY = {"choices": [{"message": {"content": "ready"}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("reply", "status", "tools"),
    [
        (CALLED, 200, "called"),
        (READY, 200, "not called"),
        ({"error": {"message": "m does not support tools"}}, 400, "refused"),
    ],
)
def test_chat_model_tells_whether_it_calls_tools(reply: dict[str, Any], status: int, tools: str):
    told, server = tried("chat", whole(READY), whole(reply, status))

    assert (told.error, told.figures) == (None, {"tools": tools})
    assert f"tools: {tools}" in told.text
    assert "tools" not in server.requests[0].json
    assert server.requests[1].json["tools"][0]["function"]["name"] == "report_ready"
    assert ("--no-tools" in told.text) == (tools == "refused")


@pytest.mark.parametrize("kind", ["chat", "embedding", "rerank", "tts", "asr"])
def test_a_vendor_that_refuses_is_told_in_its_words_and_without_the_key(kind: str):
    told, server = tried(kind, whole({"error": {"message": "bad key sk-a-secret-key"}}, 401))

    assert told.error is not None
    assert "bad key" in told.error
    assert "sk-a-secret-key" not in told.error
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
def test_server_of_a_model_that_ragflow_stored_with_a_suffix_sees_the_name_without_it(kind: str, play: Play):
    told, server = tried(kind, play, model=f"m___OpenAI-API@{FACTORY}#admin", instance="admin")

    assert told.error is None
    assert server.requests
    for request in server.requests:
        assert b"___OpenAI-API" not in request.content
        assert b'name="model"\r\n\r\nm\r\n' in request.content if kind == "asr" else request.json["model"] == "m"


def test_a_kind_that_nothing_asks_and_a_model_that_is_not_so_are_refused():
    with pytest.raises(InvalidRequest, match="Easel does not use models of the kind ocr"):
        resolve_model(MODEL, [account()], "ocr")
    with pytest.raises(ModelError, match="cannot be used as rerank"):
        resolve_model(MODEL, [account()], "rerank")
    with pytest.raises(ModelError, match="cannot be used as chat"):
        resolve_model(MODEL, [account("http://model.test/v1", "ocr")])


def test_what_a_model_is_tried_as_is_what_its_account_says_else_chat():
    accounts = [account("http://m.test/v1", *kinds) for kinds in ((), ("asr",), ("rerank", "tts"))]

    assert [resolve_model(MODEL, [each])[1] for each in accounts] == ["chat", "asr", "rerank"]
