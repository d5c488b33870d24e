"""Events as messages on Redis pub/sub, for subscribers outside of Easel (docs/events.md).

A message is the frame that the API sends, so rows, canvas and message streams are read as for a stream of the API. This
happens only while the run has subscribers, on a thread of its own: an advance does not wait for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.errors import ValueGone
from canvas.events.stream_sequencer import Position, SequencedEvent, StreamSequencer
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging.event_notifier import EventNotification
from scheduler.views.event_frames import EventSerializer
from store.db.database import Database
from store.primitives.json_codec import encode
from store.runs import run_queries, run_rows
from store.runs.events import EventRow
from store.runs.passwords import load_mask

log = structlog.get_logger()

MAX_MESSAGE_BYTES = 16 * 1024  # of a message with its event; a larger event is announced by its size


@dataclass(frozen=True, slots=True)
class EventMessages:
    """Reads the events that a notification announces, and encodes each as a message."""

    database: Database
    versions: VersionCache

    def read(self, notification: EventNotification) -> Sequence[bytes]:
        """Return the messages in order; none if an event cannot be read, which subscribers notice by the numbers."""
        try:
            return list(self._messages(notification))
        except (SQLAlchemyError, ValueGone) as error:
            log.warning("events_not_published", run_id=str(notification.run_id), error=str(error).splitlines()[0])
            return ()

    def _messages(self, notification: EventNotification) -> Iterator[bytes]:
        run_id, read_up_to = notification.run_id, notification.first - 1
        with self.database.statements() as tx:
            tenant_id = run_rows.tenant_of(tx, run_id)
            while tenant_id is not None and read_up_to < notification.number:
                page = run_queries.read_events(tx, tenant_id, run_id, read_up_to)
                if page is None or not page.events:
                    return
                canvas = self.versions.get_or_empty(tx, page.run.version_id).canvas
                serializer = EventSerializer(page.run, canvas, load_mask(tx, canvas, tenant_id, run_id))
                for frame in StreamSequencer[EventRow](Position(read_up_to)).on_rows(page.events, page.streams):
                    if isinstance(frame, SequencedEvent) and frame.number <= notification.number:
                        yield _encode(serializer, frame)
                read_up_to = page.events[-1].number


def _encode(serializer: EventSerializer, frame: SequencedEvent[EventRow]) -> bytes:
    """Return the frame of an event; of one that is too large, where and how to read it."""
    ((_, body),) = serializer.frames(frame)
    message = encode(body).encode()
    if len(message) <= MAX_MESSAGE_BYTES:
        return message
    path = f"/api/v1/runs/{serializer.run.id.hex}/events?after={frame.number - 1}"
    too_large = {**serializer.ids, "event": frame.stored.name, "seq": frame.number, "size": len(message), "path": path}
    return encode(too_large).encode()
