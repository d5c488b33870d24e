"""Live streams in the process of a test, whose clients read when the test wants them to."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from api.events.event_reader import EventReader
from api.events.live_frames import ByeReason
from api.events.live_stream import LiveMetrics, LiveRequest, LiveStreams
from canvas.events.stream_sequencer import Position
from canvas.ids import RunId, TenantId
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging.subscriptions import EventSubscriptions
from scheduler.views.activation_columns import to_object
from store.db.database import Database
from store.runs import activation_list
from store.runs.activation_list import ActivationFilter
from tests.integration.api.live_frames import LiveFrame, frames_of

TIMEOUT = 30.0
END_OF_FRAME = b"\n\n"


@dataclass
class LiveProcess:
    """The live streams of a process, and what it counts."""

    streams: LiveStreams
    snapshots: list[float] = field(default_factory=list[float])  # seconds of each
    open: list[int] = field(default_factory=list[int])

    def follow(
        self,
        tenant_id: UUID,
        run_id: UUID,
        *,
        after: str = "0",
        rev: int = 0,
        check: Callable[[], Awaitable[ByeReason | None]] | None = None,
    ) -> AsyncGenerator[bytes]:
        """Open a stream of a run."""

        async def allow() -> None:
            return None

        request = LiveRequest(
            TenantId(tenant_id), RunId(run_id), "running", Position.parse(after), rev, {}, check or allow
        )
        return frame_by_frame(self.streams.follow(request))


async def frame_by_frame(stream: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the frames of a stream one by one, though several may be sent at once."""
    async with aclosing(stream):
        async for sent in stream:
            for frame in sent.removesuffix(END_OF_FRAME).split(END_OF_FRAME):
                yield frame + END_OF_FRAME


@asynccontextmanager
async def live_process(database: Database, redis_url: str, *, pool_size: int = 3) -> AsyncGenerator[LiveProcess]:
    """Yield live streams on these servers."""
    own = Database(database.url, pool_size=pool_size)
    subscriptions = EventSubscriptions(redis_url)
    await subscriptions.start()
    reader = EventReader(own, VersionCache())
    snapshots, counts = list[float](), list[int]()
    streams = LiveStreams(
        reader,
        subscriptions,
        VersionCache(),
        limit_of=lambda _: 600.0,
        metrics=LiveMetrics(counts.append, snapshots.append),
    )
    try:
        yield LiveProcess(streams, snapshots, counts)
    finally:
        streams.close()
        await subscriptions.close()
        reader.close()


async def next_frame(stream: AsyncGenerator[bytes], name: str = "") -> LiveFrame:
    """Return the next frame of a stream, or the next one with this name."""
    async with asyncio.timeout(TIMEOUT):
        async for sent in stream:
            for frame in parse(sent):
                if name in ("", frame.name):
                    return frame
    raise AssertionError(f"the stream has ended without {name or 'a frame'}")


async def rest(stream: AsyncGenerator[bytes]) -> list[LiveFrame]:
    """Return all further frames of a stream, which ends by itself."""
    async with asyncio.timeout(TIMEOUT):
        return [frame async for sent in stream for frame in parse(sent)]


def parse(sent: bytes) -> list[LiveFrame]:
    """Return the frames of what was sent at once."""
    return list(frames_of(sent.decode().split("\n")))


def stored_rows(database: Database, tenant_id: UUID, run_id: UUID) -> dict[str, dict[str, Any]]:
    """Return all activations of a run as objects, by id."""
    with database.transaction() as tx:
        page = activation_list.read_page(tx, TenantId(tenant_id), RunId(run_id), ActivationFilter(), limit=100_000)
    assert page is not None
    return {row.id: to_object(row, page.last_finished.get(row.id)) for row in page.rows}
