"""The threads of a worker process that compute, which share one interpreter lock."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic


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
