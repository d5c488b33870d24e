"""Speech to text over OpenAI's wire: POST {base}/audio/transcriptions, a form with the audio and the model's name.

No component of a canvas asks for it; it is here for whoever takes speech in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from canvas.errors import ModelError
from providers.errors import Code, ProviderError, failure
from providers.models.billing.metering import Meter, RequestSize
from providers.models.chat.dialects import Dialect, spoken_by
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.openai_embeddings import tokens_in
from providers.models.embeddings.retrying_call import call_with_retries
from providers.models.types.chat import ModelSpec
from providers.models.wires.openai_responses import field_of, message_in
from providers.models.wires.openai_sdk import Limits, Upload, answer_of, ask

KIND = "asr"
LARGEST = 25 * 1024 * 1024  # bytes of audio; what vendors take at most
_PATH = "/audio/transcriptions"


@dataclass(frozen=True, slots=True)
class Recording:
    """Audio that somebody has sent. Vendors tell what it is by the ending of its name."""

    name: str
    data: bytes
    mime_type: str


class Transcriber(Protocol):
    """A model that writes down what is said."""

    async def transcribe(self, recording: Recording, *, language: str = "") -> str:
        """What is said; "" where nothing is. `language` as ISO 639-1, if it is known. Raises ModelError."""
        ...


def open_transcriber(
    spec: ModelSpec, limits: Limits | None = None, pace: RetryPolicy | None = None, meter: Meter | None = None
) -> Transcriber:
    """A transcriber for a resolved spec. Raises ModelError if this build cannot ask the vendor for transcripts."""
    dialect = None if spec.stand_in else spoken_by(spec)
    if dialect not in (Dialect.OPENAI, Dialect.AZURE):
        raise _refused(spec, f"Models of {spec.factory} cannot be used as {KIND} (model {spec.name}). Pick another.")
    meter, is_azure = meter or Meter(spec, KIND), dialect is Dialect.AZURE
    return TranscriptsOfVendor(spec, limits or Limits(), pace or RetryPolicy(), meter=meter, is_azure=is_azure)


class TranscriptsOfVendor:
    """A speech-to-text model of one account. `asr_fields` of the account join each request."""

    def __init__(self, spec: ModelSpec, limits: Limits, pace: RetryPolicy, *, meter: Meter, is_azure: bool) -> None:
        self._spec = spec
        self._meter = meter
        self._limits = limits
        self._pace = pace
        self._is_azure = is_azure
        own = spec.extra.get("asr_fields")
        self._fields = {str(name): str(value) for name, value in own.items()} if isinstance(own, Mapping) else {}

    async def transcribe(self, recording: Recording, *, language: str = "") -> str:
        if len(recording.data) > LARGEST:
            raise _refused(self._spec, f"{recording.name} is larger than {LARGEST:,} bytes. Send it in parts.")
        if not recording.data:
            return ""
        sent = RequestSize(content=recording.data)
        return await call_with_retries(partial(self._once, recording, language), sent, self._meter, self._pace)

    async def _once(self, recording: Recording, language: str) -> tuple[str, int | None]:
        said = {"language": language} if language else {}
        body = {**self._fields, **said, "model": self._spec.name, "response_format": "json"}
        hears = self._meter.hear
        upload = Upload("file", recording.name, recording.data, recording.mime_type)
        reply = await ask(self._spec, _PATH, body, self._limits, is_azure=self._is_azure, upload=upload, hears=hears)
        answer = answer_of(reply)
        text = field_of(answer, "text")
        if isinstance(text, str):
            return text.strip(), tokens_in(answer)
        if field_of(answer, "error"):
            raise failure(message_in(answer) or "The provider sent an error in place of its answer.")
        raise ProviderError(Code.MODEL_ERROR, "The provider's answer holds no text; is the base URL right?")


def _refused(spec: ModelSpec, message: str) -> ModelError:
    return ModelError(message, kind="MODEL_ERROR", provider=spec.factory, model=spec.name)
