"""Work that outlives its request. A shutdown waits for it before it closes connections."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger()

SHUTDOWN_TIMEOUT = 10.0  # longest wait of a shutdown


class BackgroundTasks:
    """The background work of one process."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work. Its errors are logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    async def finish(self, seconds: float = SHUTDOWN_TIMEOUT) -> None:
        """Wait up to `seconds` for all work, then cancel the rest and log it."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            log.warning("background_work_stopped", tasks=len(late), after_s=seconds)
            await asyncio.gather(*late, return_exceptions=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background_work_failed", exc_info=error)
