"""Speech over OpenAI's wire: requests, cache and failures."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from canvas.errors import HttpFailed, ModelError
from providers.interfaces import HttpCall, HttpResponse
from providers.models.audio.tts import MemoryAudioCache, OpenAISpeech, SpeechSettings, speech_settings_of
from providers.models.types.chat import ModelSpec
from tests.fakes import FakeHttp

AUDIO = b"ID3\x00audio"


def reply(status: int = 200, content: bytes = AUDIO, kind: str = "audio/mpeg") -> HttpResponse:
    return HttpResponse(status, {"content-type": kind}, content, "")


def model(factory: str = "OpenAI", extra: Mapping[str, Any] | None = None) -> ModelSpec:
    return ModelSpec(
        f"tts-1@{factory}",
        "tts-1",
        factory,
        "https://tts.test/v1/",
        "sk-a-long-secret",
        frozenset({"tts"}),
        extra=extra or {},
    )


def answering(answer: HttpResponse) -> FakeHttp:
    return FakeHttp(lambda call: answer)


def speech(http: Any, spec: ModelSpec | None = None, **kwargs: Any) -> OpenAISpeech:
    return OpenAISpeech(spec or model(), http, "t1", **{"cache": MemoryAudioCache(), **kwargs})


def test_sentence_is_sent_with_its_voice_and_its_audio_is_returned():
    http = answering(reply())

    audio = asyncio.run(speech(http).synthesize("Hello."))

    (call,) = http.calls
    assert audio == AUDIO
    assert (call.method, call.url) == ("POST", "https://tts.test/v1/audio/speech")
    assert call.json == {"model": "tts-1", "voice": "alloy", "input": "Hello."}
    assert call.headers == {"Authorization": "Bearer sk-a-long-secret"}
    assert call.timeout == 60


@pytest.mark.parametrize(
    ("spec", "body"),
    [
        (
            model("SILICONFLOW"),
            {"voice": "tts-1:anna", "response_format": "mp3", "sample_rate": 32000},
        ),
        (model("StepFun"), {"voice": "cixingnansheng"}),
        (
            model(extra={"tts_voice": "nova", "tts_format": "wav", "tts_fields": {"speed": 1.2, "model": "other"}}),
            {"voice": "nova", "response_format": "wav", "speed": 1.2},
        ),
        (model("StepFun", {"tts_voice": "mine"}), {"voice": "mine"}),
    ],
)
def test_voice_format_and_extra_fields_come_from_the_account_or_the_vendor(spec: ModelSpec, body: dict[str, Any]):
    http = answering(reply())

    asyncio.run(speech(http, spec).synthesize("Hi"))

    assert http.calls[0].json == {"model": "tts-1", "input": "Hi", **body}


@pytest.mark.parametrize(
    ("text", "spoken"),
    [("Hello **world**.", "Hello world."), ("# Title", "Title"), ("As said ##12$$ here", "As said here")],
)
def test_markup_is_removed_from_spoken_text(text: str, spoken: str):
    http = answering(reply())

    asyncio.run(speech(http).synthesize(text))

    assert http.calls[0].json["input"] == spoken


def test_sentence_of_only_markup_sends_no_request():
    assert asyncio.run(speech(FakeHttp(pytest.fail)).synthesize("** ##1$$ #")) == b""


@pytest.mark.parametrize(
    ("answer", "message", "retryable"),
    [
        (reply(500, b"out of breath", "text/plain"), "**Error**: 500, out of breath", True),
        (reply(401, b"bad key sk-a-long-secret", "text/plain"), "**Error**: 401, bad key ***", False),
        (reply(200, b'{"error": "quota"}', "application/json"), '**Error**: 200, {"error": "quota"}', False),
        (reply(200, b""), "**Error**: 200, ", False),
    ],
)
def test_response_without_audio_is_a_failure_that_hides_the_key(answer: HttpResponse, message: str, retryable: bool):
    with pytest.raises(ModelError) as failed:
        asyncio.run(speech(answering(answer)).synthesize("Hi"))

    assert failed.value.message == message
    assert failed.value.retryable is retryable


def test_missing_answer_is_a_model_error():
    def fail_to_connect(call: HttpCall) -> HttpResponse:
        raise HttpFailed("No answer from tts.test.", retryable=True)

    with pytest.raises(ModelError, match=r"No answer from tts\.test\."):
        asyncio.run(speech(FakeHttp(fail_to_connect)).synthesize("Hi"))


def test_a_model_without_an_address_is_refused():
    with pytest.raises(ModelError, match="base_url"):
        speech(answering(reply()), ModelSpec("x", "x", "Nobody", None))


def test_same_sentence_is_requested_once_even_by_concurrent_calls():
    class Slow(FakeHttp):
        async def send(self, call: HttpCall) -> HttpResponse:
            await asyncio.sleep(0)
            return await super().send(call)

    http = Slow(lambda call: reply())
    voice = speech(http)

    async def thrice() -> list[bytes]:
        together = await asyncio.gather(voice.synthesize("Ha!"), voice.synthesize("**Ha!**"))
        return [*together, await voice.synthesize("Ha!")]

    assert asyncio.run(thrice()) == [AUDIO] * 3
    assert len(http.calls) == 1


def test_audio_is_not_shared_between_tenants_voices_or_formats():
    http, cache = answering(reply()), MemoryAudioCache()
    voices = [
        OpenAISpeech(model(), http, "t1", cache=cache),
        OpenAISpeech(model(), http, "t2", cache=cache),
        OpenAISpeech(model(), http, "t1", cache=cache, speech_settings=SpeechSettings(voice="nova")),
        OpenAISpeech(model(), http, "t1", cache=cache, speech_settings=SpeechSettings(format="wav")),
        OpenAISpeech(model("StepFun"), http, "t1", cache=cache, speech_settings=SpeechSettings()),
    ]

    for voice in voices:
        asyncio.run(voice.synthesize("Hi"))

    assert len(http.calls) == len(voices)
    assert voices[3].key_of("Hi") == (
        "tts:cache:t1:tts-1@OpenAI:alloy:wav:3639efcd08abb273b1619e82e78c29a7df02c1051b1820e99fc395dcaa3326b8"
    )


def test_failure_is_not_cached():
    answers = [reply(500, b"", "text/plain"), reply()]
    http = FakeHttp(lambda call: answers.pop(0))
    voice = speech(http)

    with pytest.raises(ModelError):
        asyncio.run(voice.synthesize("Hi"))

    assert asyncio.run(voice.synthesize("Hi")) == AUDIO


def test_without_a_time_to_live_nothing_is_cached():
    http = answering(reply())
    voice = speech(http, ttl=timedelta(0))

    for _ in range(2):
        asyncio.run(voice.synthesize("Hi"))

    assert len(http.calls) == 2


def test_audio_is_cached_until_it_expires_or_the_cache_is_full():
    now = 0.0
    cache = MemoryAudioCache(max_bytes=10, clock=lambda: now)

    async def cached_keys() -> list[bool]:
        return [await cache.get(key) is not None for key in "abc"]

    async def fill() -> list[list[bool]]:
        nonlocal now
        await cache.set("a", b"12345", timedelta(seconds=5))
        await cache.set("b", b"12345", timedelta(seconds=9))
        await cache.get("a")
        await cache.set("c", b"1234", timedelta(seconds=9))  # evicts the least recently used entry
        full = await cached_keys()
        now = 5.0
        return [full, await cached_keys()]

    assert asyncio.run(fill()) == [[True, False, True], [False, False, True]]


def test_audio_larger_than_the_cache_is_not_cached():
    cache = MemoryAudioCache(max_bytes=3)

    async def cache_and_get() -> bytes | None:
        await cache.set("a", b"12345", timedelta(seconds=5))
        return await cache.get("a")

    assert asyncio.run(cache_and_get()) is None


def test_voice_comes_from_the_account_then_the_deployment_then_the_vendor():
    plain, own = model("StepFun"), replace(model("StepFun"), extra={"tts_voice": "mine"})

    assert speech_settings_of(plain).voice == "cixingnansheng"
    assert speech_settings_of(plain, "theirs").voice == "theirs"
    assert speech_settings_of(own, "theirs").voice == "mine"
