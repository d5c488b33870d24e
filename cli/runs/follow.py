"""Follow one run: its events and its speech in the one right order, as they come (protocol.md, "Speech").

The bus wakes us, the rows tell; where the bus is silent or away, rows are read once a second.
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
from canvas.state.run_state import RunStatus
from scheduler.messaging.redis_bus import channel
from store.db.database import Database
from store.runs import run_queries
from store.runs.events import StoredEvent
from store.runs.run_queries import RunSummary

TICK = 0.2  # seconds; how soon the caller gets a chance to look up from a run in which nothing happens
IN_A_GAP = 0.05  # seconds between looks at rows that must come any moment
LOOK_EVERY = 1.0  # seconds between looks at the rows, whatever the bus says


class Ears:
    """A subscription to runs' channels. A bus that is away is only silent."""

    def __init__(self, redis_url: str) -> None:
        client = redis.Redis.from_url(redis_url, socket_timeout=5, socket_connect_timeout=2)
        self._subscription: Any = client.pubsub()
        self._client = client

    def listen_to(self, run_id: UUID) -> None:
        """Hear a run from now on; confirmed, so that what is started next is heard from its first word."""
        with suppress(redis.RedisError):
            self._subscription.subscribe(channel(run_id))
            self._subscription.get_message(timeout=2)

    def hear(self, timeout: float) -> Mapping[str, Any] | None:
        """The next message, None if there is none within `timeout` seconds."""
        try:
            heard = self._subscription.get_message(ignore_subscribe_messages=True, timeout=timeout)
        except redis.RedisError:
            time.sleep(timeout)
            return None
        return json.loads(heard["data"]) if heard is not None else None

    def close(self) -> None:
        """Hear nothing more."""
        self._subscription.close()
        self._client.close()


@dataclass
class Following:
    """One way through a run. `run` is the run as it was last seen, once something was."""

    database: Database
    tenant_id: UUID
    run_id: UUID
    ears: Ears
    after: Position = field(default_factory=Position)
    run: RunSummary = field(init=False)

    def now(self) -> Iterator[Frame[StoredEvent]]:
        """What there is to show at this moment. Raises NotFound like `frames`."""
        return self._look(StreamSequencer[StoredEvent](self.after))

    def frames(self) -> Iterator[Frame[StoredEvent] | None]:
        """What there is to show, until the run is over or waits; None at least every so often, when nothing happens.

        Raises NotFound for a run that the tenant does not have.
        """
        transcript = StreamSequencer[StoredEvent](self.after)
        due = 0.0
        while True:
            if transcript.needs_rows or time.monotonic() >= due:
                due = time.monotonic() + LOOK_EVERY
                yield from self._look(transcript)
                if self._is_at_rest(transcript):
                    return
            yield None
            heard = self.ears.hear(IN_A_GAP if transcript.needs_rows else TICK)
            if heard is None:
                continue
            if "n" in heard:
                transcript.echo(int(heard["n"]))
            else:
                yield from transcript.piece(UUID(heard["t"]), heard["ep"], heard["o"], heard["x"])

    def _look(self, transcript: StreamSequencer[StoredEvent]) -> Iterator[Frame[StoredEvent]]:
        """Read the rows until there is nothing more to read."""
        is_whole = False
        while not is_whole:
            with self.database.statements() as tx:  # large values are read from the storage in between
                reading = run_queries.read(tx, self.tenant_id, self.run_id, transcript.after)
            if reading is None:
                raise NotFound(f"There is no run {self.run_id}. `easel runs` lists them.")
            self.run, is_whole = reading.run, reading.is_whole
            yield from transcript.rows(reading.events, reading.turns)

    def _is_at_rest(self, transcript: StreamSequencer[StoredEvent]) -> bool:
        status = RunStatus(self.run.status)
        return (status.is_over or status is RunStatus.WAITING) and transcript.after >= self.run.last_event
