"""Construction of the coordinator, for every process that advances runs."""

import sys
from datetime import timedelta

import structlog
from celery import Celery

from canvas.errors import ExecutorError
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_bus import Bus
from scheduler.metrics import Metrics
from store.db.database import Database
from store.files.large_values import NO_STORAGE, LargeValues

log = structlog.get_logger()


def build_coordinator(
    app: Celery,
    database_url: str,
    redis_url: str,
    *,
    pool_size: int,
    application: str,
    form_expiry: timedelta,
    max_running: int,
    max_activations: int,
    counters: Metrics | None = None,
    plans_once: bool = True,
    large: LargeValues = NO_STORAGE,
) -> Coordinator:
    """Build a coordinator with a connection pool, a dispatch and a bus of its own.

    `plans_once`: prepared statements have generic plans; False for processes whose list queries differ in selectivity.
    """
    is_one_redis = app.conf.broker_url == redis_url  # a different broker (RabbitMQ, Sentinel) is used through kombu
    return Coordinator(
        Database(database_url, pool_size=pool_size, application=application, plans_once=plans_once, large=large),
        Dispatch(app, Bus(redis_url), counters, is_broker=is_one_redis, is_straight=is_one_redis),
        VersionCache(),
        form_expiry=form_expiry,
        max_running=max_running,
        max_activations=max_activations,
    )


def refuse_pooler(database: Database) -> None:
    """Exit with one log line if DATABASE_URL leads to a pooler that Easel cannot work with."""
    try:
        database.refuse_pooler()
    except ExecutorError as error:
        log.error("pooler_refused", error=error.message)
        sys.exit(1)
