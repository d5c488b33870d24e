"""A worker: executes nodes, ingests documents and extracts memories, until it is closed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from canvas.ids import ActivationId, RunId
from providers.isolation.limited_process import close_limited_processes
from store.db.database import Database
from store.runs.prepared_claims import ReceivedClaim
from worker.execution.executor import Executor
from worker.fastpath.continuation import LocalContinuation
from worker.leases.leases import LeaseKeeper
from worker.services.background_jobs import SingleJobRunner
from worker.task_end import TaskEnd
from worker.threads.event_loop import WorkerLoop


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What the Celery tasks of a process call. `worker/bootstrap.py` builds it, once per process and after any fork."""

    execution: Executor
    leases: LeaseKeeper
    loop: WorkerLoop
    ingestion: SingleJobRunner
    extraction: SingleJobRunner
    indexing: SingleJobRunner
    renewals: Database
    close_connections: Callable[[], Awaitable[None]]  # of everything that has connections on the loop

    def execute(
        self,
        run_id: RunId,
        activation_id: ActivationId,
        continuation: LocalContinuation | None = None,
        prepared: ReceivedClaim | None = None,
    ) -> TaskEnd | None:
        """Execute an activation; return how its task ends.

        None: the process is shutting down, and another worker must have the message.
        """
        return self.execution.execute(run_id, activation_id, continuation, prepared)

    def ingest(self) -> None:
        """Ingest the documents that wait for it."""
        self.ingestion.run_all()

    def extract(self) -> None:
        """Extract memories from the messages that wait for it."""
        self.extraction.run_all()

    def index(self) -> None:
        """Convert rows of the previous release and build the indexes of large knowledge bases."""
        self.indexing.run_all()

    def close(self) -> None:
        """Release the attempts, then close everything. Safe to call twice."""
        if self.leases.is_closed:
            return
        self.leases.close()
        self.ingestion.close()
        self.extraction.close()
        self.indexing.close()
        close_limited_processes()
        self.loop.stop(self.close_connections())
        self.renewals.close()
