"""Admission control: how many more task messages a worker process takes from the queue.

Threads that wait cost nothing; threads that compute share one interpreter lock. Four computing threads keep it and the
connections to PostgreSQL as busy as many more would, with fewer changes from one thread to the next. So the process
takes no further message while that many threads compute, however many wait for a model or for each other
(docs/decisions/0030-admission-control.md).

A node that computes for a long time must not keep the process from its other work: one more message is taken whenever
no thread has begun a task for a tenth of a second.
"""

from collections.abc import Callable
from time import monotonic

from celery.worker import state

from worker.threads.computing_threads import ComputingThreads

MAX_COMPUTING = 4  # threads of a process that compute at a time
MAX_IDLE = 0.1  # seconds without a new task after which one more message is taken


class Admission:
    """Limits the task messages that a process takes to those that `most` computing threads leave room for."""

    def __init__(self, threads: ComputingThreads, most: int) -> None:
        self._threads = threads
        self._most = most

    def capacity(self, call: Callable[[], object]) -> int:
        """Return how many more messages to take. If 0, `call` is called when a thread ends or waits."""
        self._threads.call_on_change(call)
        room = self._most - len(self._threads) - received_tasks()
        if room <= 0 and monotonic() - self._threads.began_at >= MAX_IDLE:
            room = 1
        if room > 0:
            self._threads.call_on_change(None)
        return max(0, room)


def computing_limit(connections: int) -> int:
    """Return how many threads of a process may compute, if it has that many connections to PostgreSQL."""
    return min(MAX_COMPUTING, connections)


def received_tasks() -> int:
    """Return the number of tasks that were received and that no thread has begun yet."""
    return max(0, len(state.reserved_requests) - len(state.active_requests))
