"""Text to speech over OpenAI's API: returns the audio of a sentence.

    POST {base}/audio/speech {"model", "voice", "input", "response_format"?, ...}

Audio is cached by tenant, model, voice, format and text, so tenants do not share audio. If several callers need the
same sentence at once, only one of them sends a request.
"""

import re
from asyncio import Lock
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Protocol
from weakref import WeakValueDictionary

from canvas.errors import BudgetExceeded, ModelError, ToolError
from providers.errors import ErrorCode, ProviderError, classify, redact, retry_after
from providers.interfaces import Http, HttpCall, HttpResponse
from providers.models.billing.metering import Meter, RequestSize
from providers.models.text.sanitizer import clean
from providers.models.types.chat import ModelSpec
from providers.models.vendors.vendors import UNLISTED, SpeechSettings, vendors

KIND = "tts"
TIMEOUT = 60.0  # seconds of one sentence
MAX_AUDIO_BYTES = 5 * 1024 * 1024  # of one sentence's audio
CACHE_BYTES = 16 * 1024 * 1024  # bytes of audio in the default cache of a process
TTL = timedelta(days=7)
_MAX_EXCERPT = 200  # characters of a vendor's error that the message quotes
_MARKUP = re.compile(r"\*\*|##\d+\$\$|#")


def speech_settings_of(spec: ModelSpec, voice: str = "") -> SpeechSettings:
    """Return the account's `tts_voice`, `tts_format` and `tts_fields`, completed by the defaults of the vendor.

    `voice` is the deployment's default voice, which overrides the vendor's.
    """
    default = vendors().get(spec.factory, UNLISTED).speech
    fields = spec.extra.get("tts_fields")
    return SpeechSettings(
        voice=str(spec.extra.get("tts_voice") or voice or default.voice),
        format=str(spec.extra.get("tts_format") or default.format),
        fields=fields if isinstance(fields, Mapping) else default.fields,
    )


class AudioCache(Protocol):
    """A cache of audio. It never raises: a cache that is not available finds and stores nothing."""

    async def get(self, key: str) -> bytes | None: ...

    async def set(self, key: str, audio: bytes, ttl: timedelta) -> None: ...


class MemoryAudioCache:
    """An LRU cache of audio in this process, limited in bytes."""

    def __init__(self, max_bytes: int = CACHE_BYTES, clock: Callable[[], float] = monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[str, tuple[bytes, float]] = OrderedDict()  # audio, and time of expiry
        self._size = 0

    async def get(self, key: str) -> bytes | None:
        audio, until = self._entries.get(key, (None, 0.0))
        if audio is None or until <= self._clock():
            return None
        self._entries.move_to_end(key)
        return audio

    async def set(self, key: str, audio: bytes, ttl: timedelta) -> None:
        self._drop(key)
        self._entries[key] = (audio, self._clock() + ttl.total_seconds())
        self._size += len(audio)
        while self._size > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: str) -> None:
        audio, _ = self._entries.pop(key, (b"", 0.0))
        self._size -= len(audio)


_DEFAULT_CACHE = MemoryAudioCache()
_locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()  # by key: one caller sends, the others wait


class OpenAISpeech:
    """A text-to-speech model of one tenant's account.

    `trusted`: an operator chose the address, so it may be private.
    """

    def __init__(
        self,
        spec: ModelSpec,
        http: Http,
        tenant: str,
        *,
        speech_settings: SpeechSettings | None = None,
        cache: AudioCache = _DEFAULT_CACHE,
        ttl: timedelta = TTL,
        trusted: bool = True,
        meter: Meter | None = None,
    ) -> None:
        if not spec.base_url:
            raise ModelError(f"The text-to-speech model {spec.id} has no base URL. Set `base_url` in its account.")
        self._spec = spec
        self._meter = meter or Meter(spec, KIND)
        self._url = f"{spec.base_url.rstrip('/')}/audio/speech"
        self._http = http
        self._tenant = tenant
        self._speech_settings = speech_settings or speech_settings_of(spec)
        self._cache = cache
        self._ttl = ttl
        self._trusted = trusted

    async def synthesize(self, text: str) -> bytes:
        """Return the audio of a sentence; b"" for a sentence that is only markup. Raises ModelError."""
        spoken = " ".join(_MARKUP.sub("", text).split())
        if not spoken:
            return b""
        if self._ttl <= timedelta(0):
            return await self._request(spoken)
        key = self.key_of(spoken)
        lock = _locks.setdefault(key, Lock())
        async with lock:
            audio = await self._cache.get(key)
            if audio is None:
                audio = await self._request(spoken)
                await self._cache.set(key, audio, self._ttl)
            return audio

    def key_of(self, spoken: str) -> str:
        """Return the cache key of a sentence."""
        digest = sha256(spoken.encode()).hexdigest()
        return f"tts:cache:{self._tenant}:{self._spec.id}:{self._voice}:{self._speech_settings.format}:{digest}"

    @property
    def _voice(self) -> str:
        return self._speech_settings.voice.replace("{model}", self._spec.name)

    async def _request(self, spoken: str) -> bytes:
        """Request audio that is not cached. Waits for rate limits by blocking, since the text was sent already."""
        try:
            return await self._meter.call(
                partial(self._send, spoken),
                RequestSize(characters=len(spoken), content=spoken.encode()),
                is_blocking=True,
            )
        except ProviderError as failed:
            raise ModelError(failed.detail, retryable=failed.is_retryable) from failed
        except BudgetExceeded as refused:
            raise ModelError(f"**Error**: {refused.message}") from refused

    async def _send(self, spoken: str) -> tuple[bytes, int | None]:
        """Send one request; return the audio, and None for the tokens. Raises ProviderError."""
        body = {**self._speech_settings.fields, "model": self._spec.name, "voice": self._voice, "input": spoken}
        if self._speech_settings.format:
            body["response_format"] = self._speech_settings.format
        headers = {"Authorization": f"Bearer {self._spec.api_key}"} if self._spec.api_key else {}
        call = HttpCall(
            "POST",
            self._url,
            headers=headers,
            json=body,
            timeout=TIMEOUT,
            trusted=self._trusted,
            max_bytes=MAX_AUDIO_BYTES,
        )
        try:
            reply = await self._http.send(call)
        except ToolError as error:
            code = ErrorCode.CONNECTION_ERROR if error.retryable else ErrorCode.MODEL_ERROR
            raise ProviderError(code, f"**Error**: {self._redact(error.message)}") from error
        self._meter.observe_headers(reply.headers)
        if not _is_audio(reply):
            excerpt = self._redact(clean(reply.content[: 4 * _MAX_EXCERPT].decode(errors="replace")))[:_MAX_EXCERPT]
            status = reply.status if reply.status >= 400 else 400
            wait = retry_after(reply.headers, datetime.now(UTC))
            raise ProviderError(classify(excerpt, status), f"**Error**: {reply.status}, {excerpt}", wait)
        return reply.content, None

    def _redact(self, text: str) -> str:
        return redact(text, self._spec.api_key)


def _is_audio(reply: HttpResponse) -> bool:
    """Return whether a response contains audio; some vendors report a failure as JSON with status 200."""
    kind = reply.headers.get("content-type", "")
    return reply.status == 200 and bool(reply.content) and not kind.startswith(("application/json", "text/"))
