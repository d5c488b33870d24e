"""Builds a worker from the settings: for worker processes, and for the engine that runs in one process."""

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from canvas.ids import RunId, TenantId
from components import plugins
from components.recorded_steps import RunRecording
from knowledge.bases.ingestion import Ingestion
from knowledge.bases.search import KnowledgeBaseSearch
from knowledge.index.indexing import Indexing
from knowledge.memory.extraction import Extraction
from knowledge.memory.memories import MemoryStore
from providers.address_policy import Guard
from providers.databases.databases import database_location
from providers.interfaces import Services
from providers.models.billing.cost_estimates import CostModel
from providers.models.billing.prices import read_prices
from providers.models.chat.catalogue import RequestLimits
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.chat.scripted import Script
from providers.models.limits.rate_limiter import WINDOW, RateLimiter
from providers.models.transport.clients import close_connections
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.vendors.accounts import VendorAccount, accounts_from_toml
from scheduler.coordinator.coordinator import Coordinator
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import NODES
from scheduler.messaging.circuit_breaker import CircuitBreaker
from scheduler.messaging.redis_bus import TextDeltaPublisher, async_redis
from settings import Settings
from store.db.database import Database
from store.files.blobs import Blobs
from store.primitives.encryption import EncryptionKey
from worker.caches.value_caches import value_caches
from worker.context.model_calls import CallPolicy
from worker.context.node_context import TimeLimit
from worker.context.output_limits import OutputLimits
from worker.execution.executor import Executor
from worker.fastpath.admission import computing_limit
from worker.fastpath.claim_batcher import ClaimBatcher
from worker.fastpath.message_fetcher import MessageFetcher
from worker.fastpath.switches import fast_path_of
from worker.leases.leases import LeaseKeeper
from worker.services.background_jobs import SingleJobRunner
from worker.services.factory import ServiceConfig, ServiceFactory
from worker.services.mcp import McpServers
from worker.services.models import CachedTenantModels
from worker.services.tts import RedisAudioCache, TtsModels
from worker.services.uploaded_files import ReadFile, UploadedFiles
from worker.threads.event_loop import WorkerLoop
from worker.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a worker has beside plain settings: keys, accounts, prices, and whatever stands in for the outside world."""

    time_limit: TimeLimit
    model_limits: RequestLimits = field(default_factory=RequestLimits)
    accounts: Sequence[VendorAccount] = ()  # of every tenant, beside those in the database
    encryption_key: EncryptionKey | None = None
    blobs: Blobs | None = None
    costs: CostModel = field(default_factory=CostModel)
    services: ServiceConfig = field(default_factory=ServiceConfig)
    script: Callable[[TenantId], Script | None] = lambda _: None  # by tenant: what stands in for all its models
    retry_policy: RetryPolicy | None = None
    read_file: ReadFile | None = None  # None: from the file storage
    rate_window: float = WINDOW  # seconds of a vendor's "per minute"
    recording_of: Callable[[RunId], RunRecording | None] = lambda run_id: None  # what a run replays


def guard_of(settings: Settings) -> Guard:
    """Return the guard of a worker's requests."""
    return Guard.parse(allow_any=settings.allow_any_host, allowed=settings.ssrf_allow or "")


def build_worker(
    settings: Settings,
    coordinator: Coordinator,
    redis_url: str,
    *,
    script: Callable[[TenantId], Script | None] = lambda _: None,
    retry_policy: RetryPolicy | None = None,
    read_file: ReadFile | None = None,
    of_tenant: Callable[[TenantId, Services], Services] | None = None,
    guard: Guard | None = None,
    recording_of: Callable[[RunId], RunRecording | None] = lambda run_id: None,
) -> Worker:
    """Return a worker on these servers. Each optional argument stands in for what the settings name."""
    plugins.load(settings.allowed_plugins)
    guard = guard or guard_of(settings)
    model_hosts = ModelAddressPolicy(guard, settings.private_models, settings.model_proxies)
    retries, delay = settings.llm_max_retries, settings.llm_base_delay.total_seconds()
    environment = Environment(
        time_limit=settings.time_limit,
        model_limits=RequestLimits(request_timeout=settings.llm_timeout, hosts=model_hosts),
        accounts=accounts_from_toml(settings.models_file) if settings.models_file else (),
        encryption_key=EncryptionKey.from_secret(settings.encryption_secret()),
        blobs=coordinator.database.large.blobs,
        costs=CostModel(
            prices=read_prices(settings.prices_file),
            answer_tokens=settings.budget_answer_tokens,
        ),
        services=ServiceConfig(
            guard=guard,
            base_urls=settings.tool_urls,
            vendor_keys=settings.vendor_keys,
            own_database=database_location(coordinator.database.url),
            browser_profiles=settings.home / "browser",
            of_tenant=of_tenant or (lambda _, services: services),
        ),
        script=script,
        retry_policy=retry_policy or RetryPolicy(retries=retries, base_delay=delay),
        read_file=read_file,
        recording_of=recording_of,
    )
    return assemble(settings, coordinator, redis_url, environment)


def assemble(settings: Settings, coordinator: Coordinator, redis_url: str, environment: Environment) -> Worker:
    """Return a worker, its threads started: each part is made here, once, and handed to those that use it."""
    database, dispatch = coordinator.database, coordinator.dispatch
    loop = WorkerLoop()
    renewals = Database(database.url, pool_size=1, application="easel-leases")
    leases = LeaseKeeper(renewals, dispatch.bus, loop, settings, cancel_run=Lifecycle(coordinator).cancel_by_key)
    rate_limiter = RateLimiter(
        async_redis(redis_url), CircuitBreaker(), dispatch.counters, window=environment.rate_window
    )
    models = CachedTenantModels(
        database,
        environment.accounts,
        environment.model_limits,
        environment.encryption_key,
        environment.script,
        environment.retry_policy,
        environment.costs,
        rate_limiter,
    )
    audio = RedisAudioCache(redis_url)
    speech = TtsModels(
        models,
        audio,
        settings.tts_model,
        settings.tts_cache_ttl,
        {"StepFun": settings.stepfun_tts_voice} if settings.stepfun_tts_voice else {},
        environment.model_limits.hosts.private,
    )
    library = KnowledgeBaseSearch(database, models)
    memories = MemoryStore(database, models, dispatch.extract)
    mcp = McpServers(database, environment.encryption_key)
    services = ServiceFactory(settings, environment.services, speech.of, library, memories, mcp)
    text_deltas = TextDeltaPublisher(redis_url)
    fast_path = fast_path_of(settings)
    if fast_path.fetch_next:
        most = computing_limit(settings.worker_pool) if fast_path.admission_control else None
        dispatch.fetcher = MessageFetcher(partial(dispatch.bus.requeue_task, NODES), most)

    async def close_all() -> None:
        await close_connections()
        for each in (rate_limiter, services, audio, text_deltas):
            await each.close()

    return Worker(
        execution=Executor(
            coordinator=coordinator,
            leases=leases,
            loop=loop,
            models=models,
            text_deltas=text_deltas,
            time_limit=environment.time_limit,
            read_file=environment.read_file or UploadedFiles(database, environment.blobs).read,
            services=services.of,
            blobs=environment.blobs,
            worker_name=f"{socket.gethostname()}:{os.getpid()}",
            claims=ClaimBatcher(max(1, database.pool_size // 2), batches=fast_path.batch_claims),
            inline_advance=settings.inline_advance,
            fast_path=fast_path,
            caches=value_caches(fast_path.cache_values),
            output_limits=OutputLimits(settings.max_output, settings.max_stream_chars, settings.max_depth),
            caller_headers=mcp.caller_headers,
            cost_model=environment.costs,
            encryption_key=environment.encryption_key,
            rate_limiter=rate_limiter,
            call_policy=CallPolicy(settings.model_calls, settings.hidden_calls),
            recording_of=environment.recording_of,
        ),
        leases=leases,
        loop=loop,
        ingestion=SingleJobRunner(Ingestion(database, environment.blobs, models), loop),
        extraction=SingleJobRunner(Extraction(database, models), loop),
        indexing=SingleJobRunner(Indexing(database), loop),
        renewals=renewals,
        close_connections=close_all,
    )
