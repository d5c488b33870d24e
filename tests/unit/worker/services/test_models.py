import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from canvas.errors import ModelError
from providers.models.chat.catalogue import RequestLimits
from providers.models.chat.scripted import Script
from providers.models.vendors.accounts import AccountModel, VendorAccount
from store.db.database import Database
from store.tenants import budgets, model_accounts
from worker.services import models
from worker.services.models import CachedTenantModels

THREADS = 8
SHARED = VendorAccount(
    factory="OpenAI-API-Compatible", base_url="http://model.example/v1", api_key="key", models={"m": AccountModel()}
)


class Rows:
    """A database that records which accounts are read, and on which threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[UUID] = []
        self.threads: list[int] = []
        monkeypatch.setattr(model_accounts, "list_accounts", self._accounts_of)
        monkeypatch.setattr(budgets, "lock_for_tenant", self._no_budgets)

    @contextmanager
    def transaction(self) -> Generator[None]:
        yield

    def models(self, script: Script | None = None) -> CachedTenantModels:
        return CachedTenantModels(cast(Database, self), [SHARED], RequestLimits(), None, script=lambda _: script)

    def _no_budgets(self, *_: Any) -> list[Any]:
        return []

    def _accounts_of(self, tx: Any, tenant_id: UUID, key: Any) -> list[Any]:
        self.read.append(tenant_id)
        self.threads.append(threading.get_ident())
        return []


def test_concurrent_requests_read_a_tenants_accounts_once(monkeypatch: pytest.MonkeyPatch):
    rows = Rows(monkeypatch)
    tenant_models, tenant_id = rows.models(), uuid4()
    together = threading.Barrier(THREADS)

    def get_accounts(_: int) -> tuple[VendorAccount, ...]:
        together.wait(30)
        return tenant_models.accounts(tenant_id)

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(get_accounts, range(THREADS)))

    assert results == [(SHARED,)] * THREADS
    assert rows.read == [tenant_id]


def test_accounts_are_read_on_a_thread_and_cached_ones_are_not(monkeypatch: pytest.MonkeyPatch):
    rows = Rows(monkeypatch)
    tenant_models, tenant_id = rows.models(), uuid4()
    thread_calls: list[Any] = []
    to_thread = asyncio.to_thread

    async def record_call(work: Any, *arguments: Any) -> Any:
        thread_calls.append(work)
        return await to_thread(work, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", record_call)

    async def open_twice() -> None:
        await tenant_models.open(tenant_id, "m@OpenAI-API-Compatible")
        await tenant_models.open(tenant_id, "m@OpenAI-API-Compatible")

    asyncio.run(open_twice())

    assert rows.threads != [threading.get_ident()]
    assert len(thread_calls) == 1


def test_model_is_opened_once_while_its_account_is_cached(monkeypatch: pytest.MonkeyPatch):
    tenant_models, tenant_id, other = Rows(monkeypatch).models(), uuid4(), uuid4()

    async def open_models() -> tuple[object, ...]:
        requests = [(tenant_id, "m"), (tenant_id, "m"), (other, "m"), (tenant_id, "m@OpenAI-API-Compatible")]
        return tuple([await tenant_models.open_unmetered(*each) for each in requests])

    first, again, of_another_tenant, by_another_name = asyncio.run(open_models())

    assert again is first
    assert of_another_tenant is not first
    assert by_another_name is not first


def test_changed_account_is_used_after_the_cache_expires(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models, "ACCOUNT_CACHE_TTL", -1.0)
    tenant_models, tenant_id = Rows(monkeypatch).models(), uuid4()

    async def open_models() -> tuple[object, object]:
        return await tenant_models.open(tenant_id, "m"), await tenant_models.open(tenant_id, "m")

    first, later = asyncio.run(open_models())

    assert later is not first


def test_expired_accounts_are_removed_from_the_cache(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models, "MAX_CACHED_TENANTS", 2)
    monkeypatch.setattr(models, "ACCOUNT_CACHE_TTL", -1.0)
    rows = Rows(monkeypatch)
    tenant_models = rows.models()

    for _ in range(5):
        tenant_models.accounts(uuid4())

    assert len(rows.read) == 5
    assert tenant_models.cached_tenants <= 2


def test_embedding_and_reranking_models_are_found_by_id(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(
        cast(dict[str, AccountModel], SHARED.models), "vec", AccountModel(kinds=frozenset({"embedding"}))
    )
    tenant_models = Rows(monkeypatch).models()

    embedder = asyncio.run(tenant_models.embedder(uuid4(), "vec@OpenAI-API-Compatible"))

    assert embedder.model == "vec@OpenAI-API-Compatible"
    with pytest.raises(ModelError, match="vec of provider OpenAI-API-Compatible cannot be used as rerank"):
        asyncio.run(tenant_models.reranker(uuid4(), "vec@OpenAI-API-Compatible"))


def test_script_replaces_embedding_and_reranking_models_too(monkeypatch: pytest.MonkeyPatch):
    tenant_models = Rows(monkeypatch).models(Script([]))

    async def embed_and_rank() -> tuple[int, Any]:
        embedder, reranker = (
            await tenant_models.embedder(uuid4(), "any@One"),
            await tenant_models.reranker(uuid4(), "any@One"),
        )
        return len((await embedder.embed(["a"])).vectors), await reranker.rank("a", ["a", "b"])

    assert asyncio.run(embed_and_rank()) == (1, [1.0, 0.0])
