"""`easel models test`: send a model one small request of its kind, and describe the answer."""

import io
import wave
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canvas.errors import InvalidRequest, ModelError
from canvas.ids import TenantId
from knowledge.models import TenantModels
from providers.interfaces import Http
from providers.models.audio.transcription import KIND as ASR
from providers.models.audio.transcription import Recording, open_transcriber
from providers.models.audio.tts import KIND as TTS
from providers.models.audio.tts import MemoryAudioCache, OpenAISpeech
from providers.models.billing.metering import Meter, MeteredModel
from providers.models.billing.prices import PricedModel
from providers.models.chat.catalogue import RequestLimits, open_chat, resolve
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.factory import EMBEDDING, RERANK, open_embedder, open_reranker
from providers.models.types.chat import ChatModel, ChatRequest, ModelSpec
from providers.models.vendors.accounts import VendorAccount

CHAT = "chat"
QUESTION = "Answer with the single word: ready"
CALL = "Call the function report_ready with the argument ready set to true."
TOOL = {
    "type": "function",
    "function": {
        "name": "report_ready",
        "description": "Reports that the model is ready.",
        "parameters": {"type": "object", "properties": {"ready": {"type": "boolean"}}, "required": ["ready"]},
    },
}
TTS_TEXT = "Ready."
RERANK_QUERY = "What is the capital of France?"
SAMPLE_TEXTS = ("Bananas are yellow when ripe.", "The capital of France is Paris.")
RECORDING_SECONDS = 0.5  # seconds of the silent recording
SAMPLE_RATE = 16_000  # its samples per second

_ONCE = RetryPolicy(retries=0)  # a test reports the first failure


@dataclass(frozen=True, slots=True)
class ModelTestResult:
    """The answer of a model, as text and as figures; `error` describes what is wrong with it."""

    text: str
    figures: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ModelTest:
    """A model under test: its kind, and the limits, meter and client of its requests."""

    spec: ModelSpec
    kind: str
    limits: RequestLimits
    meter: Meter
    http: Http

    async def run(self) -> ModelTestResult:
        """Send one small request. An error of the model is returned, not raised."""
        try:
            return await _TESTS[self.kind](self)
        except ModelError as failure:
            return ModelTestResult("", error=failure.message)


def resolve_model(model: str, accounts: Sequence[VendorAccount], kind: str | None = None) -> tuple[ModelSpec, str]:
    """Return the model, and the kind to test: `kind`, or that of its account or its vendor's table, else chat.

    Raises ModelError for an unknown model, InvalidRequest for a kind that Easel does not use.
    """
    if kind is not None and kind not in _TESTS:
        raise InvalidRequest(f"Easel does not use models of the kind {kind}. Use one of: {', '.join(_TESTS)}.")
    first: ModelError | None = None
    for each in (kind,) if kind is not None else tuple(_TESTS):
        try:
            return resolve(model, accounts, kind=each), each
        except ModelError as problem:
            first = first or problem
    assert first is not None
    raise first


def make_test(
    models: TenantModels, tenant_id: TenantId, spec: ModelSpec, kind: str, limits: RequestLimits, http: Http
) -> ModelTest:
    """Return a model under test. Its requests wait for the rate limits of its account like any others."""
    return ModelTest(spec, kind, limits, models.meter(tenant_id, spec, kind), http)


async def _chat(it: ModelTest) -> ModelTestResult:
    model = PricedModel(open_chat(it.spec, it.limits, limiter=it.meter.limiter), it.meter.price)
    paid = MeteredModel(model, it.meter.default_payer)
    answer = await paid.complete(ChatRequest([{"role": "user", "content": QUESTION}]))
    if answer.error:
        return ModelTestResult(answer.text, error=str(answer.error))
    word, words = await _tools(it, paid)
    return ModelTestResult(f"{answer.text}\ntools: {words}", {"tools": word})


async def _tools(it: ModelTest, model: ChatModel) -> tuple[str, str]:
    """Return whether a chat model calls a tool that it is offered: a word for machines, and words for people."""
    if it.spec.is_builtin:
        return "not offered", "not offered to a built-in model"
    if not it.spec.is_tools:
        return "not offered", "not offered, as the account declares; an Agent with this model works without its tools"
    answer = await model.complete(ChatRequest([{"role": "user", "content": CALL}], tools=(TOOL,)))
    if answer.error:
        return "refused", f"refused. {answer.error.detail}"
    if not answer.calls:
        return "not called", f"not called when asked to ({answer.text[:100]!r}); an Agent may work without its tools"
    return "called", "called"


async def _vectors(it: ModelTest) -> ModelTestResult:
    embedded = await open_embedder(it.spec, it.limits, _ONCE, it.meter).embed(SAMPLE_TEXTS)
    one, other = embedded.vectors
    if list(one) == list(other):
        return ModelTestResult("", error="It returns the same vector for different texts.")
    figures = {"dimension": len(one), "tokens": embedded.tokens}
    return ModelTestResult(
        f"vectors of {len(one)} numbers, {embedded.tokens} tokens for {len(SAMPLE_TEXTS)} texts", figures
    )


async def _ranks(it: ModelTest) -> ModelTestResult:
    scores = list(await open_reranker(it.spec, it.limits, _ONCE, it.meter).rank(RERANK_QUERY, SAMPLE_TEXTS))
    figures = {"scores": scores}
    if scores[1] <= scores[0]:
        listed = ", ".join(f"{text!r}: {score:.3f}" for text, score in zip(SAMPLE_TEXTS, scores, strict=True))
        return ModelTestResult("", figures, f"It ranks the wrong text first for {RERANK_QUERY!r} ({listed}).")
    return ModelTestResult(f"the right one of two texts comes first ({scores[1]:.3f} before {scores[0]:.3f})", figures)


async def _speech(it: ModelTest) -> ModelTestResult:
    audio = await OpenAISpeech(it.spec, it.http, "trying-out", cache=MemoryAudioCache(), meter=it.meter).synthesize(
        TTS_TEXT
    )
    return ModelTestResult(f"{len(audio):,} bytes of audio for {TTS_TEXT!r}", {"bytes": len(audio)})


async def _transcript(it: ModelTest) -> ModelTestResult:
    recording = Recording("silence.wav", make_empty_recording(), "audio/wav")
    text = await open_transcriber(it.spec, it.limits, _ONCE, it.meter).transcribe(recording)
    return ModelTestResult(
        f"the transcript of {RECORDING_SECONDS:g} seconds of silence is {text!r}", {"transcript": text}
    )


def make_empty_recording() -> bytes:
    """Return a silent recording (WAV)."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(SAMPLE_RATE)
        written.writeframes(bytes(2 * int(SAMPLE_RATE * RECORDING_SECONDS)))
    return file.getvalue()


_TESTS: Mapping[str, Callable[[ModelTest], Awaitable[ModelTestResult]]] = {
    CHAT: _chat,
    EMBEDDING: _vectors,
    RERANK: _ranks,
    TTS: _speech,
    ASR: _transcript,
}
