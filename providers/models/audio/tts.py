"""Text to speech over OpenAI's wire (tools 11): a sentence in, the bytes of its audio out.

    POST {base}/audio/speech {"model", "voice", "input", "response_format"?, ...}

A sentence that was spoken before is taken from a cache. Its key names the tenant, model, voice and format besides the
text, so nobody hears what another has paid for. The same sentence wanted twice at once is asked for once.
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
from providers.errors import Code, ProviderError, classify, redact, retry_after
from providers.interfaces import Call, Http, Reply
from providers.models.billing.metering import Meter, RequestSize
from providers.models.text.sanitizer import clean
from providers.models.types.chat import ModelSpec
from providers.models.vendors.vendors import UNLISTED, Voicing, vendors

KIND = "tts"
TIMEOUT = 60.0  # seconds of one sentence
MOST_BYTES = 5 * 1024 * 1024  # of one sentence's audio
KEPT = 16 * 1024 * 1024  # bytes of audio that a process keeps where no other cache is given
TTL = timedelta(days=7)
_SHOWN = 200  # characters of what a vendor says about a failure
_MARKUP = re.compile(r"\*\*|##\d+\$\$|#")


def voicing_of(spec: ModelSpec, voice: str = "") -> Voicing:
    """What the account says in `tts_voice`, `tts_format` and `tts_fields`, else what is usual for its vendor.

    `voice` is what the deployment has in place of the usual one.
    """
    usual = vendors().get(spec.factory, UNLISTED).speech
    fields = spec.extra.get("tts_fields")
    return Voicing(
        voice=str(spec.extra.get("tts_voice") or voice or usual.voice),
        format=str(spec.extra.get("tts_format") or usual.format),
        fields=fields if isinstance(fields, Mapping) else usual.fields,
    )


class AudioCache(Protocol):
    """Audio by key. One that is out of reach finds and keeps nothing; it never raises."""

    async def get(self, key: str) -> bytes | None: ...

    async def set(self, key: str, audio: bytes, ttl: timedelta) -> None: ...


class RecentAudio:
    """The audio that this process has asked for last, as far as there is room."""

    def __init__(self, room: int = KEPT, clock: Callable[[], float] = monotonic) -> None:
        self._room = room
        self._clock = clock
        self._kept: OrderedDict[str, tuple[bytes, float]] = OrderedDict()  # audio, and until when it is good
        self._size = 0

    async def get(self, key: str) -> bytes | None:
        audio, until = self._kept.get(key, (None, 0.0))
        if audio is None or until <= self._clock():
            return None
        self._kept.move_to_end(key)
        return audio

    async def set(self, key: str, audio: bytes, ttl: timedelta) -> None:
        self._drop(key)
        self._kept[key] = (audio, self._clock() + ttl.total_seconds())
        self._size += len(audio)
        while self._size > self._room:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: str) -> None:
        audio, _ = self._kept.pop(key, (b"", 0.0))
        self._size -= len(audio)


_RECENT = RecentAudio()
_under_way: WeakValueDictionary[str, Lock] = WeakValueDictionary()  # one asks, the others wait for the cache


class OpenAISpeech:
    """A text-to-speech model of one tenant's account.

    `trusted`: the address is an operator's choice, as a chat model's is, and may be private.
    """

    def __init__(
        self,
        spec: ModelSpec,
        http: Http,
        tenant: str,
        *,
        voicing: Voicing | None = None,
        cache: AudioCache = _RECENT,
        ttl: timedelta = TTL,
        trusted: bool = True,
        meter: Meter | None = None,
    ) -> None:
        if not spec.base_url:
            raise ModelError(f"The text-to-speech model {spec.id} has no address. Give its account a base_url.")
        self._spec = spec
        self._meter = meter or Meter(spec, KIND)
        self._url = f"{spec.base_url.rstrip('/')}/audio/speech"
        self._http = http
        self._tenant = tenant
        self._voicing = voicing or voicing_of(spec)
        self._cache = cache
        self._ttl = ttl
        self._trusted = trusted

    async def synthesize(self, text: str) -> bytes:
        """Audio of a cleaned sentence; nothing for one that has only markup. Raises ModelError."""
        spoken = " ".join(_MARKUP.sub("", text).split())
        if not spoken:
            return b""
        if self._ttl <= timedelta(0):
            return await self._ask(spoken)
        key = self.key_of(spoken)
        lock = _under_way.setdefault(key, Lock())
        async with lock:
            audio = await self._cache.get(key)
            if audio is None:
                audio = await self._ask(spoken)
                await self._cache.set(key, audio, self._ttl)
            return audio

    def key_of(self, spoken: str) -> str:
        """Where the cache has a sentence's audio."""
        digest = sha256(spoken.encode()).hexdigest()
        return f"tts:cache:{self._tenant}:{self._spec.id}:{self._voice}:{self._voicing.format}:{digest}"

    @property
    def _voice(self) -> str:
        return self._voicing.voice.replace("{model}", self._spec.name)

    async def _ask(self, spoken: str) -> bytes:
        """Audio that nobody has asked for yet. What was said stands already: it waits in place, and fails alone."""
        try:
            return await self._meter.passed(
                partial(self._once, spoken), RequestSize(characters=len(spoken)), stays=True
            )
        except ProviderError as failed:
            raise ModelError(failed.detail, retryable=failed.may_be_repeated) from failed
        except BudgetExceeded as refused:
            raise ModelError(f"**Error**: {refused.message}") from refused

    async def _once(self, spoken: str) -> tuple[bytes, int | None]:
        """The audio, and no tokens. Raises CallFailed."""
        body = {**self._voicing.fields, "model": self._spec.name, "voice": self._voice, "input": spoken}
        if self._voicing.format:
            body["response_format"] = self._voicing.format
        headers = {"Authorization": f"Bearer {self._spec.api_key}"} if self._spec.api_key else {}
        call = Call(
            "POST",
            self._url,
            headers=headers,
            json=body,
            timeout=TIMEOUT,
            trusted=self._trusted,
            most_bytes=MOST_BYTES,
        )
        try:
            reply = await self._http.send(call)
        except ToolError as error:
            code = Code.CONNECTION_ERROR if error.retryable else Code.MODEL_ERROR
            raise ProviderError(code, f"**Error**: {self._redacted(error.message)}") from error
        self._meter.hear(reply.headers)
        if not _is_audio(reply):
            told = self._redacted(clean(reply.content[: 4 * _SHOWN].decode(errors="replace")))[:_SHOWN]
            status = reply.status if reply.status >= 400 else 400
            wait = retry_after(reply.headers, datetime.now(UTC))
            raise ProviderError(classify(told, status), f"**Error**: {reply.status}, {told}", wait)
        return reply.content, None

    def _redacted(self, text: str) -> str:
        return redact(text, self._spec.api_key)


def _is_audio(reply: Reply) -> bool:
    """Some vendors tell of a failure in JSON under status 200."""
    kind = reply.headers.get("content-type", "")
    return reply.status == 200 and bool(reply.content) and not kind.startswith(("application/json", "text/"))
