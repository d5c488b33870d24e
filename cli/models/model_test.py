"""What `easel models test` asks a model, by its kind, and what it makes of the answer."""

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
SILENCE = 0.5  # seconds of a recording in which nobody speaks
RATE = 16_000  # of it, samples a second

_ONCE = RetryPolicy(retries=0)  # a test tells of the first failure


@dataclass(frozen=True, slots=True)
class Told:
    """What a model has answered, in words and for machines; `error` says what is wrong with it."""

    text: str
    figures: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """A model that is tried out: as what, and how its requests leave."""

    spec: ModelSpec
    kind: str
    limits: Limits
    meter: Meter
    http: Http

    async def answer(self) -> Told:
        """Ask it one small thing. What goes wrong is told and not raised."""
        try:
            return await _WAYS[self.kind](self)
        except ModelError as failure:
            return Told("", error=failure.message)


def chosen(model: str, accounts: Sequence[Account], kind: str | None = None) -> tuple[ModelSpec, str]:
    """The model, and what it is tried out as: what its account or its vendor's table says, else chat.

    Raises ModelError for one that is not there, InvalidRequest for a kind that nothing here asks.
    """
    if kind is not None and kind not in _WAYS:
        raise InvalidRequest(f"Nothing in Easel asks models of the kind {kind}. Try: {', '.join(_WAYS)}.")
    first: ModelError | None = None
    for each in (kind,) if kind is not None else tuple(_WAYS):
        try:
            return resolve(model, accounts, kind=each), each
        except ModelError as problem:
            first = first or problem
    assert first is not None
    raise first


def tried(models: TenantModels, tenant_id: UUID, spec: ModelSpec, kind: str, limits: Limits, http: Http) -> Tried:
    """A model that is to be tried out; its requests wait for the limits of its account like any other."""
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
    """Whether a chat model calls a tool that it is offered: a word for machines, and words for people."""
    if it.spec.stand_in:
        return "not offered", "not offered to a stand-in"
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
        return Told("", error="It gives different texts the same vector.")
    told = {"dimension": len(one), "tokens": embedded.tokens}
    return Told(f"vectors of {len(one)} numbers, {embedded.tokens} tokens for {len(TEXTS)} texts", told)


async def _ranks(it: Tried) -> Told:
    scores = list(await open_reranker(it.spec, it.limits, _ONCE, it.meter).rank(ASKED, TEXTS))
    told = {"scores": scores}
    if scores[1] <= scores[0]:
        listed = ", ".join(f"{text!r}: {score:.3f}" for text, score in zip(TEXTS, scores, strict=True))
        return Told("", told, f"It ranks the wrong text first for {ASKED!r} ({listed}).")
    return Told(f"the right one of two texts comes first ({scores[1]:.3f} before {scores[0]:.3f})", told)


async def _speech(it: Tried) -> Told:
    audio = await OpenAISpeech(it.spec, it.http, "trying-out", cache=RecentAudio(), meter=it.meter).synthesize(SPOKEN)
    return Told(f"{len(audio):,} bytes of audio for {SPOKEN!r}", {"bytes": len(audio)})


async def _transcript(it: Tried) -> Told:
    recording = Recording("silence.wav", silence(), "audio/wav")
    text = await open_transcriber(it.spec, it.limits, _ONCE, it.meter).transcribe(recording)
    return Told(f"of {SILENCE:g} seconds of silence it writes down {text!r}", {"transcript": text})


def silence() -> bytes:
    """A recording in which nothing is said."""
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
