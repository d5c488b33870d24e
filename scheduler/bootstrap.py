"""Construction of the coordinator, for every process that advances runs."""

import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import structlog
from celery import Celery

from canvas.errors import ExecutorError
from providers.address_policy import Guard
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_bus import Bus
from scheduler.metrics import Metrics
from scheduler.views.event_messages import EventMessages
from store.db.database import Database
from store.files.storage import build_large_values

log = structlog.get_logger()


class CoordinatorSettings(Protocol):
    """The settings that a coordinator needs; `settings.Settings` has them all."""

    @property
    def form_expiry(self) -> timedelta: ...
    @property
    def max_running(self) -> int: ...
    @property
    def max_activations(self) -> int: ...
    @property
    def files_dir(self) -> Path: ...
    @property
    def files_url(self) -> str | None: ...
    @property
    def s3_endpoint(self) -> str | None: ...
    @property
    def values_in_files(self) -> bool: ...
    @property
    def allow_any_host(self) -> bool: ...
    @property
    def ssrf_allow(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Role:
    """What distinguishes the processes that have a coordinator."""

    application: str
    """Name of the database sessions, as `pg_stat_activity` shows it."""
    pool_size: int
    """Database connections."""
    generic_plans: bool = True
    """Off: PostgreSQL plans each statement for its parameters; lists with varying filters need that."""
    writes_large_values: bool = True
    """Off: large values are read from the file storage, and new ones stay in their rows whatever the settings say."""


def build_coordinator(
    app: Celery,
    database_url: str,
    redis_url: str,
    settings: CoordinatorSettings,
    role: Role,
    *,
    counters: Metrics | None = None,
) -> Coordinator:
    """Return a coordinator with its own database pool, dispatch, Redis bus and version cache."""
    large = build_large_values(
        settings.files_dir,
        settings.files_url,
        settings.s3_endpoint,
        stores_new=role.writes_large_values and settings.values_in_files,
    )
    database = Database(
        database_url,
        pool_size=role.pool_size,
        application=role.application,
        generic_plans=role.generic_plans,
        large=large,
    )
    bus, versions = Bus(redis_url), VersionCache()
    bus.publish_events(EventMessages(database, versions).read)
    is_one_redis = app.conf.broker_url == redis_url  # other brokers, such as RabbitMQ or Sentinel, only kombu can read
    return Coordinator(
        database,
        Dispatch(app, bus, counters, is_broker=is_one_redis, is_straight=is_one_redis),
        versions,
        form_expiry=settings.form_expiry,
        max_running=settings.max_running,
        max_activations=settings.max_activations,
        callback_guard=Guard.parse(settings.allow_any_host, settings.ssrf_allow or ""),
    )


def refuse_pooler(database: Database) -> None:
    """Exit with one log line if DATABASE_URL leads to a pooler that Easel cannot work with."""
    try:
        database.require_safe_pooler()
    except ExecutorError as error:
        log.error("pooler_refused", error=error.message)
        sys.exit(1)
