"""Speech to text over OpenAI's API: POST {base}/audio/transcriptions, a form with the audio and the model's name.

No component uses it; it is for code that receives speech from users.
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
LARGEST = 25 * 1024 * 1024  # bytes of audio; the limit of most vendors
_PATH = "/audio/transcriptions"


@dataclass(frozen=True, slots=True)
class Recording:
    """An audio file. Vendors recognise its format by the extension of its name."""

    name: str
    data: bytes
    mime_type: str


class Transcriber(Protocol):
    """A speech-to-text model."""

    async def transcribe(self, recording: Recording, *, language: str = "") -> str:
        """Return the spoken text; "" if there is none. `language` is an ISO 639-1 code, if known. Raises ModelError."""
        ...


def open_transcriber(
    spec: ModelSpec, limits: Limits | None = None, pace: RetryPolicy | None = None, meter: Meter | None = None
) -> Transcriber:
    """Return a transcriber for a resolved spec. Raises ModelError if the vendor's transcripts are not supported."""
    dialect = None if spec.stand_in else spoken_by(spec)
    if dialect not in (Dialect.OPENAI, Dialect.AZURE):
        raise _refused(spec, f"Models of {spec.factory} cannot be used as {KIND} (model {spec.name}). Pick another.")
    meter, is_azure = meter or Meter(spec, KIND), dialect is Dialect.AZURE
    return TranscriptsOfVendor(spec, limits or Limits(), pace or RetryPolicy(), meter=meter, is_azure=is_azure)


class TranscriptsOfVendor:
    """A speech-to-text model of one account. `asr_fields` of the account are added to each request."""

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
        options = {"language": language} if language else {}
        body = {**self._fields, **options, "model": self._spec.name, "response_format": "json"}
        hears = self._meter.hear
        upload = Upload("file", recording.name, recording.data, recording.mime_type)
        reply = await ask(self._spec, _PATH, body, self._limits, is_azure=self._is_azure, upload=upload, hears=hears)
        answer = answer_of(reply)
        text = field_of(answer, "text")
        if isinstance(text, str):
            return text.strip(), tokens_in(answer)
        if field_of(answer, "error"):
            raise failure(message_in(answer) or "The provider sent an error instead of an answer.")
        raise ProviderError(Code.MODEL_ERROR, "The provider's answer contains no text. Check the base URL.")


def _refused(spec: ModelSpec, message: str) -> ModelError:
    return ModelError(message, kind="MODEL_ERROR", provider=spec.factory, model=spec.name)
