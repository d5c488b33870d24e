"""A worker process put together: its database, its loop, its leases, and what runs nodes."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from canvas.errors import NodeFailure, NotFound
from components.text.extraction.file_texts import UnreadFile
from knowledge.bases.ingestion import Ingestion
from knowledge.bases.search import Library
from knowledge.index.index_cache import Shelf
from knowledge.memory.extraction import Extraction
from knowledge.memory.memories import Memories
from providers.isolation.limited_process import close_limited_processes
from providers.models.billing.cost_estimates import CostModel
from providers.models.chat.catalogue import Limits
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.chat.scripted import Script
from providers.models.limits.rate_limiter import WINDOW, RateLimiter
from providers.models.transport.clients import close_connections
from providers.models.vendors.accounts import Account
from scheduler.coordinator.coordinator import Coordinator
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.circuit_breaker import CircuitBreaker
from scheduler.messaging.redis_bus import TextDeltaPublisher, async_redis
from store.db.database import Database
from store.files.blobs import Blobs
from store.primitives.encryption import EncryptionKey
from store.tenants import uploads
from worker.caches.value_caches import value_caches
from worker.context.node_context import TimeLimit
from worker.context.output_limits import OutputLimits
from worker.event_loop import Loop
from worker.executor import Executor
from worker.fastpath.claim_batcher import ClaimBatcher
from worker.fastpath.continuation import LocalContinuation
from worker.fastpath.switches import FastPath
from worker.leases.leases import LeaseKeeper
from worker.services.background_jobs import SingleRunner
from worker.services.factory import ServiceConfig, ServiceFactory
from worker.services.mcp import McpServers
from worker.services.models import CachedTenantModels
from worker.services.tts import AudioCache, TtsModels

ReadFile = Callable[[UUID, UUID, Mapping[str, Any], str], str | UnreadFile]
"""(tenant, run, descriptor, layout) -> the text of a file, or its bytes."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The protocol's figures that a worker needs."""

    lease: timedelta = timedelta(seconds=10)
    renew_every: timedelta = timedelta(seconds=3)
    cancel_poll: timedelta = timedelta(milliseconds=500)
    grace: timedelta = timedelta(seconds=5)
    ride_along: bool = True
    fast_path: FastPath = field(default_factory=FastPath)
    allowance: OutputLimits = field(default_factory=OutputLimits)
    pace_window: float = WINDOW  # seconds; what vendors call a minute


class Worker:
    """Runs nodes. Start one per process, after any fork."""

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        redis_url: str,
        figures: WorkerConfig,
        time_limit: TimeLimit,
        limits: Limits,
        shared_accounts: Sequence[Account] = (),
        sealing_key: EncryptionKey | None = None,
        blobs: Blobs | None = None,
        script: Callable[[UUID], Script | None] = lambda _: None,
        pace: RetryPolicy | None = None,
        read_file: ReadFile | None = None,
        reach: ServiceConfig | None = None,
        spending: CostModel | None = None,
    ) -> None:
        database = coordinator.database
        self._renewals = Database(database.url, pool_size=1, application="easel-leases")
        self.loop = Loop()
        self._pieces = TextDeltaPublisher(redis_url)
        self.leases = LeaseKeeper(
            self._renewals,
            coordinator.dispatch.bus,
            self.loop,
            lease=figures.lease,
            renew_every=figures.renew_every,
            cancel_poll=figures.cancel_poll,
            grace=figures.grace,
            on_key=Lifecycle(coordinator).cancel_by_key,
        )
        chosen = reach or ServiceConfig()
        spends = spending or CostModel()
        self._governor = RateLimiter(
            async_redis(redis_url), CircuitBreaker(), coordinator.dispatch.counters, window=figures.pace_window
        )
        models = CachedTenantModels(
            database, shared_accounts, limits, sealing_key, script, pace, spends, self._governor
        )
        self._audio = AudioCache(redis_url)
        voices = TtsModels(
            models, self._audio, chosen.speech_model, chosen.speech_kept, chosen.voices, limits.hosts.private
        )
        library = Library(database, Shelf(database, chosen.knowledge_memory), models)
        mcp = McpServers(database, sealing_key)
        memories = Memories(database, models, coordinator.dispatch.extract)
        self._outside = ServiceFactory(chosen, voices.of, library, memories, mcp)
        self._ingesting = SingleRunner(Ingestion(database, blobs, models), self.loop)
        self._extracting = SingleRunner(Extraction(database, models), self.loop)
        self.execution = Executor(
            coordinator=coordinator,
            leases=self.leases,
            loop=self.loop,
            models=models,
            pieces=self._pieces,
            time_limit=time_limit,
            read_file=read_file or _Files(database, blobs).read,
            services=self._outside.of,
            blobs=blobs,
            worker_name=f"{socket.gethostname()}:{os.getpid()}",
            claims=ClaimBatcher(max(1, database.pool_size // 2), batches=figures.fast_path.batch_claims),
            ride_along=figures.ride_along,
            fast_path=figures.fast_path,
            caches=value_caches(figures.fast_path.cache_values),
            allowance=figures.allowance,
            caller_headers=mcp.caller_headers,
            spending=spends,
            sealing_key=sealing_key,
            governor=self._governor,
        )

    def execute(self, run_id: UUID, activation_id: UUID, eager: LocalContinuation | None = None) -> bool:
        """What the Celery task does. False: the process goes down, and the hint is for another."""
        return self.execution.execute(run_id, activation_id, eager)

    def ingest(self) -> None:
        """What the other Celery task does: read documents that wait."""
        self._ingesting.work_off()

    def extract(self) -> None:
        """What a third Celery task does: look through what memories were told."""
        self._extracting.work_off()

    def close(self) -> None:
        """Give attempts back and let go of everything. Closing twice is closing once."""
        if self.leases.is_closed:
            return
        self.leases.close()
        self._ingesting.close()
        self._extracting.close()
        close_limited_processes()
        self.loop.stop(self._close())
        self._renewals.close()

    async def _close(self) -> None:
        await close_connections()
        await self._governor.close()
        await self._outside.close()
        await self._audio.close()
        await self._pieces.close()


@dataclass(frozen=True, slots=True)
class _Files:
    """Uploaded files as texts."""

    database: Database
    blobs: Blobs | None

    def read(self, tenant_id: UUID, run_id: UUID, descriptor: Mapping[str, Any], layout_recognize: str) -> UnreadFile:
        """An upload, to become a data URI (images) or one text block (components 3.1.1)."""
        if self.blobs is None:
            raise NodeFailure("This worker has no file storage. Set EASEL_FILES_DIR.")
        name = str(descriptor.get("name") or descriptor.get("id"))
        try:
            file_id = UUID(str(descriptor.get("id")))
            with self.database.statements() as tx:
                stored = uploads.get_for_run(tx, tenant_id, file_id, run_id)
            data = self.blobs.get(stored.sha256)
        except (NotFound, ValueError) as error:
            raise NodeFailure(f'The file "{name}" is not there. Upload it again.') from error
        return UnreadFile(name, str(descriptor.get("mime_type") or stored.mime_type), data)
