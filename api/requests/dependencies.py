"""Dependencies of requests: one ApiContext per process, built when the application starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import Annotated, TypeVar

from celery import Celery
from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from api.events.event_stream import EventStreams
from api.events.live_stream import LiveStreams
from api.findings import CheckedVersions
from api.http.background import BackgroundTasks
from api.requests.cookies import SignInPolicy
from api.requests.credential_checks import CredentialChecks
from api.requests.rate_limits import TokenLimits
from canvas.ids import CanvasId, TenantId
from components import registry
from knowledge.bases.search import KnowledgeBaseSearch
from knowledge.memory.memories import MemoryStore
from knowledge.models import Models
from providers.models.limits.rate_limiter import RateLimiter
from providers.models.vendors.accounts import VendorAccount
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle.lifecycle import Lifecycle
from store.agents.canvas_secrets import CanvasSecrets
from store.db.database import Database
from store.files.blobs import Blobs
from store.primitives.encryption import EncryptionKey

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ApiContext:
    """The database, lifecycle operations, streams and models of an API process."""

    lifecycle: Lifecycle
    streams: EventStreams
    live: LiveStreams
    checked_versions: CheckedVersions
    broker: Celery
    max_canvas_bytes: int
    metrics_page: Callable[[], tuple[bytes, str]]
    library: KnowledgeBaseSearch  # the knowledge bases of all tenants
    memories: MemoryStore
    models: Models
    rate_limiter: RateLimiter  # of requests to those models
    blobs: Blobs  # the file storage: uploads and produced documents
    encryption_key: EncryptionKey  # of stored secrets
    rate_limits: TokenLimits  # of requests and streams of each token
    max_body_bytes: int = 1024 * 1024
    shared_accounts: Sequence[VendorAccount] = ()  # model accounts of every tenant
    time_limit: Callable[[str], float] = lambda component: inf  # seconds that one attempt of a component may take
    has_search_server: bool = False  # workers ask a search server for knowledge bases that the tenant does not have
    retention: timedelta | None = None  # how long runs are kept; None: for ever
    sign_ins: SignInPolicy = field(default_factory=SignInPolicy)
    credential_checks: CredentialChecks = field(default_factory=CredentialChecks)  # of callers whose streams are open
    background: BackgroundTasks = field(default_factory=BackgroundTasks)  # work that outlives its request

    @property
    def database(self) -> Database:
        """The database with the connection pool of the routes."""
        return self.lifecycle.coordinator.database

    def canvas_secrets(self, tenant_id: TenantId, canvas_id: CanvasId) -> CanvasSecrets:
        """Return the secrets of one canvas, which encrypt them for storage and mask them in replies."""
        return CanvasSecrets.for_canvas(self.encryption_key, tenant_id, canvas_id, registry.secret_fields)

    @property
    def versions(self) -> VersionCache:
        """The canvas versions that this process has compiled."""
        return self.lifecycle.coordinator.versions


async def get_context(request: Request) -> ApiContext:
    """Return the ApiContext of the process. It is async because FastAPI calls other functions in a thread."""
    context: ApiContext = request.app.state.context
    return context


ApiContextDep = Annotated[ApiContext, Depends(get_context)]


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run work that waits, such as for the database, in one of the routes' threads."""
    return await run_in_threadpool(work)
