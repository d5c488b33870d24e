"""What listeners read of runs: rows, in threads and connections of the streams' own.

Listeners of one run who ask for the same at the same time share one reading. Somebody may join a reading as long as it
has not begun: then it sees whatever had been committed when he asked.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID

from canvas.errors import NotFound
from scheduler.coordinator.version_cache import VersionCache
from scheduler.views.event_frames import EventSerializer
from store.db.database import Database
from store.runs import run_queries
from store.runs.run_queries import EventPage

T = TypeVar("T")

THREADS = 4

Found = tuple[EventPage, EventSerializer]


class Readings:
    """All readings of a process. It lives on one event loop."""

    def __init__(self, database: Database, versions: VersionCache) -> None:
        self._database = database
        self._versions = versions
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="easel-streams")
        self._places = asyncio.Semaphore(THREADS)
        self._to_come: dict[tuple[UUID, UUID, int], asyncio.Task[Found]] = {}

    async def after(self, tenant_id: UUID, run_id: UUID, number: int) -> Found:
        """A run, its events after a number, and the turns around them. Raises NotFound."""
        asked = (tenant_id, run_id, number)
        reading = self._to_come.get(asked)
        if reading is None:
            reading = self._to_come[asked] = asyncio.create_task(self._read(asked))
            reading.add_done_callback(_has_been_seen)
        return await asyncio.shield(reading)  # whoever leaves does not take it away from the others

    async def in_thread(self, work: Callable[[Database], T]) -> T:
        """Some other work on the streams' database."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, self._database)

    def close(self) -> None:
        """Let go of threads and connections."""
        self._threads.shutdown(wait=False)
        self._database.close()

    async def _read(self, asked: tuple[UUID, UUID, int]) -> Found:
        async with self._places:  # in a queue of ours, not the pool's: here it is known what has begun
            del self._to_come[asked]
            return await self.in_thread(lambda database: self._rows(database, *asked))

    def _rows(self, database: Database, tenant_id: UUID, run_id: UUID, number: int) -> Found:
        with database.statements() as tx:
            reading = run_queries.read(tx, tenant_id, run_id, number)
            if reading is None:
                raise NotFound(f"There is no run {run_id.hex}.", run_id=run_id.hex)
            return reading, EventSerializer(reading.run, self._versions.to_show(tx, reading.run.version_id).canvas)


def _has_been_seen(reading: "asyncio.Task[Found]") -> None:
    """Its error was raised to those who still wait; where nobody does, nobody misses it."""
    if not reading.cancelled():
        reading.exception()
