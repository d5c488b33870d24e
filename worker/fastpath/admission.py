"""Admission control: how many more task messages a worker process takes from the queue.

Threads that wait cost nothing; threads that compute share one interpreter lock. As many computing threads as there are
connections to PostgreSQL keep both as busy as many more would, with fewer changes from one thread to the next. So the
process takes no further message while that many threads compute, however many wait for a model or for each other
(docs/decisions/0030-admission-control.md).

A node that computes for a long time must not keep the process from its other work: one more message is taken whenever
no thread has begun a task for a tenth of a second.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

from celery.worker import state

MAX_IDLE = 0.1  # seconds without a new task after which one more message is taken


class ComputingThreads:
    """The threads of a process that execute a task and do not wait for anything."""

    def __init__(self) -> None:
        self.began_at = 0.0  # when a thread last began a task; monotonic
        self._computing = set[int]()  # thread identifiers
        self._on_change: Callable[[], object] | None = None

    def __len__(self) -> int:
        return len(self._computing)

    def task_started(self) -> None:
        """Count this thread: it begins a task, or continues with the next one."""
        thread = threading.get_ident()
        if thread not in self._computing:
            self.began_at = monotonic()
            self._computing.add(thread)

    def task_finished(self) -> None:
        """Stop counting this thread: its task and everything that followed from it are done. Safe to call twice."""
        self._computing.discard(threading.get_ident())
        self._notify()

    def thread_abandoned(self, thread: int) -> None:
        """Stop counting an abandoned thread, so that another may begin.

        If it returns, it calls `task_finished` itself.
        """
        self._computing.discard(thread)
        self._notify()

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Do not count this thread inside the block: it waits for something that needs no processor."""
        thread = threading.get_ident()
        if thread not in self._computing:  # it executes a task of another kind
            yield
            return
        self._computing.discard(thread)
        self._notify()
        try:
            yield
        finally:
            self._computing.add(thread)

    def call_on_change(self, call: Callable[[], object] | None) -> None:
        """Call `call` once, on the thread concerned, when a thread ends or waits. Replaces the previous one."""
        self._on_change = call

    def _notify(self) -> None:
        call, self._on_change = self._on_change, None
        if call is not None:
            call()


COMPUTING_THREADS = ComputingThreads()
"""The computing threads of this process. Like a thread-local it belongs to threads and not to a worker object."""


class Admission:
    """Limits the task messages that a process takes to those that `most` computing threads leave room for."""

    def __init__(self, threads: ComputingThreads, most: int) -> None:
        self._threads = threads
        self._most = most

    def capacity(self, call: Callable[[], object]) -> int:
        """Return how many more messages to take. If 0, `call` is called when a thread ends or waits."""
        self._threads.call_on_change(call)
        room = self._most - len(self._threads) - _received_tasks()
        if room <= 0 and monotonic() - self._threads.began_at >= MAX_IDLE:
            room = 1
        if room > 0:
            self._threads.call_on_change(None)
        return max(0, room)


def _received_tasks() -> int:
    """Return the number of tasks that were received and that no thread has begun yet."""
    return max(0, len(state.reserved_requests) - len(state.active_requests))
