"""Read rows of runs for event streams, with their own threads and connections.

Streams of one run that request the same rows at the same time share one read. A stream may join a read until the read
begins: then the read sees everything that was committed before the stream's request.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from api.events.live_frames import event_frame
from canvas.errors import NotFound
from canvas.events.run_events import LONGEST_QUOTE, MESSAGE_RESET
from canvas.events.stream_sequencer import Position, SequencedEvent
from canvas.ids import RunId, TenantId
from scheduler.coordinator.version_cache import VersionCache
from scheduler.views.event_frames import EventSerializer
from store.db.database import Database
from store.runs import event_log, run_queries
from store.runs.event_log import EventDetails
from store.runs.events import EventRow
from store.runs.passwords import load_mask
from store.runs.run_queries import EventPage

T = TypeVar("T")

THREADS = 4

ReadResult = tuple[EventPage, EventSerializer]
_Rows = Callable[[Database, TenantId, RunId, int], Any]


@dataclass(frozen=True, slots=True)
class EventOutline:
    """Events of a run without the values of nodes; `details` by the number of the event.

    `frames`: all of them encoded, where no message stream is open, so that they are the same for every client; else
    None.
    """

    page: EventPage
    details: Mapping[int, EventDetails]
    serializer: EventSerializer
    frames: bytes | None
    _encoded: dict[tuple[Position, int, int], bytes] = field(default_factory=dict[tuple[Position, int, int], bytes])

    def frame(self, event: SequencedEvent[EventRow]) -> bytes:
        """Return the frame of an event, which is encoded once for all clients that have the same before it."""
        key = (event.position, event.retained_length, event.epoch)
        found = self._encoded.get(key)
        if found is None:
            found = self._encoded[key] = event_frame(self.serializer, event, self.details.get(event.number))
        return found


class EventReader:
    """The reads of a process. It belongs to one event loop."""

    def __init__(self, database: Database, versions: VersionCache) -> None:
        self._database = database
        self._versions = versions
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="easel-streams")
        self._places = asyncio.Semaphore(THREADS)
        self._to_come: dict[tuple[_Rows, TenantId, RunId, int], asyncio.Task[Any]] = {}

    async def read_after(self, tenant_id: TenantId, run_id: RunId, number: int) -> ReadResult:
        """Return a run, its events after a number, and their message streams. Raises NotFound."""
        return await self._join_read(self._rows, tenant_id, run_id, number)

    async def read_outline_after(self, tenant_id: TenantId, run_id: RunId, number: int) -> EventOutline:
        """Return the same without the values of nodes, with the activation of each event. Raises NotFound."""
        return await self._join_read(self._outline, tenant_id, run_id, number)

    async def in_thread(self, work: Callable[[Database], T]) -> T:
        """Run other work on the database of the streams in one of their threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, self._database)

    def close(self) -> None:
        """Close threads and connections."""
        self._threads.shutdown(wait=False)
        self._database.close()

    async def _join_read(self, rows: _Rows, tenant_id: TenantId, run_id: RunId, number: int) -> Any:
        key = (rows, tenant_id, run_id, number)
        reading = self._to_come.get(key)
        if reading is None:
            reading = self._to_come[key] = asyncio.create_task(self._read(key))
            reading.add_done_callback(_mark_error_retrieved)
        return await asyncio.shield(reading)  # if one stream is cancelled, the others still need the read

    async def _read(self, key: tuple[_Rows, TenantId, RunId, int]) -> Any:
        async with self._places:  # a queue here and not in the pool, since this code must know which reads have begun
            del self._to_come[key]
            rows, tenant_id, run_id, number = key
            return await self.in_thread(lambda database: rows(database, tenant_id, run_id, number))

    def _rows(self, database: Database, tenant_id: TenantId, run_id: RunId, number: int) -> ReadResult:
        with database.statements() as tx:
            reading = run_queries.read_events(tx, tenant_id, run_id, number)
            if reading is None:
                raise _not_found(run_id)
            canvas = self._versions.get_or_empty(tx, reading.run.version_id).canvas
            return reading, EventSerializer(reading.run, canvas, load_mask(tx, canvas, tenant_id, run_id))

    def _outline(self, database: Database, tenant_id: TenantId, run_id: RunId, number: int) -> EventOutline:
        with database.statements() as tx:
            found = event_log.read_outline(tx, tenant_id, run_id, number)
            if found is None:
                raise _not_found(run_id)
            page, details = found
            canvas = self._versions.get_or_empty(tx, page.run.version_id).canvas
            query = str(page.run.request.get("query") or "")[: LONGEST_QUOTE + 1]
            run = replace(page.run, request={"query": query})  # a whole request may have 1 MiB, for each stream
            serializer = EventSerializer(run, canvas, load_mask(tx, canvas, tenant_id, run_id))
        frames = None
        if not page.streams and not any(event.name == MESSAGE_RESET for event in page.events):
            frames = b"".join(
                event_frame(serializer, SequencedEvent(Position(event.number), event), details.get(event.number))
                for event in page.events
            )
        return EventOutline(replace(page, run=run), details, serializer, frames)


def _not_found(run_id: RunId) -> NotFound:
    return NotFound(f"There is no run {run_id.hex}.", run_id=run_id.hex)


def _mark_error_retrieved(reading: "asyncio.Task[Any]") -> None:
    """Mark the error of a read as retrieved. Streams that still wait got it; if none does, it is not needed."""
    if not reading.cancelled():
        reading.exception()
