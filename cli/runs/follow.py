"""Follow one run: yield its events and streamed text in canonical order, as they arrive.

Notifications on the Redis bus only say when to read; the rows are the facts. Without notifications, rows are read once
a second.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import redis

from canvas.errors import NotFound
from canvas.events.stream_sequencer import Frame, Position, StreamSequencer
from canvas.ids import ActivationId, RunId, TenantId
from canvas.state.run_state import RunStatus
from scheduler.messaging.redis_bus import channel
from store.db.database import Database
from store.runs import run_queries
from store.runs.events import EventRow
from store.runs.run_queries import RunSummary

TICK_INTERVAL = 0.2  # seconds of a run without events after which the caller gets control, for example to handle Ctrl-C
GAP_POLL_INTERVAL = 0.05  # seconds between two reads of rows that must arrive any moment
POLL_INTERVAL = 1.0  # seconds between two reads of rows without a notification


class RunSubscription:
    """A subscription to the channels of runs. If Redis is away, no messages arrive, and no error is raised."""

    def __init__(self, redis_url: str) -> None:
        client = redis.Redis.from_url(redis_url, socket_timeout=5, socket_connect_timeout=2)
        self._subscription: Any = client.pubsub()
        self._client = client

    def subscribe(self, run_id: RunId) -> None:
        """Subscribe to a run and wait for the confirmation, so that no text of a run that starts next is missed."""
        with suppress(redis.RedisError):
            self._subscription.subscribe(channel(run_id))
            self._subscription.get_message(timeout=2)

    def receive(self, timeout: float) -> Mapping[str, Any] | None:
        """Return the next message, or None if none arrives within `timeout` seconds."""
        try:
            message = self._subscription.get_message(ignore_subscribe_messages=True, timeout=timeout)
        except redis.RedisError:
            time.sleep(timeout)
            return None
        return json.loads(message["data"]) if message is not None else None

    def close(self) -> None:
        """Close the subscription."""
        self._subscription.close()
        self._client.close()


@dataclass
class RunFollower:
    """Reads one run from a position on. `run` is its row as of the last read."""

    database: Database
    tenant_id: TenantId
    run_id: RunId
    subscription: RunSubscription
    after: Position = field(default_factory=Position)
    run: RunSummary = field(init=False)

    def stored_frames(self) -> Iterator[Frame[EventRow]]:
        """Yield the frames that are stored now. Raises NotFound like `frames`."""
        return self._read_rows(StreamSequencer[EventRow](self.after))

    def frames(self) -> Iterator[Frame[EventRow] | None]:
        """Yield frames until the run ends or waits; yield None every `TICK_INTERVAL` seconds in which nothing happens.

        Raises NotFound for a run that the tenant does not have.
        """
        transcript = StreamSequencer[EventRow](self.after)
        due = 0.0
        while True:
            if transcript.needs_rows or time.monotonic() >= due:
                due = time.monotonic() + POLL_INTERVAL
                yield from self._read_rows(transcript)
                if self._is_at_rest(transcript):
                    return
            yield None
            message = self.subscription.receive(GAP_POLL_INTERVAL if transcript.needs_rows else TICK_INTERVAL)
            if message is None:
                continue
            if "n" in message:
                transcript.on_event_notification(int(message["n"]))
            else:
                yield from transcript.on_text_delta(
                    ActivationId(UUID(message["t"])), message["ep"], message["o"], message["x"]
                )

    def _read_rows(self, transcript: StreamSequencer[EventRow]) -> Iterator[Frame[EventRow]]:
        """Read rows until there are no more."""
        is_whole = False
        while not is_whole:
            with self.database.statements() as tx:  # large values are read from the storage in between
                reading = run_queries.read_events(tx, self.tenant_id, self.run_id, transcript.after)
            if reading is None:
                raise NotFound(f"There is no run {self.run_id}. `easel runs` lists them.")
            self.run, is_whole = reading.run, reading.is_last
            yield from transcript.on_rows(reading.events, reading.streams)

    def _is_at_rest(self, transcript: StreamSequencer[EventRow]) -> bool:
        status = RunStatus(self.run.status)
        return (status.is_over or status is RunStatus.WAITING) and transcript.after >= self.run.last_event
