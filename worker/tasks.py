"""The worker's Celery app and its tasks: `celery -A worker.tasks worker -Q nodes -P threads`."""

from datetime import datetime
from typing import Any

from celery import bootsteps
from celery.signals import worker_process_init, worker_ready, worker_shutdown, worker_shutting_down

from scheduler.messaging.celery_app import EXECUTE, EXTRACT, INDEX, INGEST, QUEUE_PROBE
from store.monitoring import queue_probes
from worker.fastpath.inline_tasks import request_class
from worker.node_task import EXPECTED_ERRORS, execute_node
from worker.process import worker_process

process = worker_process()
app = process.app


@app.task(  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
    name=EXECUTE,
    bind=True,
    ignore_result=True,
    throws=EXPECTED_ERRORS,
    Request=request_class(process.fast_path, process.stop_activation),
)
def execute(self: Any, run_id: str, activation_id: str) -> str:
    """Execute an activation; return what it reported."""
    return execute_node(process.worker, self.request, run_id, activation_id)


@app.task(name=QUEUE_PROBE, ignore_result=True, send_events=False)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def queue_probe(sent_at: str) -> None:
    """Record the return of a queue probe, which proves that the queue of nodes moves."""
    with process.worker.execution.coordinator.database.transaction() as tx:
        queue_probes.record_return(tx, "nodes", datetime.fromisoformat(sent_at))


@app.task(name=INGEST, ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def ingest() -> None:
    """Ingest the documents of knowledge bases that wait for it."""
    process.worker.ingest()


@app.task(name=EXTRACT, ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def extract() -> None:
    """Extract memories from the messages that wait for it."""
    process.worker.extract()


@app.task(name=INDEX, ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def index() -> None:
    """Build the indexes of large knowledge bases, and convert rows of the previous release."""
    process.worker.index()


class _ReleaseAttempts(bootsteps.StartStopStep):
    """Releases the attempts before the pool waits for its threads: `celery control shutdown` sends no signal."""

    requires = ("celery.worker.components:Pool",)

    def close(self, parent: Any) -> None:
        process.release_attempts()


steps: dict[str, set[type]] = app.steps  # pyright: ignore[reportAssignmentType] (Celery declares no type)
steps["worker"].add(_ReleaseAttempts)


@worker_ready.connect
@worker_process_init.connect
def _start(**_: Any) -> None:
    process.start()


@worker_shutting_down.connect
def _release_attempts(**_: Any) -> None:
    process.release_attempts()


@worker_shutdown.connect
def _close(**_: Any) -> None:
    process.close()
