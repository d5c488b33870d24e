"""The sweeper: `python -m scheduler.sweep`. A plain loop that needs no Redis; any number may stand by.

Once a second it finds what waits for somebody who will not come: silent leases, hints that were lost, reports nobody
has seen, queued runs of free conversations, forms past their time, cancel keys of other programs. What it does in one
tick twice is only wasteful; a failing item never stops the tick.
"""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

import settings
import telemetry
from canvas.errors import ExecutorError
from scheduler.broker import make_app
from scheduler.coordinator import Coordinator
from scheduler.counting import Counters
from scheduler.housekeeping import keep_house
from scheduler.lifecycle import Lifecycle
from scheduler.process import coordinator_of
from store import canaries, overdue
from store.runs import Hint

log = structlog.get_logger()

TICK = 1.0  # seconds
RARELY = 10  # ticks
HOURLY = 3600  # ticks
FIRST_MINUTE = 60  # ticks; a process that lives for a moment leaves the house as it is
UNBROKEN = 6.0  # seconds for which the database must have been seen without a break before a lease counts as silent
SKEW = 1.0  # seconds by which its clock may run away from ours meanwhile
FORM_EXPIRED = "Nobody has answered the form in time."


@dataclass
class Sweeper:
    """One sweeper. Its memory is only about what it has seen itself."""

    coordinator: Coordinator
    _ticks: int = 0
    _since: tuple[float, datetime] | None = None  # since when the database is seen without a break (ours, its own)
    _last: tuple[float, datetime] | None = None
    _reported: set[UUID] = field(default_factory=set[UUID])

    def run(self, ending: threading.Event) -> None:
        """Sweep until told to end."""
        while not ending.wait(TICK):
            try:
                self.tick()
            except SQLAlchemyError as error:
                self._since = None
                log.warning("sweep_failed", error=str(error).splitlines()[0])

    def tick(self) -> bool:
        """One look at everything; False if another sweeper has this tick."""
        database, dispatch = self.coordinator.database, self.coordinator.dispatch
        hints: list[Hint] = []
        lost: list[UUID] = []
        with database.transaction() as tx:
            is_ours, now = overdue.try_sweep(tx)
            self._see(now)
            if not is_ours:
                return False
            if self._is_unbroken():
                lost = overdue.silent_leases(tx)
            came_back = canaries.latest(tx, "nodes")
            sent_before = came_back - timedelta(seconds=2) if came_back else datetime(1970, 1, 1, tzinfo=UTC)
            hints = list(overdue.unclaimed(tx, sent_before))
            unseen = overdue.unseen_reports(tx)
            rarely = self._ticks % RARELY == 0
            stuck = overdue.stuck(tx) if rarely else []
            expired = overdue.expired_forms(tx) if rarely else []
            open_runs = overdue.open_runs(tx)
        if self._ticks % HOURLY == FIRST_MINUTE:
            keep_house(database, now)
        self._ticks += 1
        dispatch.hint(hints)
        dispatch.canary(now)
        if lost:
            dispatch.counters.lost(len(lost))
        if hints or lost:
            log.warning("repaired", hints=len(hints), lost_attempts=len(lost))
        self._advance([*lost, *(unseen & self._reported), *stuck])
        self._reported = unseen
        self._cancel(open_runs)
        for run_id, _ in expired:
            self._carefully(run_id, lambda run: Lifecycle(self.coordinator).expire_form(run, FORM_EXPIRED))
        return True

    def _see(self, now: datetime) -> None:
        """Notice a gap in what was seen, or a clock that jumped: leases then get time to be renewed."""
        ours = time.monotonic()
        if self._last is not None:
            apart = abs((now - self._last[1]).total_seconds() - (ours - self._last[0]))
            if ours - self._last[0] > 3 * TICK or apart > SKEW:
                self._since = None
        self._last = (ours, now)
        if self._since is None:
            self._since = (ours, now)

    def _is_unbroken(self) -> bool:
        assert self._since is not None
        return time.monotonic() - self._since[0] >= UNBROKEN

    def _advance(self, runs: list[UUID]) -> None:
        for run_id in dict.fromkeys(runs):
            self._carefully(run_id, self.coordinator.advance_run)

    def _cancel(self, open_runs: dict[UUID, UUID]) -> None:
        for run_id in self.coordinator.dispatch.bus.cancelled(open_runs):
            self._carefully(run_id, Lifecycle(self.coordinator).cancel_by_key)

    def _carefully(self, run_id: UUID, do: Callable[[UUID], None]) -> None:
        try:
            do(run_id)
        except (SQLAlchemyError, ExecutorError) as error:
            log.error("sweep_item_failed", run_id=str(run_id), error=str(error).splitlines()[0])


def main() -> None:
    """Run a sweeper until a signal ends it."""
    configured = settings.load()
    telemetry.configure(configured.log_level, configured.log_format)
    database_url, redis_url, broker_url = configured.servers()
    ending = threading.Event()

    def end(*_: object) -> None:
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    coordinator = coordinator_of(
        make_app(broker_url, publishers=2),
        database_url,
        redis_url,
        pool_size=2,
        application="easel-sweeper",
        form_expiry=configured.form_expiry,
        max_running=configured.max_running,
        counters=Counters(**telemetry.counting()),
    )
    if configured.metrics_port is not None:
        telemetry.serve_counters(configured.metrics_port)
    log.info("sweeper_started")
    Sweeper(coordinator).run(ending)


if __name__ == "__main__":
    main()
