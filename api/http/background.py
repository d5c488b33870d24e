"""Work that outlives its request: a shutdown waits for it before connections are closed."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger()

SECONDS = 10.0  # that a shutdown waits


class Background:
    """The work of one process that no request waits for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work. What goes wrong in it is logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    async def finish(self, seconds: float = SECONDS) -> None:
        """Wait until everything is done, or has been given that long; the rest is stopped, and logged."""
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
