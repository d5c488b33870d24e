"""A worker process under Celery: its app, its worker, and what ends the process when it is unresponsive."""

import gc
import sys
import threading
from functools import partial

from celery import Celery

import settings
import telemetry
from canvas.ids import ActivationId
from providers.models.billing import price_list, price_updates
from providers.models.transport.clients import warm_up
from scheduler.bootstrap import Role, build_coordinator
from scheduler.celery_startup import connect_start
from scheduler.health.broker_probe import QUEUE_DELETE_TIMEOUT, BrokerProbe
from scheduler.health.watchdog import LOCK_WATCHDOG_DELAY, LockWatchdog, Watchdog, exit_for_restart
from scheduler.messaging.celery_app import make_app
from scheduler.metrics import Metrics
from settings import Settings
from worker.bootstrap import build_worker, guard_of
from worker.fastpath.admission import Admission, computing_limit
from worker.fastpath.switches import fast_path_of
from worker.leases.leases import LAST_REPORTS
from worker.leases.loop_watchdog import EventLoopWatchdog
from worker.threads.computing_threads import COMPUTING_THREADS
from worker.worker import Worker

WATCH_INTERVAL = 1.0  # seconds between two checks of the event loop, and of the lease threads
SWITCH_INTERVAL = 0.005  # seconds a thread may compute while others wait; each switch costs what the CPU has cached
SWITCH_INTERVAL_BUSY = 0.001  # while coroutines run: their text deltas, and cancel messages, wait for the loop's thread
# objects; with Python's own 700 most collections find little: what nodes allocate is freed without
GC_THRESHOLD = 10_000


class WorkerProcess:
    """One process. Made where Celery imports the tasks; the worker itself is built at its start, after any fork."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._database_url, self._redis_url, broker_url = settings.servers()
        self._counters = Metrics(**telemetry.metric_functions())
        self._worker: Worker | None = None
        self._price_updates: price_updates.PriceUpdates | None = None
        self.fast_path = fast_path_of(settings)
        limit = computing_limit(settings.worker_pool)
        admission = Admission(COMPUTING_THREADS, limit) if self.fast_path.admission_control else None
        self.app: Celery = make_app(
            broker_url,
            publishers=settings.worker_threads,
            capacity=admission.capacity if admission is not None else None,
        )
        unresponsive_after = settings.unresponsive_after.total_seconds()
        self._lock_watchdog = LockWatchdog(unresponsive_after + LOCK_WATCHDOG_DELAY)
        self._broker_probe = BrokerProbe(
            self.app,
            every=settings.probe_interval.total_seconds(),
            unresponsive_after=unresponsive_after,
            ends=self._exit,
            in_flight=lambda: len(self._worker.leases.attempts()) if self._worker is not None else 0,
            abandoned=lambda: self._worker.leases.abandoned_threads() if self._worker is not None else 0,
            count=self._counters.probe,
        )

    @property
    def worker(self) -> Worker:
        """The worker of this process, built at its first use."""
        if self._worker is None:
            self._worker = self._build()
        return self._worker

    def _build(self) -> Worker:
        settings = self._settings
        role = Role("easel-worker", settings.worker_pool)
        coordinator = build_coordinator(
            self.app, self._database_url, self._redis_url, settings, role, counters=self._counters
        )
        worker = build_worker(settings, coordinator, self._redis_url)
        loop_watchdog = EventLoopWatchdog(worker.loop, worker.leases, settings.unresponsive_after.total_seconds())
        Watchdog(loop_watchdog, every=WATCH_INTERVAL, ends=self._exit).start()
        Watchdog(worker.leases, every=WATCH_INTERVAL, ends=self._exit).start()
        if settings.metrics_port is not None:
            telemetry.serve_metrics(settings.metrics_port, settings.metrics_host)
        return worker

    def start(self) -> None:
        """Begin to work: Celery's worker is ready, or its pool has forked this process."""
        _set_switch_interval(False)
        self._lock_watchdog.start()
        self.worker.loop.on_busy_change = _set_switch_interval
        gc.freeze()  # what exists by now stays
        gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
        threading.Thread(target=_warm_up, name="easel-warms-up", daemon=True).start()
        self._price_updates = price_updates.start_updates(self._settings.prices_url, guard_of(self._settings))

    def stop_activation(self, activation_id: ActivationId) -> bool:
        """Stop the attempt at an activation for an operator. False: this process executes nothing (prefork)."""
        if self._worker is None:
            return False
        self._worker.leases.stop_activation(activation_id)
        return True

    def release_attempts(self) -> None:
        """Release every attempt, for other workers to execute: the process is about to shut down."""
        if self._worker is not None:
            self._worker.leases.release_all()

    def close(self) -> None:
        """End everything that the process has started."""
        self._lock_watchdog.stop()
        if self._price_updates is not None:
            self._price_updates.stop()
        if self._worker is not None:
            self._worker.close()

    def _exit(self, reason: str) -> None:
        """Release what other workers can execute, and exit for a restart: a new process starts without the problem."""
        within = self._settings.shutdown_grace.total_seconds() + LAST_REPORTS + QUEUE_DELETE_TIMEOUT
        exit_for_restart(reason, self._release, within)

    def _release(self) -> None:
        self._broker_probe.delete_queue()
        if self._worker is not None:
            self._worker.leases.close()


def _warm_up() -> None:
    """Import what the first model call of a process needs: more than a second of processor time."""
    warm_up()
    price_list.snapshot()


def worker_process() -> WorkerProcess:
    """Return the process as the environment configures it, with its log, and with Celery told how it starts."""
    loaded = settings.load()
    telemetry.configure(loaded.log_level, loaded.log_format)
    process = WorkerProcess(loaded)
    connect_start(
        "worker",
        log_format=loaded.log_format,
        database_url=loaded.servers()[0],
        keep_level=partial(telemetry.set_level, loaded.log_level),
        introduce=partial(telemetry.introduce, renamed=settings.renamed_variables()),
    )
    return process


def _set_switch_interval(is_busy: bool) -> None:
    """Set how long a thread may compute: less while coroutines run, because the loop has one thread among many."""
    sys.setswitchinterval(SWITCH_INTERVAL_BUSY if is_busy else SWITCH_INTERVAL)
