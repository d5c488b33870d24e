"""The models of knowledge bases: embedding models, rerankers, and chat models for optional steps."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from canvas.ids import TenantId
from knowledge.billing import tenant_billing
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.metering import MAX_WAIT, Meter, MeteredModel
from providers.models.billing.prices import PricedModel
from providers.models.chat.catalogue import RequestLimits, open_chat, resolve
from providers.models.embeddings.factory import EMBEDDING, RERANK, Embedder, Reranker, open_embedder, open_reranker
from providers.models.limits.rate_limited_wire import RequestLimiter
from providers.models.limits.rate_limiter import RateLimiter
from providers.models.types.chat import ChatModel, ModelSpec
from providers.models.vendors.accounts import AccountModel, VendorAccount
from providers.rate_limits import RateLimits
from store.db.database import Database
from store.primitives.encryption import EncryptionKey
from store.tenants import model_accounts
from store.tenants.model_accounts import AccountRow


class Models(Protocol):
    """Opens a tenant's models by id; raises ModelError for a missing model. Workers have an implementation of their
    own.

    Calls are billed to the attempt that makes them, or to the tenant (providers/models/billing/metering.py).
    """

    async def open(self, tenant_id: TenantId, llm_id: str, kind: str = "chat") -> ChatModel:
        """Open a chat model. Its account must list it with this `kind`; `vision` and `ocr` models read images."""
        ...

    async def embedder(self, tenant_id: TenantId, llm_id: str) -> Embedder: ...

    async def reranker(self, tenant_id: TenantId, llm_id: str) -> Reranker: ...

    def accounts(self, tenant_id: TenantId) -> Sequence[VendorAccount]:
        """Return the tenant's own accounts and those of the deployment. May read the database."""
        ...


def first_model_of(accounts: Sequence[VendorAccount], kind: str) -> str | None:
    """Return the id of the first model of a kind in active accounts, the tenant's default; None if there is none."""
    return next(
        (
            f"{name}@{account.instance}@{account.factory}"
            for account in accounts
            if account.status == "active"
            for name, model in account.models.items()
            if kind in model.kinds and model.status == "active"
        ),
        None,
    )


def accounts_from_rows(rows: Sequence[AccountRow], tenant_id: TenantId) -> list[VendorAccount]:
    """Return a tenant's own accounts, with their rate limits."""
    return [
        VendorAccount(
            factory=row.factory,
            instance=row.instance,
            base_url=row.base_url,
            api_key=row.api_key,
            models={name: AccountModel.model_validate(model) for name, model in row.models.items()},
            status=row.status,
            extra=row.extra,
            rate_limits=RateLimits.from_fields(row.extra),
            owner=str(tenant_id),
        )
        for row in rows
    ]


class TenantModels:
    """Opens models anew for each call, for processes that need few: the API and commands.

    `max_wait` is how many seconds a request waits at most for its account's rate limit.
    """

    def __init__(
        self,
        database: Database,
        shared: Sequence[VendorAccount],
        limits: RequestLimits,
        encryption_key: EncryptionKey | None,
        *,
        rate_limiter: RateLimiter | None = None,
        cost_model: CostModel | None = None,
        max_wait: float = MAX_WAIT,
    ) -> None:
        self._database = database
        self._shared = tuple(shared)
        self._limits = limits
        self._encryption_key = encryption_key
        self._rate_limiter = rate_limiter
        self._cost_model = cost_model or CostModel()
        self._max_wait = max_wait

    async def open(self, tenant_id: TenantId, llm_id: str, kind: str = "chat") -> ChatModel:
        spec = resolve(llm_id, await self._accounts(tenant_id), kind=kind)
        model = open_chat(spec, self._limits, limiter=self._account_limiter(tenant_id, spec))
        billing = tenant_billing(tenant_id, self._database, self._cost_model, self._max_wait)
        return MeteredModel(PricedModel(model, self._cost_model.prices.price_of(spec)), billing)

    async def embedder(self, tenant_id: TenantId, llm_id: str) -> Embedder:
        spec = resolve(llm_id, await self._accounts(tenant_id), kind=EMBEDDING)
        return open_embedder(spec, self._limits, meter=self.meter(tenant_id, spec, EMBEDDING))

    async def reranker(self, tenant_id: TenantId, llm_id: str) -> Reranker:
        spec = resolve(llm_id, await self._accounts(tenant_id), kind=RERANK)
        return open_reranker(spec, self._limits, meter=self.meter(tenant_id, spec, RERANK))

    def meter(self, tenant_id: TenantId, spec: ModelSpec, kind: str) -> Meter:
        """Return the meter for requests to an embedding model or a reranker."""
        billing = tenant_billing(tenant_id, self._database, self._cost_model, self._max_wait)
        return Meter(
            spec, kind, self._cost_model.prices.price_of(spec), self._account_limiter(tenant_id, spec), billing
        )

    def accounts(self, tenant_id: TenantId) -> Sequence[VendorAccount]:
        with self._database.transaction() as tx:
            rows = model_accounts.list_accounts(tx, tenant_id, self._encryption_key)
        return (*accounts_from_rows(rows, tenant_id), *self._shared)

    async def _accounts(self, tenant_id: TenantId) -> Sequence[VendorAccount]:
        return await asyncio.to_thread(self.accounts, tenant_id)

    def _account_limiter(self, tenant_id: TenantId, spec: ModelSpec) -> RequestLimiter | None:
        return (
            self._rate_limiter.account_limiter(spec.rate_limit, str(tenant_id))
            if self._rate_limiter and spec.rate_limit
            else None
        )
