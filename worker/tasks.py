"""The worker's Celery app: `celery -A worker.tasks worker -Q nodes -P threads`."""

import gc
import sys
import threading
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from celery.exceptions import Reject
from celery.signals import (
    worker_process_init,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)

import settings
import telemetry
from providers.models.transport.clients import warm_up
from scheduler.bootstrap import Role, build_coordinator
from scheduler.health.broker_probe import QUEUE_DELETE_TIMEOUT, BrokerProbe
from scheduler.health.watchdog import BEHIND_WATCHES, LockWatchdog, Watchdog, exit_for_restart
from scheduler.messaging.celery_app import CANARY, EXECUTE, EXTRACT, INGEST, make_app
from scheduler.messaging.celery_startup import connect_start
from scheduler.metrics import Metrics
from store.monitoring import queue_probes
from worker.bootstrap import build_worker
from worker.fastpath.admission import ADMISSION, Admission
from worker.fastpath.inline_tasks import request_class, thread_continuation
from worker.fastpath.switches import fast_path_of
from worker.leases.leases import LAST_REPORTS
from worker.leases.loop_watchdog import EventLoopWatchdog
from worker.runtime import Worker

log = structlog.get_logger()

TURNS_WITHIN = 1.0  # seconds between two looks at the event loop
SWITCHES_WITHIN = 0.005  # seconds a thread may compute while another waits; each change costs what lies in the caches
SWITCH_INTERVAL_STREAMING = (
    0.001  # while a model speaks: its pieces wait for their thread, and so does a call to stop it
)
GC_THRESHOLD = 10_000  # objects; what nodes hold goes without a search, and with Python's own 700 many find little

_settings = settings.load()
telemetry.configure(_settings.log_level, _settings.log_format)

_database_url, _redis_url, _broker_url = _settings.servers()

_fast_path = fast_path_of(_settings)
_admission = Admission(ADMISSION, _settings.worker_pool) if _fast_path.admission_control else None
app = make_app(
    _broker_url, publishers=_settings.worker_threads, room=_admission.room if _admission is not None else None
)
_counters = Metrics(**telemetry.metric_functions())
_lock_watchdog = LockWatchdog(_settings.unresponsive_after.total_seconds() + BEHIND_WATCHES)
_worker: Worker | None = None


def worker() -> Worker:
    """This process's worker, put together at its first task (so after any fork)."""
    global _worker
    if _worker is None:
        coordinator = build_coordinator(
            app,
            _database_url,
            _redis_url,
            _settings,
            Role("easel-worker", _settings.worker_pool),
            counters=_counters,
        )
        _worker = build_worker(_settings, coordinator, _redis_url)
        turning = EventLoopWatchdog(_worker.loop, _worker.leases, _settings.unresponsive_after.total_seconds())
        Watchdog(turning, every=TURNS_WITHIN, ends=_ends).start()
        Watchdog(_worker.leases, every=TURNS_WITHIN, ends=_ends).start()
        if _settings.metrics_port is not None:
            telemetry.serve_metrics(_settings.metrics_port, _settings.metrics_host)
    return _worker


@app.task(name=EXECUTE, ignore_result=True, Request=request_class(_fast_path))  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def execute(run_id: str, activation_id: str) -> None:
    """Carry out an activation."""
    carries_out = worker()
    if not carries_out.execute(UUID(run_id), UUID(activation_id), thread_continuation(carries_out.execution.eager)):
        raise Reject("The process goes down.", requeue=True)


@app.task(name=CANARY, ignore_result=True, send_events=False)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def canary(sent_at: str) -> None:
    """Prove that the nodes' queue moves: note the canary that came back."""
    with worker().execution.coordinator.database.transaction() as tx:
        queue_probes.record_return(tx, "nodes", datetime.fromisoformat(sent_at))


@app.task(name=INGEST, ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def ingest() -> None:
    """Read documents of knowledge bases that wait."""
    worker().ingest()


@app.task(name=EXTRACT, ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def extract() -> None:
    """Look through what memories were told."""
    worker().extract()


connect_start(
    "worker",
    log_format=_settings.log_format,
    database_url=_database_url,
    keep_level=partial(telemetry.set_level, _settings.log_level),
    introduce=partial(telemetry.introduce, renamed=settings.renamed_variables()),
)


@worker_ready.connect
@worker_process_init.connect
def _start(**_: Any) -> None:
    _give_way(False)
    _lock_watchdog.start()
    worker().loop.tells = _give_way
    gc.freeze()  # what is there by now stays
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    threading.Thread(target=warm_up, name="easel-warms-up", daemon=True).start()


@worker_shutting_down.connect
def _give_back(**_: Any) -> None:
    """A deployment replaces us: give attempts back at once, so that others take over."""
    if _worker is not None:
        _worker.leases.release_all()


@worker_shutdown.connect
def _close(**_: Any) -> None:
    _lock_watchdog.stop()
    if _worker is not None:
        _worker.close()


def _give_way(is_busy: bool) -> None:
    """How long a thread may compute: less while coroutines wait on the event loop, for it has one thread of many."""
    sys.setswitchinterval(SWITCH_INTERVAL_STREAMING if is_busy else SWITCHES_WITHIN)


def _ends(reason: str) -> None:
    """Give back what others can do, and end: whatever is wrong with this process, the next one begins without it."""
    within = _settings.shutdown_grace.total_seconds() + LAST_REPORTS + QUEUE_DELETE_TIMEOUT
    exit_for_restart(reason, _let_go, within)


def _let_go() -> None:
    _hearing.forget_queue()
    if _worker is not None:
        _worker.leases.close()


_hearing = BrokerProbe(
    app,
    every=_settings.probe_interval.total_seconds(),
    deaf_after=_settings.unresponsive_after.total_seconds(),
    ends=_ends,
    in_hand=lambda: len(_worker.leases.held()) if _worker is not None else 0,
    left_behind=lambda: _worker.leases.left_behind() if _worker is not None else 0,
    count=_counters.probe,
)
