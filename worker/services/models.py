"""The models of tenants: from accounts in the database and in the TOML file, cached for a few seconds."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from knowledge.billing import tenant_billing
from knowledge.models import accounts_from_rows
from providers.models.audio.transcription import KIND as ASR
from providers.models.audio.transcription import Transcriber, open_transcriber
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.metering import BillingContext, Meter, MeteredModel
from providers.models.billing.prices import PricedModel
from providers.models.chat.catalogue import Limits, open_chat, resolve
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.chat.scripted import Script, scripted_spec
from providers.models.embeddings.factory import EMBEDDING, RERANK, Embedder, Reranker, open_embedder, open_reranker
from providers.models.limits.gated_wire import RequestLimiter
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
        limits: Limits,
        sealing_key: EncryptionKey | None,
        script: Callable[[UUID], Script | None] = lambda _: None,
        pace: RetryPolicy | None = None,
        spending: CostModel | None = None,
        governor: RateLimiter | None = None,
    ) -> None:
        self._database = database
        self._shared = tuple(shared)
        self._limits = limits
        self._sealing_key = sealing_key
        self._script = script
        self._pace = pace
        self._spending = spending or CostModel()
        self._governor = governor
        self._kept: dict[UUID, _CachedTenant] = {}
        self._reading: dict[UUID, threading.Lock] = {}  # by tenant: one thread reads, and the others wait for it
        self._lock = threading.Lock()

    async def open(self, tenant_id: UUID, llm_id: str, kind: str = "chat") -> ChatModel:
        """Return a chat model by id, for calls that no component makes. The current attempt pays for them.

        Raises ModelError, which says what is missing.
        """
        return MeteredModel(await self.unpaid(tenant_id, llm_id, kind), self._payer(tenant_id))

    async def unpaid(self, tenant_id: UUID, llm_id: str, kind: str = "chat") -> ChatModel:
        """Return a chat model by id, for a component: its context adds who pays. Raises ModelError."""
        script = self._script(tenant_id)
        if script is not None:
            return open_chat(scripted_spec(llm_id), self._limits, scripted=script, retry_policy=self._pace)
        known = self._known(tenant_id) or await asyncio.to_thread(self._asked, tenant_id)
        model = known.models.get((kind, llm_id))
        if model is None:
            spec = resolve(llm_id, known.accounts, kind=kind)
            model = open_chat(spec, self._limits, limiter=self._gate(tenant_id, spec))
            if not model.spec.stand_in:  # a built-in model reads its rules at each call, and costs nothing
                model = known.models[kind, llm_id] = PricedModel(model, self._spending.prices.of(model.spec))
        return model

    async def embedder(self, tenant_id: UUID, llm_id: str) -> Embedder:
        """Return an embedding model by id. Raises ModelError, which says what is missing."""
        spec = await self._spec(tenant_id, llm_id, EMBEDDING)
        return open_embedder(spec, self._limits, self._pace, self.meter(tenant_id, spec, EMBEDDING))

    async def reranker(self, tenant_id: UUID, llm_id: str) -> Reranker:
        """Return a reranking model by id. Raises ModelError, which says what is missing."""
        spec = await self._spec(tenant_id, llm_id, RERANK)
        return open_reranker(spec, self._limits, self._pace, self.meter(tenant_id, spec, RERANK))

    async def transcriber(self, tenant_id: UUID, llm_id: str) -> Transcriber:
        """Return a transcription model by id. Raises ModelError, which says what is missing."""
        spec = await self._spec(tenant_id, llm_id, ASR)
        return open_transcriber(spec, self._limits, self._pace, self.meter(tenant_id, spec, ASR))

    def meter(self, tenant_id: UUID, spec: ModelSpec, kind: str) -> Meter:
        """Return the meter for requests to a model other than a chat model."""
        price, gate = self._spending.prices.of(spec), self._gate(tenant_id, spec)
        return Meter(spec, kind, price, gate, self._payer(tenant_id))

    def accounts(self, tenant_id: UUID) -> tuple[VendorAccount, ...]:
        """Return the accounts of the tenant and of the deployment. May read the database, once for all callers."""
        return self._asked(tenant_id).accounts

    def _gate(self, tenant_id: UUID, spec: ModelSpec) -> RequestLimiter | None:
        return self._governor.gate(spec.paced, str(tenant_id)) if self._governor and spec.paced else None

    def _payer(self, tenant_id: UUID) -> BillingContext:
        """Return who pays for calls outside of attempts."""
        return tenant_billing(tenant_id, self._database, self._spending)

    async def _spec(self, tenant_id: UUID, llm_id: str, kind: str) -> ModelSpec:
        """Return the specification of a model of any kind; the scripted one if a script replaces all models."""
        if self._script(tenant_id) is not None:
            return scripted_spec(llm_id)
        known = self._known(tenant_id) or await asyncio.to_thread(self._asked, tenant_id)
        return resolve(llm_id, known.accounts, kind=kind)

    def _asked(self, tenant_id: UUID) -> _CachedTenant:
        known = self._known(tenant_id)
        if known is not None:
            return known
        with self._lock:
            reading = self._reading.setdefault(tenant_id, threading.Lock())
        with reading:
            known = self._known(tenant_id)
            return known if known is not None else self._read(tenant_id)

    @property
    def kept(self) -> int:
        """Number of cached tenants, expired ones included."""
        return len(self._kept)

    def _known(self, tenant_id: UUID) -> _CachedTenant | None:
        known = self._kept.get(tenant_id)
        return known if known is not None and time.monotonic() < known.until else None

    def _read(self, tenant_id: UUID) -> _CachedTenant:
        with self._database.transaction() as tx:
            rows = model_accounts.list_accounts(tx, tenant_id, self._sealing_key)
        own = accounts_from_rows(rows, tenant_id)
        if len(self._kept) >= MAX_CACHED_TENANTS:
            self._forget()
        known = self._kept[tenant_id] = _CachedTenant((*own, *self._shared), time.monotonic() + ACCOUNT_CACHE_TTL)
        return known

    def _forget(self) -> None:
        """Remove expired entries."""
        now = time.monotonic()
        with self._lock:
            for tenant_id in [tenant_id for tenant_id, known in self._kept.copy().items() if known.until < now]:
                self._kept.pop(tenant_id, None)
                self._reading.pop(tenant_id, None)
