"""The application, which `easel api` serves.

Routes, error mapping, and what lives as long as it does.
"""

import secrets
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from pathlib import Path

import anyio.to_thread
from fastapi import APIRouter, FastAPI
from starlette.routing import Route

import settings
import telemetry
from api import health
from api.agents import agents, conversations, database_check, drafts, files, plugin_tools, tags, tool_logs
from api.agents.findings import Checked
from api.dependencies import Edge, in_thread
from api.http.errors import add_handlers
from api.knowledge import datasets, documents, memories, messages, retrieval
from api.mcp import routes as mcp_routes
from api.mcp.server import PATH, McpEndpoint
from api.runs import budgets, completions, openai_models, runs, share_links, tasks
from api.runs.event_reader import THREADS, Readings
from api.runs.event_stream import Streams
from api.webhooks import routes as webhook_routes
from api.webhooks.token_bucket import TokenBuckets
from components import plugins
from knowledge.bases.search import Library
from knowledge.index.index_cache import Shelf
from knowledge.memory.memories import Memories
from knowledge.models import TenantModels
from providers.databases.databases import place_of, reached
from providers.http.address_policy import Guard
from providers.http.client import Outgoing
from providers.isolation.limited_process import close_limited_processes
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.prices import Prices, prices_from
from providers.models.chat.catalogue import Limits
from providers.models.limits.rate_limiter import RateLimiter
from providers.models.transport.clients import close_connections
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.vendors.accounts import accounts_from_toml
from scheduler.bootstrap import build_coordinator
from scheduler.health.watchdog import BEHIND_WATCHES, LockWatchdog
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.circuit_breaker import CircuitBreaker
from scheduler.messaging.redis_bus import async_redis
from scheduler.messaging.subscriptions import EventSubscriptions
from store.db.database import Database
from store.files.large_values import NO_STORAGE
from store.files.storage import large_values_of
from store.primitives.encryption import EncryptionKey

PREFIX = "/api/v1"
LONGEST_WAIT = 30.0  # seconds that a search waits for the limits of a model's account; its client waits too
SWITCHES_WITHIN = 0.001  # seconds that a thread of a route may compute while the event loop, and every stream, waits


@dataclass(frozen=True, slots=True)
class Figures:
    """What an API process is told: where the servers are, and its limits."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    broker_url: str = field(repr=False)
    pool: int = 8
    max_canvas_bytes: int = 8 * 1024 * 1024
    max_body_bytes: int = 1024 * 1024
    form_expiry: timedelta = timedelta(days=30)
    max_running: int = 256
    max_activations: int = 100_000
    files_dir: Path | None = None
    files_url: str | None = None  # a bucket in its place
    s3_endpoint: str | None = None
    models_file: Path | None = None
    prices_file: Path | None = None
    guard: Guard = field(default_factory=Guard)
    http_user_agent: str | None = None
    contact: str | None = None
    trino_use_tls: bool = False
    secret: str | None = field(default=None, repr=False)  # None: one of this process's own
    limit_of: Callable[[str], float] = lambda component: inf  # seconds that one attempt of a component may take
    llm_timeout: timedelta = timedelta(seconds=600)
    private_models: bool = True  # whether accounts of models may lead to private addresses
    model_proxies: bool = False  # whether requests to models go by the proxies that the environment names
    lock_held_for: float | None = (
        None  # seconds after which a call in C that keeps the interpreter's lock ends the process
    )
    knowledge_memory: int = 512 * 1024 * 1024  # bytes of the indexes of knowledge bases
    look_every: float = 2.0
    beat_every: float = 15.0
    asks_elsewhere: bool = False  # there is a search server (EASEL_RAGFLOW_URL)
    plugins: frozenset[str] = frozenset()  # names of those that canvases may use
    open_metrics: bool = False  # /metrics needs no token
    open_schema: bool = False  # /openapi.json needs none


def create_app(figures: Figures | None = None) -> FastAPI:
    """An application on these servers; without figures on those of the environment (and with its logging)."""
    chosen = figures or _from_environment()
    endpoint = McpEndpoint(chosen.max_body_bytes)
    plugins.load(chosen.plugins)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        sys.setswitchinterval(SWITCHES_WITHIN)
        anyio.to_thread.current_default_thread_limiter().total_tokens = chosen.pool
        edge = _edge(chosen)
        app.state.edge = edge
        app.state.open_routes = health.OpenRoutes(metrics=chosen.open_metrics, schema=chosen.open_schema)
        app.state.http = http = Outgoing(chosen.guard, user_agent=chosen.http_user_agent, contact=chosen.contact)
        own = place_of(chosen.database_url)
        app.state.databases = reached(chosen.guard, own, trino_use_tls=chosen.trino_use_tls)
        app.state.readiness = health.readiness()
        app.state.webhooks = webhook_routes.Webhooks(
            TokenBuckets(chosen.redis_url), chosen.secret or secrets.token_urlsafe(32)
        )
        await edge.streams.start()
        watchdog = LockWatchdog(chosen.lock_held_for) if chosen.lock_held_for is not None else None
        if watchdog is not None:
            watchdog.start()
        try:
            async with endpoint.running():
                yield
        finally:
            await edge.background.finish()
            if watchdog is not None:
                await in_thread(watchdog.stop)
            await edge.streams.close()
            app.state.readiness.close()
            await in_thread(close_limited_processes)
            await http.aclose()
            await close_connections()
            await edge.governor.close()
            app.state.webhooks.buckets.close()
            edge.lifecycle.coordinator.dispatch.bus.close()
            edge.broker.close()
            edge.database.close()

    app = FastAPI(  # no pages of FastAPI's: they load scripts from another host
        title="Easel",
        version=telemetry.VERSION,
        description="Runs agent canvases, durably.",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    add_handlers(app)
    api = APIRouter(prefix=PREFIX)
    # The first route that matches wins, so a path of words stands before one that has an id in the place of a word:
    # `/agents/tags` before `/agents/{agent_id}`. A test holds the order (test_no_path_of_words_is_hidden...).
    every = (
        completions, share_links, runs, budgets, tasks, conversations, files, tool_logs, webhook_routes, mcp_routes,
        tags, openai_models, database_check, drafts, agents, datasets, documents, retrieval, memories, messages,
        plugin_tools,
    )  # fmt: skip
    for subject in every:
        api.include_router(subject.router)
    app.include_router(api)
    app.include_router(files.old_router)
    app.include_router(health.router)
    app.router.routes.append(Route(PATH, endpoint=endpoint))
    return app


def _from_environment() -> Figures:
    configured = settings.load()
    telemetry.configure(configured.log_level, configured.log_format)
    telemetry.introduce("api", settings.renamed_variables())
    database_url, redis_url, broker_url = configured.servers()
    return Figures(
        database_url,
        redis_url,
        broker_url,
        pool=configured.api_pool,
        max_canvas_bytes=configured.max_canvas_bytes,
        max_body_bytes=configured.max_body_bytes,
        form_expiry=configured.form_expiry,
        max_running=configured.max_running,
        max_activations=configured.max_activations,
        files_dir=configured.files_dir,
        files_url=configured.files_url,
        s3_endpoint=configured.s3_endpoint,
        models_file=configured.models_file,
        prices_file=configured.prices_file,
        guard=Guard.parse(allow_any=configured.allow_any_host, allowed=configured.ssrf_allow or ""),
        http_user_agent=configured.http_user_agent,
        contact=configured.contact,
        trino_use_tls=configured.trino_use_tls,
        secret=configured.sealing_secret(),
        limit_of=configured.time_limit,
        llm_timeout=configured.llm_timeout,
        private_models=configured.private_models,
        model_proxies=configured.model_proxies,
        lock_held_for=configured.unresponsive_after.total_seconds() + BEHIND_WATCHES,
        knowledge_memory=configured.knowledge_memory,
        asks_elsewhere=configured.ragflow_url is not None,
        plugins=configured.allowed_plugins,
        open_metrics=configured.open_metrics,
        open_schema=configured.open_schema,
    )


def _edge(figures: Figures) -> Edge:
    broker = make_app(figures.broker_url, publishers=figures.pool)
    folder, bucket = figures.files_dir, (figures.files_url, figures.s3_endpoint)
    large = large_values_of(folder, *bucket, keeps=False) if folder is not None else NO_STORAGE
    coordinator = build_coordinator(
        broker,
        figures.database_url,
        figures.redis_url,
        pool_size=figures.pool,
        application="easel-api",
        form_expiry=figures.form_expiry,
        max_running=figures.max_running,
        max_activations=figures.max_activations,
        plans_once=False,
        large=large,
    )
    reading = Database(figures.database_url, pool_size=THREADS, application="easel-streams", large=large)
    streams = Streams(
        Readings(reading, coordinator.versions),
        EventSubscriptions(figures.redis_url),
        look_every=figures.look_every,
        beat_every=figures.beat_every,
        blobs=large.blobs,
    )
    shared = accounts_from_toml(figures.models_file) if figures.models_file is not None else []
    sealing_key = EncryptionKey.of(figures.secret) if figures.secret is not None else None
    database = coordinator.database
    governor = RateLimiter(async_redis(figures.redis_url), CircuitBreaker(), coordinator.dispatch.counters)
    hosts = ModelAddressPolicy(figures.guard, figures.private_models, figures.model_proxies)
    limits = Limits(request_timeout=figures.llm_timeout, hosts=hosts)
    models = TenantModels(
        database,
        shared,
        limits,
        sealing_key,
        governor=governor,
        spending=CostModel(prices_from(figures.prices_file) if figures.prices_file else Prices()),
        longest_wait=LONGEST_WAIT,
    )
    return Edge(
        Lifecycle(coordinator),
        streams,
        Checked(),
        broker,
        figures.max_canvas_bytes,
        telemetry.metrics_page,
        Library(database, Shelf(database, figures.knowledge_memory), models),
        Memories(database, models, coordinator.dispatch.extract),
        models,
        governor,
        large.blobs,
        shared_accounts=shared,
        limit_of=figures.limit_of,
        max_body_bytes=figures.max_body_bytes,
        sealing_key=sealing_key,
        asks_elsewhere=figures.asks_elsewhere,
    )
