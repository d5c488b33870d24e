"""The event loop of a worker. Celery's threads submit coroutines to it and wait; a call costs about 60 µs."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from worker.threads.computing_threads import COMPUTING_THREADS

T = TypeVar("T")

BLOCKING_THREADS = 32  # for the rows, files and host names that coroutines need; asyncio's own are 6 on two processors


class WorkerLoop:
    """An event loop on a thread of its own.

    `on_busy_change` is called with True when the first coroutine is submitted, and with False when the last one is
    over.
    """

    def __init__(self) -> None:
        self.on_busy_change: Callable[[bool], None] = lambda is_busy: None
        self._lock = threading.Lock()
        self._running = 0  # coroutines that are not done
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="easel-blocking"))
        self._thread = threading.Thread(target=self._loop.run_forever, name="easel-loop", daemon=True)
        self._thread.start()

    @property
    def thread_id(self) -> int | None:
        """The identifier of its thread, as `sys._current_frames` has it."""
        return self._thread.ident

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine on the loop; return a thread-safe future."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._count(1)
        future.add_done_callback(lambda _: self._count(-1))
        return future

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. Other threads may compute meanwhile."""
        with COMPUTING_THREADS.waiting():
            return self.submit(coroutine).result()

    def call(self, function: Any, *arguments: Any) -> None:
        """Schedule a call of a function on the loop."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self, closing: Awaitable[None] | None = None) -> None:
        """Run `closing` on the loop, then stop the loop and its thread."""
        if closing is not None:

            async def close() -> None:
                await closing

            self.submit(close()).result(timeout=5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    def _count(self, more: int) -> None:
        with self._lock:
            was_busy, self._running = self._running > 0, self._running + more
            if was_busy != (self._running > 0):
                self.on_busy_change(not was_busy)
