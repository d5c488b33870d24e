"""One attempt as its worker process handles it: its lease, its deadline, and how it is stopped."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from canvas.errors import AttemptStopped
from canvas.ids import ActivationId, LeaseId, RunId, SessionId
from store.runs.activations import Deferral
from worker.threads.event_loop import WorkerLoop


@dataclass(eq=False)
class Attempt:
    """One try at an activation. It is registered with the lease keeper before it is claimed."""

    run_id: RunId
    activation_id: ActivationId
    lease_id: LeaseId
    conversation_id: SessionId | None = None  # None: not claimed yet
    deferral: Deferral | None = None  # None: the claim is written, or the attempt has none yet
    deadline: float | None = None  # monotonic
    stopped: AttemptStopped | None = None  # why, once it was stopped
    stopped_at: float = 0.0  # monotonic
    is_reported: bool = False
    is_lost: bool = False  # another attempt has the lease, or the activation is over
    is_abandoned: bool = False  # it was reported on its behalf, and its thread has not returned
    is_over: bool = False
    thread: int = field(default_factory=threading.get_ident)  # the thread that executes it
    report_on_behalf: Callable[[], None] | None = None  # reports on its behalf
    postponed: tuple[float, str] | None = None  # until when (monotonic) it was postponed, and what it waits for
    _task: "asyncio.Task[object] | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def bind_task(self, task: "asyncio.Task[object]") -> None:
        """Bind the coroutine that does the work; called on the event loop. Raises CancelledError if it was stopped."""
        self._task = task
        self.raise_if_stopped()

    def raise_if_stopped(self) -> None:
        """Raise CancelledError if the attempt was stopped before it began to work."""
        if self.stopped is not None:
            raise asyncio.CancelledError

    def is_stopped(self) -> bool:
        """Return whether the attempt was stopped, for whatever reason."""
        return self.stopped is not None

    def cancel_again(self, loop: WorkerLoop) -> None:
        """Cancel the coroutine; once more if it has swallowed its cancellation."""
        task = self._task
        if task is not None:
            loop.call(task.cancel)

    def stop(self, reason: str, loop: WorkerLoop) -> None:
        """Stop the work. Only the first reason counts."""
        with self._lock:
            if self.stopped is not None or self.is_reported:
                return
            self.stopped = AttemptStopped(reason)
            self.stopped_at = time.monotonic()
        self.cancel_again(loop)

    def end(self) -> None:
        """Mark the attempt as over, and drop its references, so that it is freed without a garbage collection."""
        self.is_over, self.report_on_behalf, self._task = True, None, None

    def acquire_report_right(self) -> bool:
        """Return True once: to the caller that may report the attempt."""
        with self._lock:
            first, self.is_reported = not self.is_reported, True
            return first
