"""The sweeper: `python -m scheduler.sweep`. A loop that repairs what was lost; it works without Redis.

Once a second (a tick) it finds expired leases, activations whose task message was lost, reports that were not applied,
queued runs of idle conversations, expired forms, and cancel keys that other programs have set. Any number of sweepers
may run; one of them does each tick. Doing work twice is harmless, and a failing item does not stop the tick. Beside the
ticks, a thread of each sweeper fires schedules (scheduler/schedules/loop.py).
"""

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

import structlog
from sqlalchemy.exc import SQLAlchemyError

import settings
import telemetry
from canvas.errors import ExecutorError
from canvas.events import explain
from canvas.ids import RunId, SessionId
from providers.http.client import HttpClient
from scheduler.bootstrap import Role, build_coordinator, refuse_pooler
from scheduler.callbacks.retries import RetrySchedule
from scheduler.callbacks.sender import ENDING, CallbackSender, SendingLimits
from scheduler.coordinator.coordinator import Coordinator
from scheduler.health.watchdog import LOCK_WATCHDOG_DELAY, Heartbeat, LockWatchdog, Watchdog, exit_for_restart
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.metrics import Metrics
from scheduler.schedules.firing import Firing
from scheduler.schedules.loop import ScheduleLoop
from scheduler.sweeper.maintenance import Retention, run_exclusive_maintenance
from store.knowledge import chunk_indexes, former_rows, memory_extractions
from store.knowledge import documents as knowledge_documents
from store.monitoring import queue_probes, sweep_queries
from store.monitoring.queue_probes import SweeperObservation
from store.primitives.encryption import EncryptionKey
from store.tenants import budgets

log = structlog.get_logger()

TICK = explain.TICK.total_seconds()
SLOW_CHECK_TICKS = 10  # ticks between two slow checks
RESEND_AFTER_FLUSH_LIMIT = 5000  # task messages that are sent again in one tick after the broker was emptied
PROBE_BACKOFF_TICKS = 5  # ticks between queue probes while none returns: without a worker they must not pile up
PROBE_FRESHNESS = timedelta(seconds=30)  # age of the last returned probe; if it is older, no worker receives
HOURLY = 3600  # ticks
FIRST_MINUTE = 60  # ticks until the first maintenance; a process that runs for a moment does none
MIN_UNINTERRUPTED = explain.MIN_UNINTERRUPTED.total_seconds()
MAX_HARMLESS_GAP = 4.0  # seconds of an interruption that by itself expires no lease: a lease less two renewals
PROBE_SETTLES = 2.0  # seconds; by then a deferred claim is written (worker/leases/leases.py: DEFER_CLAIM_FOR)
SKEW = 1.0  # seconds by which the database's clock and this process's may diverge between two ticks
FORM_EXPIRED = "The form was not answered in time."


@dataclass
class Sweeper:
    """One sweeper. It stores since when it has observed the database, so that its successor need not start anew."""

    coordinator: Coordinator
    harmless_gap: float = MAX_HARMLESS_GAP
    beat: Callable[[], None] = lambda: None  # called whenever the sweeper makes progress
    retention: Retention | None = None
    call_period: timedelta | None = None  # how long model calls are kept; None: as long as their runs
    audit_period: timedelta | None = None  # how long the audit log is kept; None: forever
    callback_period: timedelta | None = None  # how long deliveries of callbacks are kept; None: for ever
    _ticks: int = 0
    _since: tuple[float, datetime] | None = None  # start of the uninterrupted observation (own clock, database's)
    _last: tuple[float, datetime] | None = None
    _was_flushed: bool = False  # at the end of the last tick the broker had been emptied
    _flushed_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    _probes: "ReturnedProbes" = field(default_factory=lambda: ReturnedProbes())
    _reported: set[RunId] = field(default_factory=set)
    _maintenance_thread: threading.Thread | None = None

    def run(self, ending: threading.Event) -> None:
        """Run a tick every second until `ending` is set."""
        while not ending.wait(TICK):
            self.beat()
            try:
                self.tick()
            except SQLAlchemyError as error:
                self._since = None
                log.warning("sweep_failed", error=str(error).splitlines()[0])

    def tick(self) -> bool:
        """Check everything once; return False if another sweeper does this tick.

        What lets runs continue comes first, in a transaction of its own, so that maintenance does not delay it.
        """
        database, dispatch = self.coordinator.database, self.coordinator.dispatch
        lost: list[RunId] = []
        with database.transaction() as tx:
            is_ours, now = sweep_queries.try_sweep(tx)
            since = self._update_observation(now, queue_probes.last_observation(tx) if self._last is None else None)
            if not is_ours:
                return False
            if self._is_unbroken():
                lost = sweep_queries.expire_leases(tx)
            came_back = queue_probes.save_observation(tx, SweeperObservation(since, now), "nodes")
            most = sweep_queries.BATCH
            if self._was_flushed:
                self._was_flushed, self._flushed_at, most = False, now, RESEND_AFTER_FLUSH_LIMIT
            proven = self._probes.proven(time.monotonic(), came_back)
            overtaken = proven - explain.MESSAGE_LOST_AFTER if proven else self._flushed_at
            messages = sweep_queries.redispatch_unclaimed(tx, max(overtaken, self._flushed_at), most)
            unseen = sweep_queries.runs_with_unapplied_reports(tx)
        self.beat()
        ticks, self._ticks = self._ticks, self._ticks + 1
        dispatch.enqueue_nodes(messages)
        if came_back is None or now - came_back < PROBE_FRESHNESS or self._ticks % PROBE_BACKOFF_TICKS == 0:
            dispatch.send_probe(now)
        if lost:
            dispatch.counters.lost(len(lost))
        if messages or lost:
            log.warning("repaired", task_messages=len(messages), lost_attempts=len(lost))
        self._advance([*lost, *(unseen & self._reported)])
        self._reported = unseen
        with database.statements() as tx:
            open_runs = sweep_queries.open_runs(tx)
        self._cancel(open_runs)
        with database.statements() as tx:
            overtime = budgets.runs_over_time(tx)
        for run_id, limit_ms in overtime:
            self._run_item(
                run_id, lambda run, limit=limit_ms: Lifecycle(self.coordinator).fail_on_time_budget(run, limit)
            )
        self._was_flushed = dispatch.was_flushed() or self._was_flushed
        if ticks % SLOW_CHECK_TICKS == 0:
            self._run_slow_checks()
        if ticks % HOURLY == FIRST_MINUTE:
            self._start_maintenance(now)
        return True

    def _start_maintenance(self, now: datetime) -> None:
        """Start maintenance in a thread, since deleting a week of runs may take a minute; one thread at a time."""
        if self._maintenance_thread is None or not self._maintenance_thread.is_alive():
            periods = (self.call_period, self.audit_period, self.callback_period)
            arguments = (self.coordinator.database, now, self.retention, *periods)
            self._maintenance_thread = threading.Thread(
                target=run_exclusive_maintenance, args=arguments, name="easel-house", daemon=True
            )
            self._maintenance_thread.start()

    def _run_slow_checks(self) -> None:
        with self.coordinator.database.statements() as tx:
            stuck = sweep_queries.stuck_runs(tx)
            expired = sweep_queries.expired_forms(tx)
            interrupted = sweep_queries.runs_to_interrupt(tx)
            stalled = sweep_queries.stalled_runs(tx)
            documents = knowledge_documents.count_waiting(tx)
            budgets.release_orphans(tx)
            budgets.clear_deadlines(tx)
            extractions = memory_extractions.count_waiting(tx)
            needs_indexing = chunk_indexes.is_due(tx) or former_rows.is_waiting(tx)
        if documents:
            self.coordinator.dispatch.ingest()
        if extractions:
            self.coordinator.dispatch.extract()
        if needs_indexing:
            self.coordinator.dispatch.index()
        for run_id in stalled:
            log.error("run_stalled", run_id=str(run_id))
        self._advance(stuck)
        for run_id in interrupted:
            self._run_item(run_id, Lifecycle(self.coordinator).cancel_by_key)
        for run_id, _ in expired:
            self._run_item(run_id, lambda run: Lifecycle(self.coordinator).expire_form(run, FORM_EXPIRED))

    def _update_observation(self, now: datetime, before: SweeperObservation | None) -> datetime:
        """Return since when the database was observed without interruption, by the database's clock.

        After an interruption, or a jump of that clock, the observation starts anew, so that workers can renew leases
        that expired meanwhile. A new sweeper continues the observation of its predecessor if the gap between them is at
        most `harmless_gap`. Such a gap by itself expires no lease: a lease that was due for renewal when the gap began
        is renewed within one renewal interval of its end, and so before the lease expires. Leases use the database's
        clock, too: a jump forward makes the gap longer, and a jump back extends all leases by as much.
        """
        own_clock = time.monotonic()
        if self._last is not None:
            gap = own_clock - self._last[0]
            divergence = abs((now - self._last[1]).total_seconds() - gap)
            if gap > max(3 * TICK, self.harmless_gap) or divergence > SKEW:
                self._since = None
        elif before is not None and 0 <= (now - before.until).total_seconds() <= self.harmless_gap:
            self._since = (own_clock - (now - before.since).total_seconds(), before.since)
        self._last = (own_clock, now)
        if self._since is None:
            self._since = (own_clock, now)
        return self._since[1]

    def _is_unbroken(self) -> bool:
        assert self._since is not None
        return time.monotonic() - self._since[0] >= MIN_UNINTERRUPTED

    def _advance(self, runs: list[RunId]) -> None:
        for run_id in dict.fromkeys(runs):
            self._run_item(run_id, self.coordinator.advance_run)

    def _cancel(self, open_runs: Mapping[RunId, tuple[SessionId, Collection[str]]]) -> None:
        conversations = {run_id: conversation_id for run_id, (conversation_id, _) in open_runs.items()}
        names = {run_id: names for run_id, (_, names) in open_runs.items() if names}
        for run_id in self.coordinator.dispatch.bus.find_cancelled(conversations, names):
            self._run_item(run_id, Lifecycle(self.coordinator).cancel_by_key)

    def _run_item(self, run_id: RunId, do: Callable[[RunId], None]) -> None:
        self.beat()
        try:
            do(run_id)
        except Exception as error:  # noqa: BLE001 (a bug that concerns one run must not stop the sweeper for others)
            log.error("sweep_item_failed", run_id=str(run_id), error=str(error).partition("\n")[0])


@dataclass
class ReturnedProbes:
    """When the latest returned probe was sent, as this sweeper has seen it in the last ticks.

    A probe that returned just now proves that a message before it was received, but its worker may have begun a moment
    ago, with a claim that it has not written yet. So a probe counts once its return was seen PROBE_SETTLES ago.
    """

    _proven: datetime | None = None
    _seen: deque[tuple[float, datetime]] = field(default_factory=deque[tuple[float, datetime]])

    def proven(self, now: float, came_back: datetime | None) -> datetime | None:
        """Note the latest returned probe (now: monotonic); return the latest one that counts."""
        if came_back is None:
            self._seen.clear()
            self._proven = None
            return None
        if not self._seen or self._seen[-1][1] != came_back:
            self._seen.append((now, came_back))
        while self._seen and now - self._seen[0][0] >= PROBE_SETTLES:
            self._proven = self._seen.popleft()[1]
        return self._proven


def _encryption_key(configured: settings.Settings) -> EncryptionKey:
    """Return the key that opens the secrets of callbacks. Raises ExecutorError if this process cannot read it."""
    try:
        return EncryptionKey.from_secret(configured.encryption_secret())
    except OSError as error:
        log.error("encryption_key_missing", error=str(error))
        raise ExecutorError("The sweeper has no encryption key. Operators set EASEL_SECRET_KEY for it, too.") from None


def main() -> None:
    """Run a sweeper until SIGTERM or SIGINT."""
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
        Role("easel-sweeper", pool_size=4),
        counters=Metrics(**telemetry.metric_functions()),
    )
    refuse_pooler(coordinator.database)
    if configured.metrics_port is not None:
        telemetry.serve_metrics(configured.metrics_port, configured.metrics_host)
    beat = Heartbeat("the sweeper", max_interval=configured.unresponsive_after.total_seconds())
    Watchdog(beat, every=TICK, ends=lambda reason: exit_for_restart(reason, lambda: None, within=0)).start()
    LockWatchdog(configured.unresponsive_after.total_seconds() + LOCK_WATCHDOG_DELAY).start()
    log.info("sweeper_started")
    firing_beat = Heartbeat("the loop of schedules", max_interval=configured.unresponsive_after.total_seconds())
    Watchdog(firing_beat, every=TICK, ends=lambda reason: exit_for_restart(reason, lambda: None, within=0)).start()
    poll = configured.schedule_poll.total_seconds()
    firing = Firing(Lifecycle(coordinator), count=telemetry.count_schedule_slot)
    ScheduleLoop(firing, poll, firing_beat.beat).start(ending)
    harmless = configured.lease - 2 * configured.renew_every
    retention = Retention(configured.retention, coordinator.database.large.blobs) if configured.retention else None
    http = HttpClient(coordinator.callback_guard, user_agent=configured.http_user_agent, contact=configured.contact)
    sender = CallbackSender(
        coordinator.database,
        coordinator.versions,
        http,
        cache(lambda: _encryption_key(configured)),
        SendingLimits(
            timeout=configured.callback_timeout.total_seconds(),
            requests=configured.callback_requests,
            of_each=max(1, configured.callback_requests // 4),
            schedule=RetrySchedule(configured.callback_retry_delay, configured.callback_retry_for),
            public_url=configured.public_url,
        ),
        coordinator.dispatch.counters.callback,
    )
    sending = threading.Thread(target=sender.run, args=(ending,), name="easel-callbacks", daemon=True)
    sending.start()
    periods = (configured.model_calls_retention, configured.audit_retention, configured.callback_retention)
    Sweeper(coordinator, harmless.total_seconds(), beat.beat, retention, *periods).run(ending)
    sending.join(timeout=2 * ENDING)


if __name__ == "__main__":
    main()
