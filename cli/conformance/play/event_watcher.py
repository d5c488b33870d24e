"""Read the events of a turn as a client would have received them."""

from typing import Any

from canvas.events.run_events import RUN_FAILED
from canvas.events.stream_sequencer import Frame, Position, SequencedEvent
from canvas.ids import RunId, TenantId
from cli.runs.follow import RunFollower, RunSubscription
from scheduler.coordinator.version_cache import VersionCache
from scheduler.views.event_frames import EventSerializer
from store.db.database import Database
from store.runs.events import EventRow


class EventWatcher:
    """Reads runs like a client of the API."""

    def __init__(self, database: Database, versions: VersionCache, redis_url: str) -> None:
        self._database = database
        self._versions = versions
        self._subscription = RunSubscription(redis_url)

    def events_of(self, tenant_id: TenantId, run_id: RunId, after: int) -> list[dict[str, Any]]:
        """Return {event, data} of a run's events after a number, with the streamed text at its position."""
        following, frames = self._read(tenant_id, run_id, after)
        with self._database.transaction() as tx:
            canvas = self._versions.canvas(tx, following.run.version_id)
        wire = EventSerializer(following.run, canvas)
        shown = [envelope for frame in frames for _, envelope in wire.frames(frame)]
        return [{"event": frame["event"], "data": frame["data"]} for frame in shown if "event" in frame]

    def error_of(self, tenant_id: TenantId, run_id: RunId, after: int) -> str:
        """Return the component's error that ended a run, as RAGFlow reports it; "" if there is none."""
        _, frames = self._read(tenant_id, run_id, after)
        ends = (
            frame.stored for frame in frames if isinstance(frame, SequencedEvent) and frame.stored.name == RUN_FAILED
        )
        return next((str(stored.body.get("error", "")) for stored in ends), "")

    def _read(self, tenant_id: TenantId, run_id: RunId, after: int) -> tuple[RunFollower, list[Frame[EventRow]]]:
        following = RunFollower(self._database, tenant_id, run_id, self._subscription, Position(after))
        return following, list(following.stored_frames())
