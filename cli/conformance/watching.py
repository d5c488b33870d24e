"""The events of a turn as a client would have received them."""

from typing import Any
from uuid import UUID

from canvas.transcript import Position
from cli.follow import Ears, Following
from scheduler.versions import Versions
from scheduler.wire import Wire
from store.database import Database


class Watcher:
    """Looks at runs the way a client does."""

    def __init__(self, database: Database, versions: Versions, redis_url: str) -> None:
        self._database = database
        self._versions = versions
        self._ears = Ears(redis_url)

    def events_of(self, tenant_id: UUID, run_id: UUID, after: int) -> list[dict[str, Any]]:
        """{event, data} of a run's events after a number, with the spoken text where it was said."""
        following = Following(self._database, tenant_id, run_id, self._ears, Position(after))
        frames = list(following.now())
        with self._database.transaction() as tx:
            canvas = self._versions.canvas(tx, following.run.version_id)
        wire = Wire(following.run, canvas)
        shown = [envelope for frame in frames for _, envelope in wire.frames(frame)]
        return [{"event": frame["event"], "data": frame["data"]} for frame in shown if "event" in frame]
