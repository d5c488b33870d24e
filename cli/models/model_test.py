"""`easel models test`: send a model one small request of its kind, and describe the answer."""

import io
import wave
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from canvas.errors import InvalidRequest, ModelError
from knowledge.models import TenantModels
from providers.interfaces import Http
from providers.models.audio.transcription import KIND as ASR
from providers.models.audio.transcription import Recording, open_transcriber
from providers.models.audio.tts import KIND as TTS
from providers.models.audio.tts import OpenAISpeech, RecentAudio
from providers.models.billing.metering import Meter, MeteredModel
from providers.models.billing.prices import PricedModel
from providers.models.chat.catalogue import Limits, open_chat, resolve
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.factory import EMBEDDING, RERANK, open_embedder, open_reranker
from providers.models.types.chat import ChatModel, ChatRequest, ModelSpec
from providers.models.vendors.accounts import Account

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
SPOKEN = "Ready."
ASKED, TEXTS = "What is the capital of France?", ("Bananas are yellow when ripe.", "The capital of France is Paris.")
SILENCE = 0.5  # seconds of the silent recording
RATE = 16_000  # its samples per second

_ONCE = RetryPolicy(retries=0)  # a test reports the first failure


@dataclass(frozen=True, slots=True)
class Told:
    """The answer of a model, as text and as figures; `error` describes what is wrong with it."""

    text: str
    figures: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """A model under test: its kind, and the limits, meter and client of its requests."""

    spec: ModelSpec
    kind: str
    limits: Limits
    meter: Meter
    http: Http

    async def answer(self) -> Told:
        """Send one small request. An error of the model is returned, not raised."""
        try:
            return await _WAYS[self.kind](self)
        except ModelError as failure:
            return Told("", error=failure.message)


def chosen(model: str, accounts: Sequence[Account], kind: str | None = None) -> tuple[ModelSpec, str]:
    """Return the model, and the kind to test: `kind`, or that of its account or its vendor's table, else chat.

    Raises ModelError for an unknown model, InvalidRequest for a kind that Easel does not use.
    """
    if kind is not None and kind not in _WAYS:
        raise InvalidRequest(f"Easel does not use models of the kind {kind}. Use one of: {', '.join(_WAYS)}.")
    first: ModelError | None = None
    for each in (kind,) if kind is not None else tuple(_WAYS):
        try:
            return resolve(model, accounts, kind=each), each
        except ModelError as problem:
            first = first or problem
    assert first is not None
    raise first


def tried(models: TenantModels, tenant_id: UUID, spec: ModelSpec, kind: str, limits: Limits, http: Http) -> Tried:
    """Return a model under test. Its requests wait for the rate limits of its account like any others."""
    return Tried(spec, kind, limits, models.meter(tenant_id, spec, kind), http)


async def _chat(it: Tried) -> Told:
    model = PricedModel(open_chat(it.spec, it.limits, gate=it.meter.gate), it.meter.price)
    paid = MeteredModel(model, it.meter.otherwise)
    answer = await paid.complete(ChatRequest([{"role": "user", "content": QUESTION}]))
    if answer.error:
        return Told(answer.text, error=str(answer.error))
    word, words = await _tools(it, paid)
    return Told(f"{answer.text}\ntools: {words}", {"tools": word})


async def _tools(it: Tried, model: ChatModel) -> tuple[str, str]:
    """Return whether a chat model calls a tool that it is offered: a word for machines, and words for people."""
    if it.spec.stand_in:
        return "not offered", "not offered to a built-in model"
    if not it.spec.is_tools:
        return "not offered", "not offered, as the account declares; an Agent with this model works without its tools"
    answer = await model.complete(ChatRequest([{"role": "user", "content": CALL}], tools=(TOOL,)))
    if answer.error:
        return "refused", f"refused. {answer.error.detail}"
    if not answer.calls:
        return "not called", f"not called when asked to ({answer.text[:100]!r}); an Agent may work without its tools"
    return "called", "called"


async def _vectors(it: Tried) -> Told:
    embedded = await open_embedder(it.spec, it.limits, _ONCE, it.meter).embed(TEXTS)
    one, other = embedded.vectors
    if list(one) == list(other):
        return Told("", error="It returns the same vector for different texts.")
    figures = {"dimension": len(one), "tokens": embedded.tokens}
    return Told(f"vectors of {len(one)} numbers, {embedded.tokens} tokens for {len(TEXTS)} texts", figures)


async def _ranks(it: Tried) -> Told:
    scores = list(await open_reranker(it.spec, it.limits, _ONCE, it.meter).rank(ASKED, TEXTS))
    figures = {"scores": scores}
    if scores[1] <= scores[0]:
        listed = ", ".join(f"{text!r}: {score:.3f}" for text, score in zip(TEXTS, scores, strict=True))
        return Told("", figures, f"It ranks the wrong text first for {ASKED!r} ({listed}).")
    return Told(f"the right one of two texts comes first ({scores[1]:.3f} before {scores[0]:.3f})", figures)


async def _speech(it: Tried) -> Told:
    audio = await OpenAISpeech(it.spec, it.http, "trying-out", cache=RecentAudio(), meter=it.meter).synthesize(SPOKEN)
    return Told(f"{len(audio):,} bytes of audio for {SPOKEN!r}", {"bytes": len(audio)})


async def _transcript(it: Tried) -> Told:
    recording = Recording("silence.wav", silence(), "audio/wav")
    text = await open_transcriber(it.spec, it.limits, _ONCE, it.meter).transcribe(recording)
    return Told(f"the transcript of {SILENCE:g} seconds of silence is {text!r}", {"transcript": text})


def silence() -> bytes:
    """Return a silent recording (WAV)."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes(bytes(2 * int(RATE * SILENCE)))
    return file.getvalue()


_WAYS: Mapping[str, Callable[[Tried], Awaitable[Told]]] = {
    CHAT: _chat,
    EMBEDDING: _vectors,
    RERANK: _ranks,
    TTS: _speech,
    ASR: _transcript,
}
