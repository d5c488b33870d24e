"""Speech to text over OpenAI's API: POST {base}/audio/transcriptions, a form with the audio and the model's name.

No component uses it; it is for code that receives speech from users.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from canvas.errors import ModelError
from providers.errors import ErrorCode, ProviderError, provider_error
from providers.models.billing.metering import Meter, RequestSize
from providers.models.chat.dialects import Dialect, dialect_of_spec
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.embeddings.openai_embeddings import tokens_in
from providers.models.embeddings.retrying_call import call_with_retries
from providers.models.types.chat import ModelSpec
from providers.models.wires.openai_responses import field_of, message_in
from providers.models.wires.openai_sdk import FileUpload, RequestLimits, read_answer, send_request

KIND = "asr"
MAX_AUDIO_BYTES = 25 * 1024 * 1024  # bytes of audio; the limit of most vendors
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
    spec: ModelSpec,
    limits: RequestLimits | None = None,
    retry_policy: RetryPolicy | None = None,
    meter: Meter | None = None,
) -> Transcriber:
    """Return a transcriber for a resolved spec. Raises ModelError if the vendor's transcripts are not supported."""
    dialect = None if spec.is_builtin else dialect_of_spec(spec)
    if dialect not in (Dialect.OPENAI, Dialect.AZURE):
        raise _model_error(
            spec, f"Models of {spec.factory} cannot be used as {KIND} (model {spec.name}). Pick another."
        )
    meter, is_azure = meter or Meter(spec, KIND), dialect is Dialect.AZURE
    return VendorTranscriber(
        spec, limits or RequestLimits(), retry_policy or RetryPolicy(), meter=meter, is_azure=is_azure
    )


class VendorTranscriber:
    """A speech-to-text model of one account. `asr_fields` of the account are added to each request."""

    def __init__(
        self, spec: ModelSpec, limits: RequestLimits, retry_policy: RetryPolicy, *, meter: Meter, is_azure: bool
    ) -> None:
        self._spec = spec
        self._meter = meter
        self._limits = limits
        self._retry_policy = retry_policy
        self._is_azure = is_azure
        own = spec.extra.get("asr_fields")
        self._fields = {str(name): str(value) for name, value in own.items()} if isinstance(own, Mapping) else {}

    async def transcribe(self, recording: Recording, *, language: str = "") -> str:
        if len(recording.data) > MAX_AUDIO_BYTES:
            raise _model_error(
                self._spec, f"{recording.name} is larger than {MAX_AUDIO_BYTES:,} bytes. Send it in parts."
            )
        if not recording.data:
            return ""
        sent = RequestSize(content=recording.data)
        return await call_with_retries(partial(self._send, recording, language), sent, self._meter, self._retry_policy)

    async def _send(self, recording: Recording, language: str) -> tuple[str, int | None]:
        options = {"language": language} if language else {}
        body = {**self._fields, **options, "model": self._spec.name, "response_format": "json"}
        upload = FileUpload("file", recording.name, recording.data, recording.mime_type)
        reply = await send_request(
            self._spec,
            _PATH,
            body,
            self._limits,
            is_azure=self._is_azure,
            upload=upload,
            observe_headers=self._meter.observe_headers,
        )
        answer = read_answer(reply)
        text = field_of(answer, "text")
        if isinstance(text, str):
            return text.strip(), tokens_in(answer)
        if field_of(answer, "error"):
            raise provider_error(message_in(answer) or "The provider sent an error instead of an answer.")
        raise ProviderError(ErrorCode.MODEL_ERROR, "The provider's answer contains no text. Check the base URL.")


def _model_error(spec: ModelSpec, message: str) -> ModelError:
    return ModelError(message, kind="MODEL_ERROR", provider=spec.factory, model=spec.name)
