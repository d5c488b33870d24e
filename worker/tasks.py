"""The worker's Celery app: `celery -A worker.tasks worker -Q nodes -P threads`."""

from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from celery.exceptions import Reject
from celery.signals import worker_process_init, worker_ready, worker_shutdown, worker_shutting_down

import settings
import telemetry
from scheduler.broker import CANARY, EXECUTE, make_app
from scheduler.counting import Counters
from scheduler.process import coordinator_of
from store import canaries
from worker.process import worker_of
from worker.runtime import Worker

log = structlog.get_logger()
_settings = settings.load()
telemetry.configure(_settings.log_level, _settings.log_format)

_database_url, _redis_url, _broker_url = _settings.servers()

app = make_app(_broker_url, publishers=_settings.worker_threads)
_worker: Worker | None = None


def worker() -> Worker:
    """This process's worker, put together at its first task (so after any fork)."""
    global _worker
    if _worker is None:
        coordinator = coordinator_of(
            app,
            _database_url,
            _redis_url,
            pool_size=_settings.worker_pool,
            application="easel-worker",
            form_expiry=_settings.form_expiry,
            max_running=_settings.max_running,
            counters=Counters(**telemetry.counting()),
        )
        _worker = worker_of(_settings, coordinator, _redis_url)
        if _settings.metrics_port is not None:
            telemetry.serve_counters(_settings.metrics_port)
    return _worker


@app.task(name=EXECUTE, ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def execute(run_id: str, activation_id: str) -> None:
    """Carry out an activation."""
    if not worker().execute(UUID(run_id), UUID(activation_id)):
        raise Reject("The process goes down.", requeue=True)


@app.task(name=CANARY, ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def canary(sent_at: str) -> None:
    """Prove that the nodes' queue moves: note the canary that came back."""
    with worker().execution.coordinator.database.transaction() as tx:
        canaries.came_back(tx, "nodes", datetime.fromisoformat(sent_at))


@worker_ready.connect
@worker_process_init.connect
def _start(**_: Any) -> None:
    worker()


@worker_shutting_down.connect
def _give_back(**_: Any) -> None:
    """A deployment replaces us: give attempts back at once, so that others take over."""
    if _worker is not None:
        _worker.leases.release_all()


@worker_shutdown.connect
def _close(**_: Any) -> None:
    if _worker is not None:
        _worker.close()
