"""The local engine: scheduler, worker and sweeper as threads of one process.

`easel run` and the conformance runner use it. Rows, task messages and events are the same as in production.
"""

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from celery import Celery
from celery.exceptions import WorkerShutdown

from canvas.ids import ActivationId, RunId, TenantId
from components.recorded_steps import RunRecording
from providers.address_policy import Guard
from providers.interfaces import Services
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.chat.scripted import Script
from scheduler.bootstrap import Role, build_coordinator
from scheduler.coordinator.coordinator import Coordinator
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import ADVANCE, EXECUTE, EXTRACT, INDEX, INGEST, NODES, QUEUE_PROBE, RUNS, make_app
from scheduler.sweeper.sweeper import Sweeper
from settings import Settings
from store.db.database import Database
from store.monitoring import queue_probes
from worker.bootstrap import build_worker
from worker.fastpath.inline_tasks import request_class
from worker.node_task import EXPECTED_ERRORS, execute_node
from worker.worker import Worker

POLLING_INTERVAL = 0.2  # seconds of one blocking read from Redis; stopping an engine waits for it


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts of a running engine."""

    lifecycle: Lifecycle
    coordinator: Coordinator
    worker: Worker
    app: Celery

    @property
    def database(self) -> Database:
        """The engine's connection pool."""
        return self.coordinator.database


@contextmanager
def run_engine(
    settings: Settings,
    database_url: str,
    redis_url: str,
    *,
    broker_url: str | None = None,
    threads: int = 16,
    script: Callable[[TenantId], Script | None] = lambda _: None,
    read_file: Callable[[TenantId, RunId, Mapping[str, Any], str], str] | None = None,
    retry_policy: RetryPolicy | None = None,
    of_tenant: Callable[[TenantId, Services], Services] | None = None,
    guard: Guard | None = None,
    recording_of: Callable[[RunId], RunRecording | None] = lambda run_id: None,
) -> Generator[Engine]:
    """Run scheduler, worker and sweeper on these servers until the block ends."""
    broker = broker_url or redis_url
    app = make_app(broker, publishers=threads)
    if broker.startswith("redis"):
        app.conf.broker_transport_options["polling_interval"] = POLLING_INTERVAL
    coordinator = build_coordinator(
        app, database_url, redis_url, settings, Role("easel-local", max(settings.worker_pool, 8))
    )
    worker = build_worker(
        settings,
        coordinator,
        redis_url,
        script=script,
        retry_policy=retry_policy,
        read_file=read_file,
        of_tenant=of_tenant,
        guard=guard,
        recording_of=recording_of,
    )
    _add_tasks(app, coordinator, worker)
    ending = threading.Event()
    sweeping = threading.Thread(target=Sweeper(coordinator).run, args=(ending,), name="easel-sweeper", daemon=True)
    with _run_consumer(app, threads):
        sweeping.start()
        try:
            yield Engine(Lifecycle(coordinator), coordinator, worker, app)
        finally:
            ending.set()
            worker.leases.release_all()
            sweeping.join(timeout=5)
    worker.close()
    coordinator.database.close()
    coordinator.dispatch.bus.close()


def _add_tasks(app: Celery, coordinator: Coordinator, worker: Worker) -> None:
    def execute(self: Any, run_id: str, activation_id: str) -> str:
        return execute_node(worker, self.request, run_id, activation_id)

    def stop_activation(activation_id: ActivationId) -> bool:
        worker.leases.stop_activation(activation_id)
        return True

    def advance(run_id: str) -> None:
        coordinator.advance_run(RunId(UUID(run_id)))

    def probe(sent_at: str) -> None:
        with coordinator.database.transaction() as tx:
            queue_probes.record_return(tx, NODES, datetime.fromisoformat(sent_at))

    def ingest() -> None:
        worker.ingest()

    def extract() -> None:
        worker.extract()

    def index() -> None:
        worker.index()

    options: dict[str, Any] = {"bind": True, "ignore_result": True, "shared": False, "throws": EXPECTED_ERRORS}
    request = request_class(worker.execution.fast_path, stop_activation)
    app.task(name=EXECUTE, Request=request, **options)(execute)
    app.task(name=ADVANCE, ignore_result=True, shared=False)(advance)
    app.task(name=QUEUE_PROBE, ignore_result=True, shared=False)(probe)
    app.task(name=INGEST, ignore_result=True, shared=False)(ingest)
    app.task(name=EXTRACT, ignore_result=True, shared=False)(extract)
    app.task(name=INDEX, ignore_result=True, shared=False)(index)


@contextmanager
def _run_consumer(app: Celery, threads: int) -> Generator[None]:
    """Run a Celery worker on both queues in a thread until the block ends."""
    ready = threading.Event()

    def is_ready(_: object) -> None:
        ready.set()

    app.set_default()  # threads of the pool look tasks up in the default app
    worker = app.WorkController(
        pool="threads",
        concurrency=threads,
        queues=[NODES, RUNS],
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel="ERROR",
        ready_callback=is_ready,
    )
    thread = threading.Thread(target=worker.start, name="easel-consumer", daemon=True)
    thread.start()
    if not ready.wait(timeout=15):
        raise TimeoutError("The broker did not answer within 15 s. Check the broker URL.")
    try:
        yield
    finally:
        _stop_consumer(worker)
        thread.join(timeout=5)


def _stop_consumer(worker: Any) -> None:
    """Stop a consumer from its own thread, because its connection must not be closed from another one."""

    def shut_down() -> None:
        raise WorkerShutdown(0)

    worker.hub.call_soon(shut_down)
