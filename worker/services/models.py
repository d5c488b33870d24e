"""The models of tenants: from accounts in the database and in the TOML file, cached for a few seconds."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from canvas.ids import TenantId
from knowledge.billing import tenant_billing
from knowledge.models import accounts_from_rows
from providers.models.audio.transcription import KIND as ASR
from providers.models.audio.transcription import Transcriber, open_transcriber
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.metering import BillingContext, Meter, MeteredModel
from providers.models.billing.prices import PricedModel
from providers.models.chat.catalogue import RequestLimits, open_chat, resolve
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.chat.scripted import Script, scripted_spec
from providers.models.embeddings.factory import EMBEDDING, RERANK, Embedder, Reranker, open_embedder, open_reranker
from providers.models.limits.rate_limited_wire import RequestLimiter
from providers.models.limits.rate_limiter import RateLimiter
from providers.models.types.chat import ChatModel, ModelSpec
from providers.models.vendors.accounts import VendorAccount
from store.db.database import Database
from store.primitives.encryption import EncryptionKey
from store.tenants import model_accounts

ACCOUNT_CACHE_TTL = 15.0  # seconds; a changed key takes effect after that
MAX_CACHED_TENANTS = 1000  # above that, expired entries are removed


@dataclass(frozen=True, slots=True)
class _CachedTenant:
    """A tenant's accounts, and the models that were opened with them."""

    accounts: tuple[VendorAccount, ...]
    until: float  # on the monotonic clock
    models: dict[tuple[str, str], ChatModel] = field(default_factory=dict[tuple[str, str], ChatModel])  # kind, id


class CachedTenantModels:
    """Opens the models of all tenants, by id."""

    def __init__(
        self,
        database: Database,
        shared: Sequence[VendorAccount],
        limits: RequestLimits,
        encryption_key: EncryptionKey | None,
        script: Callable[[TenantId], Script | None] = lambda _: None,
        retry_policy: RetryPolicy | None = None,
        cost_model: CostModel | None = None,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self._database = database
        self._shared = tuple(shared)
        self._limits = limits
        self._encryption_key = encryption_key
        self._script = script
        self._retry_policy = retry_policy
        self._cost_model = cost_model or CostModel()
        self._rate_limiter = rate_limiter
        self._cache: dict[TenantId, _CachedTenant] = {}
        self._read_locks: dict[TenantId, threading.Lock] = {}  # by tenant: one thread reads, and the others wait for it
        self._lock = threading.Lock()

    async def open(self, tenant_id: TenantId, llm_id: str, kind: str = "chat") -> ChatModel:
        """Return a chat model by id, for calls that no component makes. The current attempt pays for them.

        Raises ModelError, which says what is missing.
        """
        return MeteredModel(await self.open_unmetered(tenant_id, llm_id, kind), self._billing_context(tenant_id))

    async def open_unmetered(self, tenant_id: TenantId, llm_id: str, kind: str = "chat") -> ChatModel:
        """Return a chat model by id, for a component: its context adds who pays. Raises ModelError."""
        script = self._script(tenant_id)
        if script is not None:
            return open_chat(scripted_spec(llm_id), self._limits, scripted=script, retry_policy=self._retry_policy)
        known = self._find_cached(tenant_id) or await asyncio.to_thread(self._load, tenant_id)
        model = known.models.get((kind, llm_id))
        if model is None:
            spec = resolve(llm_id, known.accounts, kind=kind)
            model = open_chat(spec, self._limits, limiter=self._gate(tenant_id, spec))
            if not model.spec.is_builtin:  # a built-in model reads its rules at each call, and costs nothing
                model = known.models[kind, llm_id] = PricedModel(model, self._cost_model.prices.price_of(model.spec))
        return model

    async def embedder(self, tenant_id: TenantId, llm_id: str) -> Embedder:
        """Return an embedding model by id. Raises ModelError, which says what is missing."""
        spec = await self._spec(tenant_id, llm_id, EMBEDDING)
        return open_embedder(spec, self._limits, self._retry_policy, self.meter(tenant_id, spec, EMBEDDING))

    async def reranker(self, tenant_id: TenantId, llm_id: str) -> Reranker:
        """Return a reranking model by id. Raises ModelError, which says what is missing."""
        spec = await self._spec(tenant_id, llm_id, RERANK)
        return open_reranker(spec, self._limits, self._retry_policy, self.meter(tenant_id, spec, RERANK))

    async def transcriber(self, tenant_id: TenantId, llm_id: str) -> Transcriber:
        """Return a transcription model by id. Raises ModelError, which says what is missing."""
        spec = await self._spec(tenant_id, llm_id, ASR)
        return open_transcriber(spec, self._limits, self._retry_policy, self.meter(tenant_id, spec, ASR))

    def meter(self, tenant_id: TenantId, spec: ModelSpec, kind: str) -> Meter:
        """Return the meter for requests to a model other than a chat model."""
        price, gate = self._cost_model.prices.price_of(spec), self._gate(tenant_id, spec)
        return Meter(spec, kind, price, gate, self._billing_context(tenant_id))

    def accounts(self, tenant_id: TenantId) -> tuple[VendorAccount, ...]:
        """Return the accounts of the tenant and of the deployment. May read the database, once for all callers."""
        return self._load(tenant_id).accounts

    def _gate(self, tenant_id: TenantId, spec: ModelSpec) -> RequestLimiter | None:
        return (
            self._rate_limiter.account_limiter(spec.rate_limit, str(tenant_id))
            if self._rate_limiter and spec.rate_limit
            else None
        )

    def _billing_context(self, tenant_id: TenantId) -> BillingContext:
        """Return who pays for calls outside of attempts."""
        return tenant_billing(tenant_id, self._database, self._cost_model)

    async def _spec(self, tenant_id: TenantId, llm_id: str, kind: str) -> ModelSpec:
        """Return the specification of a model of any kind; the scripted one if a script replaces all models."""
        if self._script(tenant_id) is not None:
            return scripted_spec(llm_id)
        known = self._find_cached(tenant_id) or await asyncio.to_thread(self._load, tenant_id)
        return resolve(llm_id, known.accounts, kind=kind)

    def _load(self, tenant_id: TenantId) -> _CachedTenant:
        known = self._find_cached(tenant_id)
        if known is not None:
            return known
        with self._lock:
            reading = self._read_locks.setdefault(tenant_id, threading.Lock())
        with reading:
            known = self._find_cached(tenant_id)
            return known if known is not None else self._read(tenant_id)

    @property
    def cached_tenants(self) -> int:
        """Number of cached tenants, expired ones included."""
        return len(self._cache)

    def _find_cached(self, tenant_id: TenantId) -> _CachedTenant | None:
        known = self._cache.get(tenant_id)
        return known if known is not None and time.monotonic() < known.until else None

    def _read(self, tenant_id: TenantId) -> _CachedTenant:
        with self._database.transaction() as tx:
            rows = model_accounts.list_accounts(tx, tenant_id, self._encryption_key)
        own = accounts_from_rows(rows, tenant_id)
        if len(self._cache) >= MAX_CACHED_TENANTS:
            self._remove_expired()
        known = self._cache[tenant_id] = _CachedTenant((*own, *self._shared), time.monotonic() + ACCOUNT_CACHE_TTL)
        return known

    def _remove_expired(self) -> None:
        """Remove expired entries."""
        now = time.monotonic()
        with self._lock:
            for tenant_id in [tenant_id for tenant_id, known in self._cache.copy().items() if known.until < now]:
                self._cache.pop(tenant_id, None)
                self._read_locks.pop(tenant_id, None)
