"""The scheduler's Celery app: `celery -A scheduler.tasks worker -Q runs -P threads`."""

import time
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from celery.exceptions import Reject
from celery.signals import worker_ready, worker_shutdown
from sqlalchemy.exc import SQLAlchemyError

import settings
import telemetry
from canvas.ids import RunId
from scheduler.bootstrap import Role, build_coordinator
from scheduler.celery_startup import connect_start
from scheduler.coordinator.coordinator import Coordinator
from scheduler.health.broker_probe import QUEUE_DELETE_TIMEOUT, BrokerProbe
from scheduler.health.watchdog import LOCK_WATCHDOG_DELAY, LockWatchdog, exit_for_restart
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.lifecycle.start_messages import carry_out, parse_message
from scheduler.messaging.celery_app import ADVANCE, START, make_app, raise_prefetch
from scheduler.metrics import Metrics
from store.db.db_errors import is_outage

log = structlog.get_logger()

REQUEUE_DELAY = 1.0  # seconds until a start message is requeued while the database is unreachable

_settings = settings.load()
telemetry.configure(_settings.log_level, _settings.log_format)
_database_url, _redis_url, _broker_url = _settings.servers()

app = make_app(_broker_url, publishers=_settings.scheduler_threads)
raise_prefetch(app, _settings.scheduler_threads)
_counters = Metrics(**telemetry.metric_functions())
_lock_watchdog = LockWatchdog(_settings.unresponsive_after.total_seconds() + LOCK_WATCHDOG_DELAY)
_coordinator: Coordinator | None = None


def coordinator() -> Coordinator:
    """Return this process's coordinator; it is built at the first task, so after any fork."""
    global _coordinator
    if _coordinator is None:
        _coordinator = build_coordinator(
            app,
            _database_url,
            _redis_url,
            _settings,
            Role("easel-scheduler", _settings.scheduler_threads),
            counters=_counters,
        )
        if _settings.metrics_port is not None:
            telemetry.serve_metrics(_settings.metrics_port, _settings.metrics_host)
    return _coordinator


@app.task(name=ADVANCE, ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def advance(run_id: str) -> None:
    """Advance a run to its next checkpoint."""
    coordinator().advance_run(RunId(UUID(run_id)))


@app.task(  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
    name=START, ignore_result=True, Request="scheduler.lifecycle.start_messages:QuietRequest"
)
def start(*args: Any, **options: Any) -> None:
    """Start a run for another service: `start(tenant_id, run_id, agent_id, **options)`.

    `run_id` is the service's own id of the run; sending a start twice with it starts one run. The options are those of
    `scheduler.lifecycle.start_options.OPTIONS`. A refused start is a row under that id. While the database is
    unreachable, the message stays in the queue. See docs/enqueue.md.
    """
    message = parse_message(args, options)
    try:
        carry_out(Lifecycle(coordinator()), message, _settings.max_body_bytes)
    except SQLAlchemyError as error:
        if not is_outage(error):
            raise
        reason = str(error).partition("\n")[0]
        log.warning("start_requeued", run_id=str(message.ids.get("run_id"))[:64], error=reason)
        time.sleep(REQUEUE_DELAY)
        raise Reject(reason, requeue=True) from error


connect_start(
    "scheduler",
    log_format=_settings.log_format,
    database_url=_database_url,
    keep_level=partial(telemetry.set_level, _settings.log_level),
    introduce=partial(telemetry.introduce, renamed=settings.renamed_variables()),
)


@worker_ready.connect
def _start(**_: Any) -> None:
    _lock_watchdog.start()
    coordinator()  # so that its metrics are served before the first task


@worker_shutdown.connect
def _stop(**_: Any) -> None:
    _lock_watchdog.stop()


def _exit_unresponsive(reason: str) -> None:
    exit_for_restart(reason, _broker_probe.delete_queue, within=QUEUE_DELETE_TIMEOUT)


_broker_probe = BrokerProbe(
    app,
    every=_settings.probe_interval.total_seconds(),
    unresponsive_after=_settings.unresponsive_after.total_seconds(),
    ends=_exit_unresponsive,
    count=_counters.probe,
)
