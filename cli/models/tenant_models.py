"""The models that commands ask by themselves: vectors of what they store and search, and ranks."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from cli.shell.connection import Connection
from knowledge.models import TenantModels, first_of
from providers.http.address_policy import Guard
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.prices import Prices, prices_from
from providers.models.chat.catalogue import Limits, resolve
from providers.models.embeddings.factory import EMBEDDING
from providers.models.limits.rate_limiter import RateLimiter
from providers.models.transport.clients import close_connections
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.vendors.accounts import Account, accounts_from_toml
from scheduler.messaging.circuit_breaker import CircuitBreaker
from scheduler.messaging.redis_bus import async_redis
from scheduler.metrics import Metrics
from settings import Settings
from store.primitives.encryption import EncryptionKey


def models_of(connection: Connection, governor: RateLimiter | None = None) -> TenantModels:
    """The models of every tenant, by the rows and settings of this command."""
    settings = connection.found.settings
    shared = accounts_from_toml(settings.models_file) if settings.models_file else ()
    prices = prices_from(settings.prices_file) if settings.prices_file else Prices()
    return TenantModels(
        connection.database,
        shared,
        limits_of(settings),
        EncryptionKey.of(settings.sealing_secret()),
        governor=governor,
        spending=CostModel(prices, settings.budget_answer_tokens),
    )


def limits_of(settings: Settings) -> Limits:
    """How long a request of a command to a model may take, and where it may lead."""
    guard = Guard.parse(allow_any=settings.allow_any_host, allowed=settings.ssrf_allow or "")
    hosts = ModelAddressPolicy(guard, settings.private_models, settings.model_proxies)
    return Limits(request_timeout=settings.llm_timeout, hosts=hosts)


@asynccontextmanager
async def asking(connection: Connection) -> AsyncGenerator[TenantModels]:
    """The same, to be asked within the block: what leaves keeps the pace of its account, beside all workers."""
    _, redis_url, _ = connection.found.settings.servers()
    governor = RateLimiter(async_redis(redis_url), CircuitBreaker(), Metrics())
    try:
        yield models_of(connection, governor)
    finally:
        await close_connections()
        await governor.close()


def embedding_of(accounts: Sequence[Account], named: str | None) -> str:
    """The embedding model for something new: the named one, else the tenant's first one; "" if there is none.

    Raises ModelError for a model that the tenant cannot use.
    """
    chosen = named or first_of(accounts, EMBEDDING) or ""
    if chosen:
        resolve(chosen, accounts, kind=EMBEDDING)
    return chosen


def searched_by(model: str) -> str:
    """What a search goes by, in words; `model` is "" where there are no vectors."""
    return f"vectors of {model} and words" if model else "words alone"
