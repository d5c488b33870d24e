"""Transcription models over HTTP, against a local server with scripted replies."""

import asyncio
from typing import Any

import pytest

from canvas.errors import ModelError
from providers.models.audio.transcription import KIND, MAX_AUDIO_BYTES, Recording, open_transcriber
from providers.models.chat.catalogue import resolve
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.transport.clients import close_connections
from providers.models.vendors.accounts import AccountModel, VendorAccount
from providers.models.wires.openai_sdk import RequestLimits
from tests.integration.providers.scripted_vendor import Waits
from tests.vendor_server import Reply, VendorServer, vendor_server, whole

VOICE = Recording("memo.mp3", b"ID3\x00audio", "audio/mpeg")


def transcribe(
    *plays: Reply, recording: Recording = VOICE, factory: str = "Groq", **extra: Any
) -> tuple[str, VendorServer]:
    async def send() -> tuple[str, VendorServer]:
        async with vendor_server(*plays) as server:
            models = {"whisper-1": AccountModel(kinds=frozenset({KIND}))}
            account = VendorAccount(factory, base_url=server.url, api_key="sk-a-secret-key", models=models, extra=extra)
            spec = resolve(f"whisper-1@{factory}", [account], kind=KIND)
            transcriber = open_transcriber(spec, RequestLimits(), RetryPolicy(Waits(), lambda: 1.0, retries=1))
            try:
                return await transcriber.transcribe(recording, language="en"), server
            finally:
                await close_connections()

    return asyncio.run(send())


def test_recording_is_sent_as_a_form_and_its_text_is_returned():
    text, server = transcribe(whole({"text": " Hello world. "}), asr_fields={"temperature": 0})

    (request,) = server.requests
    assert text == "Hello world."
    assert (request.method, request.target) == ("POST", "/v1/audio/transcriptions")
    assert request.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b'name="file"; filename="memo.mp3"\r\nContent-Type: audio/mpeg\r\n\r\nID3\x00audio\r\n' in request.content
    for name, value in (("model", "whisper-1"), ("language", "en"), ("temperature", "0")):
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in request.content


def test_transient_error_is_retried():
    text, server = transcribe(whole({"error": {"message": "busy"}}, 503), whole({"text": "hi"}))

    assert (text, len(server.requests)) == ("hi", 2)


@pytest.mark.parametrize(
    ("play", "message"),
    [
        (whole({"error": {"message": "bad sk-a-secret-key"}}, 401), r"AUTH_ERROR - bad \*\*\*"),
        (whole({"words": []}), "MODEL_ERROR - The provider's answer contains no text"),
        (whole({"error": {"message": "invalid audio format"}}), "INVALID_REQUEST - invalid audio format"),
    ],
)
def test_response_without_a_transcript_is_an_error_without_the_key(play: Reply, message: str):
    with pytest.raises(ModelError, match=message):
        transcribe(play)


def test_a_recording_that_is_too_large_is_not_sent():
    with pytest.raises(ModelError, match="Send it in parts"):
        transcribe(recording=Recording("long.wav", bytes(MAX_AUDIO_BYTES + 1), "audio/wav"))


def test_empty_recording_is_not_sent():
    text, server = transcribe(recording=Recording("empty.wav", b"", "audio/wav"))

    assert (text, server.requests) == ("", [])


def test_vendor_without_transcription_models_is_refused():
    with pytest.raises(ModelError, match="Models of Anthropic cannot be used as asr"):
        transcribe(factory="Anthropic")
