"""The loop that fires schedules, on a thread of its own in each sweeper process.

It is separate from the sweeper's tick: a tick that repairs much would delay slots, and each sweeper can fire. Between
two slots the loop sleeps until the next one is due, and for `poll` at most. A changed schedule wakes it over Redis; if
that message is lost, the change is seen after `poll`.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import redis
import structlog
from sqlalchemy.exc import SQLAlchemyError

from scheduler.schedules.firing import Firing
from store.agents import schedules

log = structlog.get_logger()

BUSY_WAIT = 0.2  # seconds until the next look at a due schedule that another process has locked
RECONNECT_AFTER = 2.0  # seconds without Redis until it is tried again


@dataclass
class ScheduleLoop:
    """Fires due slots until it is stopped. `poll`: seconds between two looks without a slot. `beat`: see Sweeper."""

    firing: Firing
    poll: float
    beat: Callable[[], None] = lambda: None
    _wake: threading.Event = field(default_factory=threading.Event)

    def start(self, ending: threading.Event) -> None:
        """Start the threads. They end once `ending` is set, at the latest after `poll`."""
        for name, run in (("easel-schedules", self.run), ("easel-schedule-changes", self._listen)):
            threading.Thread(target=run, args=(ending,), name=name, daemon=True).start()

    def run(self, ending: threading.Event) -> None:
        """Fire what is due, wait, and begin again, until `ending` is set."""
        while not ending.is_set():
            self.beat()
            self._wake.clear()
            try:
                wait = self.look()
            except SQLAlchemyError as error:
                log.warning("schedules_not_read", error=str(error).partition("\n")[0])
                wait = self.poll
            except Exception as error:  # noqa: BLE001 (a bug that concerns one run must not end the thread)
                log.error("schedule_failed", error=f"{type(error).__name__}: {error}".partition("\n")[0])
                wait = self.poll
            self._wake.wait(wait)

    def look(self) -> float:
        """Fire what is due; return the seconds until the next look."""
        firing = self.firing
        database = firing.lifecycle.coordinator.database
        at = firing.clock() if firing.clock is not None else None
        with database.statements() as tx:
            left = schedules.time_until_due(tx, at)
        if left is None:
            return self.poll
        if left.total_seconds() > 0:
            return min(left.total_seconds(), self.poll)
        return 0.0 if firing.fire_due(most=100) else BUSY_WAIT

    def _listen(self, ending: threading.Event) -> None:
        """Wake the loop when a schedule has changed."""
        bus = self.firing.lifecycle.coordinator.dispatch.bus
        while not ending.is_set():
            try:
                for has_changed in bus.schedule_changes():
                    if has_changed:
                        self._wake.set()
                    if ending.is_set():
                        return
            except redis.RedisError:
                ending.wait(RECONNECT_AFTER)
