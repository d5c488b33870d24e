"""Models that commands call themselves: embeddings of stored and searched texts, and rerankers."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from cli.shell.connection import CommandConnection
from knowledge.models import TenantModels, first_model_of
from providers.address_policy import Guard
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.prices import read_prices
from providers.models.chat.catalogue import RequestLimits, resolve
from providers.models.embeddings.factory import EMBEDDING
from providers.models.limits.rate_limiter import RateLimiter
from providers.models.transport.clients import close_connections
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.vendors.accounts import VendorAccount, accounts_from_toml
from scheduler.messaging.circuit_breaker import CircuitBreaker
from scheduler.messaging.redis_bus import async_redis
from scheduler.metrics import Metrics
from settings import Settings
from store.primitives.encryption import EncryptionKey


def tenant_models(connection: CommandConnection, rate_limiter: RateLimiter | None = None) -> TenantModels:
    """Return the models of every tenant, from the database and the settings of this command."""
    settings = connection.servers.settings
    shared = accounts_from_toml(settings.models_file) if settings.models_file else ()
    return TenantModels(
        connection.database,
        shared,
        request_limits(settings),
        EncryptionKey.from_secret(settings.encryption_secret()),
        rate_limiter=rate_limiter,
        cost_model=CostModel(read_prices(settings.prices_file), settings.budget_answer_tokens),
    )


def guard_of(settings: Settings) -> Guard:
    """Return the guard of a command's requests."""
    return Guard.parse(allow_any=settings.allow_any_host, allowed=settings.ssrf_allow or "")


def request_limits(settings: Settings) -> RequestLimits:
    """Return the time limit and the allowed addresses of a command's requests to models."""
    hosts = ModelAddressPolicy(guard_of(settings), settings.private_models, settings.model_proxies)
    return RequestLimits(request_timeout=settings.llm_timeout, hosts=hosts)


@asynccontextmanager
async def open_models(connection: CommandConnection) -> AsyncGenerator[TenantModels]:
    """Return these models for calls within the block. The calls share the rate limits of accounts with all workers."""
    _, redis_url, _ = connection.servers.settings.servers()
    rate_limiter = RateLimiter(async_redis(redis_url), CircuitBreaker(), Metrics())
    try:
        yield tenant_models(connection, rate_limiter)
    finally:
        await close_connections()
        await rate_limiter.close()


def choose_embedding_model(accounts: Sequence[VendorAccount], named: str | None) -> str:
    """Return the embedding model for new texts: the named one, else the tenant's first one, else "".

    Raises ModelError for a model that the tenant cannot use.
    """
    chosen = named or first_model_of(accounts, EMBEDDING) or ""
    if chosen:
        resolve(chosen, accounts, kind=EMBEDDING)
    return chosen


def describe_search(model: str) -> str:
    """Return a description of how a search matches; `model` is "" if there are no vectors."""
    return f"vectors of {model} and words" if model else "words alone"
