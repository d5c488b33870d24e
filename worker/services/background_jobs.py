"""Jobs that wait in rows: ingesting documents of knowledge bases, and extracting memories from messages.

One thread of a process executes the jobs of one kind, so that the other threads stay free for nodes.
"""

import threading
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Protocol

from worker.threads.event_loop import WorkerLoop


class BackgroundJob(Protocol):
    """Jobs of one kind."""

    async def next(self) -> bool:
        """Execute the job that waits longest; return False if none waits. If cancelled, release it to other workers."""
        ...


class SingleJobRunner:
    """Executes the jobs of one kind, one at a time per process."""

    def __init__(self, work: BackgroundJob, loop: WorkerLoop) -> None:
        self._jobs = work
        self._loop = loop
        self._running = threading.Lock()
        self._current: Future[bool] | None = None
        self._is_closed = False

    def run_all(self) -> None:
        """Execute every job that waits. Returns at once if another thread does; that one checks for more in the end."""
        if not self._running.acquire(blocking=False):
            return
        try:
            while not self._is_closed:
                self._current = self._loop.submit(self._jobs.next())
                if self._is_closed:
                    self._current.cancel()
                if not self._current.result():
                    return
        except CancelledError:
            return
        finally:
            self._current = None
            self._running.release()

    def close(self) -> None:
        """Cancel the running job, so that it is released to other workers."""
        self._is_closed = True
        at_work = self._current
        if at_work is not None:
            at_work.cancel()
            with suppress(TimeoutError):  # it ends, or its lease expires
                if self._running.acquire(timeout=2):
                    self._running.release()
