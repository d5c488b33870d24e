"""Follow one run: its events and its speech in the one right order, as they come (protocol.md, "Speech").

The bus wakes us, the rows tell; where the bus is silent or away, rows are read once a second.
"""

import json
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import redis

from canvas.errors import NotFound
from canvas.state import RunStatus
from canvas.transcript import Frame, Position, Transcript
from scheduler.bus import channel
from store import events, runs, turns
from store.database import Database
from store.events import Stored

TICK = 0.2  # seconds; how soon the caller gets a chance to look up from a run in which nothing happens
IN_A_GAP = 0.05  # seconds between looks at rows that must come any moment
LOOK_EVERY = 1.0  # seconds between looks at the rows, whatever the bus says
MOST = 500  # events a look


class Ears:
    """A subscription to a run's channel. A bus that is away is only silent."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription

    def hear(self, timeout: float) -> Mapping[str, Any] | None:
        """The next message, None if there is none within `timeout` seconds."""
        try:
            heard = self._subscription.get_message(ignore_subscribe_messages=True, timeout=timeout)
        except redis.RedisError:
            time.sleep(timeout)
            return None
        return json.loads(heard["data"]) if heard is not None else None


@contextmanager
def listening(redis_url: str, run_id: UUID) -> Generator[Ears]:
    """Ears for a run, subscribed before the block begins, so that what it starts is heard from the first word."""
    client = redis.Redis.from_url(redis_url, socket_timeout=5, socket_connect_timeout=2)
    with client, client.pubsub() as subscription:
        with suppress(redis.RedisError):
            subscription.subscribe(channel(run_id))
            subscription.get_message(timeout=2)  # the confirmation
        yield Ears(subscription)


@dataclass
class Following:
    """One way through a run. `row` is the run's row as it was last seen."""

    database: Database
    tenant_id: UUID
    run_id: UUID
    ears: Ears
    after: Position = field(default_factory=Position)
    row: Mapping[str, Any] = field(init=False, default_factory=dict[str, Any])

    def frames(self) -> Iterator[Frame[Stored] | None]:
        """What there is to show, until the run is over or waits; None at least every so often, when nothing happens.

        Raises NotFound for a run that the tenant does not have.
        """
        transcript = Transcript[Stored](self.after)
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

    def _look(self, transcript: Transcript[Stored]) -> Iterator[Frame[Stored]]:
        """Read rows: the run's first, so that a run seen at rest is read to its end."""
        more = True
        while more:
            with self.database.transaction() as tx:
                row = runs.read(tx, self.tenant_id, self.run_id)
                if row is None:
                    raise NotFound(f"There is no run {self.run_id}. `easel runs` lists them.")
                stored = events.after(tx, self.run_id, transcript.after, most=MOST)
                spoken = turns.opened(tx, self.run_id)
            self.row = row
            more = len(stored) == MOST
            yield from transcript.rows(stored, spoken)

    def _is_at_rest(self, transcript: Transcript[Stored]) -> bool:
        status = RunStatus(self.row["status"])
        return (status.is_over or status is RunStatus.WAITING) and transcript.after >= self.row["last_event"]
