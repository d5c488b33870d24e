"""The text-to-speech models of tenants, and the cache of audio."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

import redis
import structlog

from canvas.errors import ModelError
from canvas.ids import TenantId
from providers.interfaces import Http, Speech
from providers.models.audio.tts import KIND, OpenAISpeech, speech_settings_of
from providers.models.chat.catalogue import resolve
from providers.models.types.chat import ModelSpec
from scheduler.messaging.circuit_breaker import CircuitBreaker
from scheduler.messaging.redis_bus import async_redis
from worker.services.models import CachedTenantModels

log = structlog.get_logger()


class RedisAudioCache:
    """Caches the audio of sentences in Redis. Without Redis, audio is requested from the model again."""

    def __init__(self, url: str) -> None:
        self._redis = async_redis(url, decode_responses=True)
        self._circuit_breaker = CircuitBreaker()

    async def get(self, key: str) -> bytes | None:
        """Return cached audio; None if there is none. It is stored as hex, as RAGFlow stores it."""
        if self._circuit_breaker.is_open():
            return None
        try:
            cached = cast("str | None", await self._redis.get(key))
        except redis.RedisError as error:
            self._note_unreachable(error)
            return None
        self._circuit_breaker.record_success()
        try:
            return bytes.fromhex(cached) if cached else None
        except ValueError:  # not written by Easel or RAGFlow
            return None

    async def set(self, key: str, audio: bytes, ttl: timedelta) -> None:
        """Cache audio."""
        if self._circuit_breaker.is_open():
            return
        try:
            await self._redis.set(key, audio.hex(), ex=ttl)
        except redis.RedisError as error:
            self._note_unreachable(error)
        else:
            self._circuit_breaker.record_success()

    def _note_unreachable(self, error: redis.RedisError) -> None:
        self._circuit_breaker.record_failure()
        log.warning("audio_cache_unreachable", error=str(error))

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


@dataclass(frozen=True, slots=True)
class TtsModels:
    """The speech models of all tenants. `preferred` is the deployment's choice; `ttl` is in seconds.

    `voices` are the deployment's voices, by factory, for accounts that name none. `private`: whether accounts may have
    private addresses.
    """

    models: CachedTenantModels
    cache: RedisAudioCache
    preferred: str | None = None
    ttl: int = 7 * 86400
    voices: Mapping[str, str] = field(default_factory=dict[str, str])
    private: bool = True

    def of(self, tenant_id: TenantId, http: Http) -> Speech | None:
        """Return the tenant's speech model; None if it has none."""
        spec = self._spec(tenant_id)
        if spec is None:
            return None
        return OpenAISpeech(
            spec,
            http,
            tenant_id.hex,
            speech_settings=speech_settings_of(spec, self.voices.get(spec.factory, "")),
            cache=self.cache,
            ttl=timedelta(seconds=self.ttl),
            trusted=self.private,
            meter=self.models.meter(tenant_id, spec, KIND),
        )

    def _spec(self, tenant_id: TenantId) -> ModelSpec | None:
        accounts = self.models.accounts(tenant_id)
        named = (
            f"{name}@{account.instance}@{account.factory}"
            for account in accounts
            if account.status == "active"
            for name, model in account.models.items()
            if KIND in model.kinds and model.status == "active"
        )
        model_id = self.preferred or next(named, None)
        if model_id is None:
            return None
        try:
            return resolve(model_id, accounts, kind=KIND)
        except ModelError as error:
            log.warning("no_speech_model", model=model_id, error=error.message)
            return None


FindSpeech = Callable[[TenantId, Http], Speech | None]
