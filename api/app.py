"""The application that `easel api` serves: its routes, its error handlers, and the objects that live as long as it."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI
from starlette.routing import Route

import telemetry
from api import health, system
from api.a2a import routes as a2a_routes
from api.agents import (
    agent_graph,
    agents,
    conversations,
    database_check,
    dataflows,
    drafts,
    files,
    plugin_tools,
    prompts,
    tags,
    templates,
    tool_logs,
)
from api.callbacks import routes as callback_routes
from api.events.event_reader import THREADS, EventReader
from api.events.event_stream import KEEPALIVE_INTERVAL, POLL_INTERVAL, EventStreams
from api.events.live_stream import LiveMetrics, LiveStreams
from api.findings import CheckedVersions
from api.http.base_path import BasePath
from api.http.edge import CrossOrigin, RequestIds
from api.http.errors import add_handlers
from api.http.http1_protocol import BEFORE_SHUTDOWN
from api.http.openapi import DescribedApi
from api.knowledge import (
    chunks,
    datasets,
    document_metadata,
    documents,
    memories,
    messages,
    parsing,
    previews,
    retrieval,
)
from api.mcp import metadata as mcp_metadata
from api.mcp import routes as mcp_routes
from api.mcp.server import PATH, McpEndpoint
from api.pages import page_files
from api.pages.routes import page_routes
from api.requests.cookies import SignInPolicy
from api.requests.dependencies import ApiContext, run_in_thread
from api.requests.rate_limits import TokenLimits
from api.requests.token_bucket import TokenBuckets
from api.responses import routes as response_routes
from api.runs import (
    activation_list,
    activation_page,
    budgets,
    calls,
    cancel_runs,
    completions,
    container_items,
    critical_path,
    live,
    node_runs,
    openai_models,
    run_copies,
    run_export,
    run_graph,
    run_list,
    run_shares,
    runs,
    share_links,
    shared_sessions,
    tasks,
)
from api.schedules import routes as schedule_routes
from api.viewer import audit_log, component_catalogue, editor, light_lists, new_agents, sign_ins
from api.viewer import comparison as viewer_comparison
from api.viewer import overview as viewer_overview
from api.viewer import system as viewer_system
from api.viewer import tokens as viewer_tokens
from api.viewer import versions as viewer_versions
from api.viewer.state import ViewerState
from api.webhooks import routes as webhook_routes
from components import plugins
from knowledge.bases.search import KnowledgeBaseSearch
from knowledge.memory.memories import MemoryStore
from knowledge.models import TenantModels
from providers.address_policy import Guard
from providers.databases.databases import database_location, database_servers
from providers.http.client import HttpClient
from providers.isolation.limited_process import close_limited_processes
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.price_updates import start_updates
from providers.models.billing.prices import read_prices
from providers.models.chat.catalogue import RequestLimits
from providers.models.limits.rate_limiter import RateLimiter
from providers.models.transport.clients import close_connections
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.vendors.accounts import accounts_from_toml
from scheduler.bootstrap import Role, build_coordinator
from scheduler.health.watchdog import LOCK_WATCHDOG_DELAY, LockWatchdog
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.circuit_breaker import CircuitBreaker
from scheduler.messaging.redis_bus import async_redis
from scheduler.messaging.subscriptions import EventSubscriptions
from settings import Settings, load, renamed_variables
from store.db.database import Database
from store.primitives.encryption import EncryptionKey

PREFIX = "/api/v1"
# seconds that a search waits for the rate limits of a model's account, while its client waits too
MAX_RATE_LIMIT_WAIT = 30.0
SWITCH_INTERVAL = 0.001  # seconds that a thread of a route may compute while the event loop and all streams wait


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """The settings of an API process, and intervals that only tests change."""

    settings: Settings
    poll_interval: float = POLL_INTERVAL
    """Seconds between two reads of the events of runs that a client follows: what a lost notification costs."""
    keepalive_interval: float = KEEPALIVE_INTERVAL
    """Seconds without an event after which a stream sends a comment, so that proxies keep the connection."""
    lock_timeout: float | None = None
    """Seconds after which a call in C that holds the interpreter's lock ends the process. None: it is not watched."""

    @property
    def guard(self) -> Guard:
        """The addresses that canvases may reach."""
        return Guard.parse(allow_any=self.settings.allow_any_host, allowed=self.settings.ssrf_allow or "")


def create_app(config: ApiConfig | None = None) -> FastAPI:
    """Return the application. Without a config, its settings and those of its logs come from the environment."""
    chosen = config or _config_from_environment()
    configured = chosen.settings
    endpoint = McpEndpoint(configured.max_body_bytes)
    plugins.load(configured.allowed_plugins)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[dict[str, Any]]:
        sys.setswitchinterval(SWITCH_INTERVAL)
        anyio.to_thread.current_default_thread_limiter().total_tokens = configured.api_pool
        database_url, _, _ = configured.servers()
        context = _build_context(chosen)
        app.state.context = context
        app.state.open_routes = health.OpenRoutes(metrics=configured.open_metrics, schema=configured.open_schema)
        app.state.http = http = HttpClient(
            chosen.guard, user_agent=configured.http_user_agent, contact=configured.contact
        )
        own = database_location(database_url)
        app.state.databases = database_servers(chosen.guard, own, trino_use_tls=configured.trino_use_tls)
        app.state.readiness = health.make_readiness_checks()
        buckets = context.rate_limits.buckets
        app.state.webhooks = webhook_routes.WebhookState(buckets, configured.encryption_secret())
        shown = {name: getattr(configured, field) for name, field in viewer_system.SHOWN_SETTINGS.items()}
        app.state.critical_paths = critical_path.new_cache()
        app.state.viewer = ViewerState(
            shown,
            configured.flower_url,
            buckets,
            configured.model_calls,
            count_sign_in=telemetry.count_sign_in,
        )
        await context.streams.start()
        updates = start_updates(configured.prices_url, chosen.guard)
        watchdog = LockWatchdog(chosen.lock_timeout) if chosen.lock_timeout is not None else None
        if watchdog is not None:
            watchdog.start()
        try:
            async with endpoint.running():
                yield {BEFORE_SHUTDOWN: context.live.shut_down}
        finally:
            await context.background.finish()
            if updates is not None:
                updates.stop()
            if watchdog is not None:
                await run_in_thread(watchdog.stop)
            context.live.close()
            await context.streams.close()
            app.state.readiness.close()
            await run_in_thread(close_limited_processes)
            await http.aclose()
            await close_connections()
            await context.rate_limiter.close()
            buckets.close()
            context.lifecycle.coordinator.dispatch.bus.close()
            context.broker.close()
            context.database.close()

    app = DescribedApi(  # without FastAPI's own pages, which load scripts from another host
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
    # The first route that matches wins, so a literal path comes before one with an id in its place: `/agents/tags`
    # before `/agents/{agent_id}`. test_no_path_of_words_is_hidden_behind_one_with_an_id checks the order.
    every = (
        completions, share_links, shared_sessions, run_list, run_copies, runs, cancel_runs, budgets, tasks,
        conversations, files, tool_logs, webhook_routes, mcp_routes, calls, tags, templates, openai_models,
        response_routes, a2a_routes, database_check, dataflows, prompts, drafts, agents, document_metadata,
        retrieval, datasets, documents, chunks, parsing, previews, memories, messages, system, plugin_tools,
        activation_list, activation_page, container_items, live, run_graph, run_export, agent_graph, light_lists,
        node_runs, viewer_versions, viewer_overview, viewer_system, viewer_comparison, sign_ins, run_shares, editor,
        component_catalogue, new_agents, viewer_tokens, audit_log, callback_routes, schedule_routes,
    )  # fmt: skip
    for subject in every:
        api.include_router(subject.router)
    api.include_router(dataflows.runtime_router)
    api.include_router(tool_logs.shared_router)
    app.include_router(api)
    app.include_router(files.old_router)
    app.include_router(system.old_router)
    app.include_router(mcp_metadata.router)
    app.include_router(health.router)
    app.router.routes.append(Route(PATH, endpoint=endpoint))
    pages = page_files.read_page_files(page_files.DIST, configured.base_path or "") if configured.viewer else None
    if pages is not None:
        app.router.routes.extend(page_routes(pages, telemetry.count_page, embedders=configured.embedders))
    if configured.callers:
        app.add_middleware(CrossOrigin, origins=configured.callers, paths=(f"{PREFIX}/", "/v1/", PATH, "/.well-known/"))
    app.add_middleware(RequestIds)
    if configured.base_path is not None:
        app.add_middleware(BasePath, base_path=configured.base_path)
    return app


def _config_from_environment() -> ApiConfig:
    configured = load()
    telemetry.configure(configured.log_level, configured.log_format)
    telemetry.introduce("api", renamed_variables())
    configured.servers()  # raises InvalidSettings before the server listens
    configured.encryption_secret()  # raises OSError then if the home cannot be written
    return ApiConfig(configured, lock_timeout=configured.unresponsive_after.total_seconds() + LOCK_WATCHDOG_DELAY)


def _build_context(config: ApiConfig) -> ApiContext:
    settings = config.settings
    database_url, redis_url, broker_url = settings.servers()
    broker = make_app(broker_url, publishers=settings.api_pool)
    coordinator = build_coordinator(
        broker,
        database_url,
        redis_url,
        settings,
        Role("easel-api", settings.api_pool, generic_plans=False, writes_large_values=False),
    )
    database = coordinator.database
    blobs = database.large.blobs
    assert blobs is not None  # since `build_coordinator` always sets a file storage
    reading = Database(database_url, pool_size=THREADS, application="easel-streams", large=database.large)
    reader, subscriptions = EventReader(reading, coordinator.versions), EventSubscriptions(redis_url)
    streams = EventStreams(
        reader,
        subscriptions,
        poll_interval=config.poll_interval,
        keepalive_interval=config.keepalive_interval,
        blobs=blobs,
    )
    live_streams = LiveStreams(
        reader,
        subscriptions,
        coordinator.versions,
        limit_of=settings.time_limit,
        max_streams=settings.live_streams,
        keepalive_interval=config.keepalive_interval,
        metrics=LiveMetrics(telemetry.LIVE_STREAMS.set, telemetry.count_live_snapshot),
    )
    shared = accounts_from_toml(settings.models_file) if settings.models_file is not None else []
    encryption_key = EncryptionKey.from_secret(settings.encryption_secret())
    rate_limiter = RateLimiter(async_redis(redis_url), CircuitBreaker(), coordinator.dispatch.counters)
    hosts = ModelAddressPolicy(config.guard, settings.private_models, settings.model_proxies)
    models = TenantModels(
        database,
        shared,
        RequestLimits(request_timeout=settings.llm_timeout, hosts=hosts),
        encryption_key,
        rate_limiter=rate_limiter,
        cost_model=CostModel(read_prices(settings.prices_file)),
        max_wait=MAX_RATE_LIMIT_WAIT,
    )
    return ApiContext(
        Lifecycle(coordinator),
        streams,
        live_streams,
        CheckedVersions(),
        broker,
        settings.max_canvas_bytes,
        telemetry.metrics_page,
        KnowledgeBaseSearch(database, models),
        MemoryStore(database, models, coordinator.dispatch.extract),
        models,
        rate_limiter,
        blobs,
        shared_accounts=shared,
        time_limit=settings.time_limit,
        max_body_bytes=settings.max_body_bytes,
        encryption_key=encryption_key,
        rate_limits=TokenLimits(TokenBuckets(redis_url), settings.rate_limit, settings.streams_per_token),
        has_search_server=settings.ragflow_url is not None,
        retention=settings.retention,
        sign_ins=SignInPolicy(settings.viewer, settings.shares, settings.base_path or ""),
    )
