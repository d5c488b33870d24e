"""The worker's Celery app and its tasks: `celery -A worker.tasks worker -Q nodes -P threads`."""

from datetime import datetime
from typing import Any
from uuid import UUID

from celery.exceptions import Reject
from celery.signals import worker_process_init, worker_ready, worker_shutdown, worker_shutting_down

from canvas.ids import ActivationId, RunId
from scheduler.messaging.celery_app import EXECUTE, EXTRACT, INGEST, QUEUE_PROBE
from scheduler.messaging.celery_message import carried_claim
from store.monitoring import queue_probes
from store.runs import prepared_claims
from worker.celery_requests import TASK_ENDS, NodeRequest
from worker.fastpath.inline_tasks import request_class, thread_continuation
from worker.process import worker_process
from worker.task_end import NodeFailed

process = worker_process()
app = process.app
NodeRequest.stop_activation = process.stop_activation


@app.task(name=EXECUTE, bind=True, ignore_result=True, throws=(NodeFailed,), Request=request_class(process.fast_path))  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def execute(self: Any, run_id: str, activation_id: str) -> str:
    """Execute an activation; return what it reported."""
    worker = process.worker
    ids = RunId(UUID(run_id)), ActivationId(UUID(activation_id))
    received = prepared_claims.decode(*ids, carried_claim(self.request))
    end = TASK_ENDS.last = worker.execute(*ids, thread_continuation(worker.execution.new_continuation), received)
    if end is None:
        raise Reject("The process is shutting down.", requeue=True)
    return end.result()


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
