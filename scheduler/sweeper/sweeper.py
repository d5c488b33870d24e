"""The sweeper: `python -m scheduler.sweep`. A plain loop that needs no Redis; any number may stand by.

Once a second it finds what waits for somebody who will not come: silent leases, hints that were lost, reports nobody
has seen, queued runs of free conversations, forms past their time, cancel keys of other programs. What it does in one
tick twice is only wasteful; a failing item never stops the tick.
"""

import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

import settings
import telemetry
from scheduler.bootstrap import Role, build_coordinator, refuse_pooler
from scheduler.coordinator.coordinator import Coordinator
from scheduler.health.watchdog import BEHIND_WATCHES, Heartbeat, LockWatchdog, Watchdog, exit_for_restart
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.metrics import Metrics
from scheduler.sweeper.maintenance import Retention, keep_house_alone
from store.knowledge import documents as knowledge_documents
from store.knowledge import memory_extractions
from store.monitoring import queue_probes, sweep_queries
from store.monitoring.queue_probes import SweeperObservation
from store.tenants import budgets

log = structlog.get_logger()

TICK = 1.0  # seconds
SLOW_CHECK_TICKS = 10  # ticks
RESEND_AFTER_FLUSH_LIMIT = 5000  # hints that are sent again in one tick when the broker has forgotten everything
PROBE_BACKOFF_TICKS = 5  # ticks between canaries while none comes back: where no worker is, they must not pile up
PROBE_FRESHNESS = timedelta(seconds=30)  # since a canary was sent that came back; longer: nobody takes from the queue
HOURLY = 3600  # ticks
FIRST_MINUTE = 60  # ticks; a process that lives for a moment leaves the house as it is
UNBROKEN = 6.0  # seconds for which the database must have been seen without a break before a lease counts as silent
MAX_HARMLESS_GAP = 4.0  # seconds of a break that costs no lease by itself: a lease less two renewals
SKEW = 1.0  # seconds by which its clock may run away from ours meanwhile
FORM_EXPIRED = "Nobody has answered the form in time."


@dataclass
class Sweeper:
    """One sweeper. What it has seen of the database it leaves there, so that the next one need not wait as long."""

    coordinator: Coordinator
    harmless: float = MAX_HARMLESS_GAP
    beat: Callable[[], None] = lambda: None  # told again and again that the sweeper gets on
    keeping: Retention | None = None
    _ticks: int = 0
    _since: tuple[float, datetime] | None = None  # since when the database is seen without a break (ours, its own)
    _last: tuple[float, datetime] | None = None
    _has_forgotten: bool = False  # the broker was found empty at the end of the last tick
    _forgotten_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    _reported: set[UUID] = field(default_factory=set[UUID])
    _house: threading.Thread | None = None

    def run(self, ending: threading.Event) -> None:
        """Sweep until told to end."""
        while not ending.wait(TICK):
            self.beat()
            try:
                self.tick()
            except SQLAlchemyError as error:
                self._since = None
                log.warning("sweep_failed", error=str(error).splitlines()[0])

    def tick(self) -> bool:
        """One look at everything; False if another sweeper has this tick.

        What makes runs go on comes first, in a transaction of its own: what is merely looked after does not delay it.
        """
        database, dispatch = self.coordinator.database, self.coordinator.dispatch
        lost: list[UUID] = []
        with database.transaction() as tx:
            is_ours, now = sweep_queries.try_sweep(tx)
            since = self._see(now, queue_probes.last_observation(tx) if self._last is None else None)
            if not is_ours:
                return False
            if self._is_unbroken():
                lost = sweep_queries.expire_leases(tx)
            came_back = queue_probes.save_observation(tx, SweeperObservation(since, now), "nodes")
            most = sweep_queries.BATCH
            if self._has_forgotten:
                self._has_forgotten, self._forgotten_at, most = False, now, RESEND_AFTER_FLUSH_LIMIT
            overtaken = came_back - timedelta(seconds=2) if came_back else self._forgotten_at
            hints = sweep_queries.redispatch_unclaimed(tx, max(overtaken, self._forgotten_at), most)
            unseen = sweep_queries.runs_with_unapplied_reports(tx)
        self.beat()
        ticks, self._ticks = self._ticks, self._ticks + 1
        dispatch.hint(hints)
        if came_back is None or now - came_back < PROBE_FRESHNESS or self._ticks % PROBE_BACKOFF_TICKS == 0:
            dispatch.canary(now)
        if lost:
            dispatch.counters.lost(len(lost))
        if hints or lost:
            log.warning("repaired", hints=len(hints), lost_attempts=len(lost))
        self._advance([*lost, *(unseen & self._reported)])
        self._reported = unseen
        with database.statements() as tx:
            open_runs = sweep_queries.open_runs(tx)
        self._cancel(open_runs)
        with database.statements() as tx:
            overtime = budgets.runs_over_time(tx)
        for run_id, limit_ms in overtime:
            self._carefully(run_id, lambda run, limit=limit_ms: Lifecycle(self.coordinator).end_in_time(run, limit))
        self._has_forgotten = dispatch.has_forgotten() or self._has_forgotten
        if ticks % SLOW_CHECK_TICKS == 0:
            self._look_rarely()
        if ticks % HOURLY == FIRST_MINUTE:
            self._keep_house(now)
        return True

    def _keep_house(self, now: datetime) -> None:
        """Beside the ticks, since a week of runs may take a minute to go; not again while it is still being done."""
        if self._house is None or not self._house.is_alive():
            given = (self.coordinator.database, now, self.keeping)
            self._house = threading.Thread(target=keep_house_alone, args=given, name="easel-house", daemon=True)
            self._house.start()

    def _look_rarely(self) -> None:
        with self.coordinator.database.statements() as tx:
            stuck = sweep_queries.stuck(tx)
            expired = sweep_queries.expired_forms(tx)
            interrupted = sweep_queries.interrupted(tx)
            still = sweep_queries.stalled_runs(tx)
            documents = knowledge_documents.waiting(tx)
            budgets.release_orphans(tx)
            budgets.clear_deadlines(tx)
            said = memory_extractions.waiting(tx)
        if documents:
            self.coordinator.dispatch.ingest()
        if said:
            self.coordinator.dispatch.extract()
        for run_id in still:
            log.error("run_stalled", run_id=str(run_id))
        self._advance(stuck)
        for run_id in interrupted:
            self._carefully(run_id, Lifecycle(self.coordinator).cancel_by_key)
        for run_id, _ in expired:
            self._carefully(run_id, lambda run: Lifecycle(self.coordinator).expire_form(run, FORM_EXPIRED))

    def _see(self, now: datetime, before: SweeperObservation | None) -> datetime:
        """Since when the database is seen without a break. After one, or a jump of its clock, leases get their time.

        A new sweeper goes on with what the one before it has seen if nobody was looking for a moment only. Such a
        break cannot cost a lease by itself: a lease that was just to be renewed when it began is renewed within one
        renewal of its end, and so before the lease has run out. Leases, too, go by the database's clock: a jump
        forward makes the moment longer, and a jump back gives all of them as much more time.
        """
        ours = time.monotonic()
        if self._last is not None:
            gap = ours - self._last[0]
            apart = abs((now - self._last[1]).total_seconds() - gap)
            if gap > max(3 * TICK, self.harmless) or apart > SKEW:
                self._since = None
        elif before is not None and 0 <= (now - before.seen).total_seconds() <= self.harmless:
            self._since = (ours - (now - before.since).total_seconds(), before.since)
        self._last = (ours, now)
        if self._since is None:
            self._since = (ours, now)
        return self._since[1]

    def _is_unbroken(self) -> bool:
        assert self._since is not None
        return time.monotonic() - self._since[0] >= UNBROKEN

    def _advance(self, runs: list[UUID]) -> None:
        for run_id in dict.fromkeys(runs):
            self._carefully(run_id, self.coordinator.advance_run)

    def _cancel(self, open_runs: Mapping[UUID, tuple[UUID, Collection[str]]]) -> None:
        conversations = {run_id: conversation_id for run_id, (conversation_id, _) in open_runs.items()}
        names = {run_id: names for run_id, (_, names) in open_runs.items() if names}
        for run_id in self.coordinator.dispatch.bus.cancelled(conversations, names):
            self._carefully(run_id, Lifecycle(self.coordinator).cancel_by_key)

    def _carefully(self, run_id: UUID, do: Callable[[UUID], None]) -> None:
        self.beat()
        try:
            do(run_id)
        except Exception as error:  # noqa: BLE001 (a bug of ours about one run must not cost the others their sweeper)
            log.error("sweep_item_failed", run_id=str(run_id), error=str(error).partition("\n")[0])


def main() -> None:
    """Run a sweeper until a signal ends it."""
    configured = settings.load()
    telemetry.configure(configured.log_level, configured.log_format)
    telemetry.introduce("sweeper", settings.renamed_variables())
    database_url, redis_url, broker_url = configured.servers()
    ending = threading.Event()

    def end(*_: object) -> None:
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    coordinator = build_coordinator(
        make_app(broker_url, publishers=2),
        database_url,
        redis_url,
        configured,
        Role("easel-sweeper", pool_size=2),
        counters=Metrics(**telemetry.metric_functions()),
    )
    refuse_pooler(coordinator.database)
    if configured.metrics_port is not None:
        telemetry.serve_metrics(configured.metrics_port, configured.metrics_host)
    beat = Heartbeat("the sweeper", at_most=configured.unresponsive_after.total_seconds())
    Watchdog(beat, every=TICK, ends=lambda reason: exit_for_restart(reason, lambda: None, within=0)).start()
    LockWatchdog(configured.unresponsive_after.total_seconds() + BEHIND_WATCHES).start()
    log.info("sweeper_started")
    harmless = configured.lease - 2 * configured.renew_every
    keeping = Retention(configured.retention, coordinator.database.large.blobs) if configured.retention else None
    Sweeper(coordinator, harmless.total_seconds(), beat.beat, keeping).run(ending)


if __name__ == "__main__":
    main()
