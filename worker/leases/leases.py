"""The leases of a worker process: renewed while their attempts work; an attempt that must not go on is stopped.

One thread renews all leases in one statement, on a database connection of its own, and stops attempts whose deadline is
over. Two more threads learn of cancelled runs (`worker/leases/cancel_listener.py`). Leases are renewed sooner while the
process has no subscription to cancel messages, and once when it has one again, because a renewal tells of a lost
message. An attempt that does not stop within the shutdown grace is reported on its behalf, and its thread is abandoned.
"""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.ids import ActivationId, LeaseId, RunId, SessionId
from scheduler.messaging.redis_bus import Bus
from store.db.database import Database
from store.runs import activations
from store.runs.activations import Deferral
from worker.leases.attempt_handle import Attempt
from worker.leases.cancel_listener import CancelKeyPoller, CancelListener, pause_after_failure
from worker.threads.computing_threads import COMPUTING_THREADS
from worker.threads.event_loop import WorkerLoop

log = structlog.get_logger()

TICK = 0.05  # seconds between two checks of deadlines and graces
RENEW_WHILE_UNSUBSCRIBED = 1.0  # seconds between renewals without a subscription: only the rows tell of a cancel then
DEFER_CLAIM_FOR = 0.25  # seconds after which a deferred claim is written, if the attempt has not reported by then
MAX_REVOKED = 10_000  # activations whose tasks were revoked before they began; the oldest are forgotten
LAST_REPORTS = 2.0  # seconds for the reports of released attempts when the process shuts down


class LeaseSettings(Protocol):
    """The settings of leases; `settings.Settings` has them all and explains them."""

    @property
    def lease(self) -> timedelta: ...
    @property
    def renew_every(self) -> timedelta: ...
    @property
    def cancel_poll(self) -> timedelta: ...
    @property
    def shutdown_grace(self) -> timedelta: ...


class LeaseKeeper:
    """Registers the attempts of a process, renews their leases, stops them.

    `cancel_run` cancels a run in the database.
    """

    def __init__(
        self,
        database: Database,
        bus: Bus,
        loop: WorkerLoop,
        settings: LeaseSettings,
        *,
        cancel_run: Callable[[RunId], None],
    ) -> None:
        self._database = database
        self._loop = loop
        self.lease = settings.lease
        self._renew_every = settings.renew_every.total_seconds()
        self._grace = settings.shutdown_grace.total_seconds()
        self._attempts: dict[LeaseId, Attempt] = {}
        self._abandoned: set[LeaseId] = set()  # lease ids of attempts whose threads have not returned
        self._revoked: dict[ActivationId, None] = {}  # of tasks that were revoked before they began
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._is_shutting_down = False
        self._claimed_runs: dict[
            RunId, SessionId
        ] = {}  # runs claimed since the last poll of cancel keys -> conversation
        self._renew_soon = False
        self._ending = threading.Event()
        self._listener = CancelListener(
            bus, self._ending, stop_run=self.stop_run, on_subscribed=self._renew_at_next_tick
        )
        self._keys = CancelKeyPoller(
            bus,
            self._ending,
            interval=settings.cancel_poll.total_seconds(),
            runs=self._active_runs,
            cancel_run=cancel_run,
            stop_run=self.stop_run,
        )
        renewing = threading.Thread(target=self._run, name="easel-leases", daemon=True)
        self._threads = [renewing, self._listener.thread, self._keys.thread]
        for thread in self._threads:
            thread.start()

    # -- attempts -----------------------------------------------------------------------------------------------
    def register(self, attempt: Attempt) -> bool:
        """Register an attempt, before its claim, so that no cancel is missed. False: the process is shutting down."""
        with self._lock:
            if self._is_shutting_down:
                return False
            self._attempts[attempt.lease_id] = attempt
            is_revoked = attempt.activation_id in self._revoked
            self._revoked.pop(attempt.activation_id, None)
        if is_revoked:
            attempt.stop("operator", self._loop)
        return True

    def start_renewing(self, attempt: Attempt, conversation_id: SessionId) -> None:
        """Note that the attempt has its lease, to be renewed from now on. Its run's cancel keys are polled at once."""
        with self._lock:
            attempt.conversation_id = conversation_id
            self._claimed_runs[attempt.run_id] = conversation_id
        self._keys.poll_soon()

    def forget(self, attempt: Attempt) -> None:
        """Remove an attempt that is over."""
        with self._changed:
            attempt.end()
            self._attempts.pop(attempt.lease_id, None)
            self._abandoned.discard(attempt.lease_id)
            self._changed.notify_all()

    def attempts(self) -> list[Attempt]:
        """Return all registered attempts."""
        with self._lock:
            return list(self._attempts.values())

    def abandoned_threads(self) -> int:
        """Return the number of abandoned threads: their attempts were reported on their behalf."""
        with self._lock:
            return len(self._abandoned)

    @property
    def is_subscribed(self) -> bool | None:
        """Whether cancel messages arrive; None: not known yet."""
        return self._listener.is_subscribed

    # -- stopping -----------------------------------------------------------------------------------------------
    def stop_run(self, run_id: RunId) -> None:
        """Stop every attempt of a run."""
        for attempt in self.attempts():
            if attempt.run_id == run_id:
                attempt.stop("user", self._loop)

    def stop_activation(self, activation_id: ActivationId) -> None:
        """Stop the attempt at an activation, for an operator; if there is none yet, when it begins."""
        with self._lock:
            found = [each for each in self._attempts.values() if each.activation_id == activation_id]
            if not found:
                self._revoked[activation_id] = None
                while len(self._revoked) > MAX_REVOKED:
                    del self._revoked[next(iter(self._revoked))]
        for attempt in found:
            attempt.stop("operator", self._loop)

    def release_all(self) -> None:
        """Stop every attempt, so that it is released to other workers, and register no more: a shutdown."""
        with self._lock:
            self._is_shutting_down = True
        for attempt in self.attempts():
            attempt.stop("shutdown", self._loop)

    @property
    def is_closed(self) -> bool:
        """Whether leases are no longer renewed."""
        return self._ending.is_set()

    def close(self) -> None:
        """Release every attempt, wait for that until the grace and `LAST_REPORTS` are over, then end the threads."""
        self.release_all()
        with self._changed:
            self._changed.wait_for(lambda: not self._attempts, timeout=self._grace + LAST_REPORTS)
        self._ending.set()
        self._keys.poll_soon()
        for thread in self._threads:
            thread.join(timeout=2)

    def check(self, passed: float) -> str | None:
        """Return why the process must exit: a thread that its attempts rely on has ended. None: nothing is wrong."""
        ended = [thread.name for thread in self._threads if not thread.is_alive()]
        return f"its thread {ended[0]} has ended" if ended and not self.is_closed else None

    # -- the thread that renews ---------------------------------------------------------------------------------
    def _run(self) -> None:
        renewed = time.monotonic()
        while not self._ending.wait(TICK):
            now = time.monotonic()
            interval = self._renew_every if self.is_subscribed else min(RENEW_WHILE_UNSUBSCRIBED, self._renew_every)
            try:
                if now - renewed >= interval or self._renew_soon:
                    renewed, self._renew_soon = now, False
                    self._renew()
                self._write_deferred_claims(now)
                self._stop_late_attempts(now)
            except Exception as error:  # noqa: BLE001 (without renewals every attempt of the process would be lost)
                pause_after_failure(error, self._ending)

    def _renew_at_next_tick(self) -> None:
        self._renew_soon = True

    def _renew(self) -> None:
        # Leases of attempts with a report as well: the report may wait until the database takes it.
        working = [a for a in self.attempts() if a.conversation_id is not None and a.deferral is None and not a.is_lost]
        if not working:
            return
        keys = sorted((a.run_id, a.activation_id, a.lease_id) for a in working)
        try:
            with self._database.transaction() as tx:
                tx.commit_asynchronously()
                renewed = activations.renew(tx, keys, self.lease)
                others = [key for key in keys if key[2] not in renewed]
                cancelled = activations.find_cancelled(tx, others) if others else set[LeaseId]()
        except SQLAlchemyError as error:
            log.warning("leases_not_renewed", leases=len(keys), error=str(error).splitlines()[0])
            return
        for attempt in working:
            if attempt.lease_id in cancelled:  # its cancel message was lost; it has its lease until it reports
                attempt.stop("user", self._loop)
            elif attempt.lease_id not in renewed and not attempt.is_reported:
                attempt.is_lost = True
                attempt.stop("lease", self._loop)

    def _write_deferred_claims(self, now: float) -> None:
        """Write the claims of attempts that began a while ago; stop those whose activation is another's, or closed."""
        late: dict[LeaseId, tuple[Attempt, Deferral]] = {}
        for attempt in self.attempts():
            deferral = attempt.deferral
            if deferral is not None and now - deferral.began >= DEFER_CLAIM_FOR and not attempt.is_lost:
                late[attempt.lease_id] = attempt, deferral
        if not late:
            return
        keys = sorted((a.run_id, a.activation_id, a.lease_id, deferral.age) for a, deferral in late.values())
        worker = next(deferral.worker for _, deferral in late.values())
        try:
            with self._database.transaction() as tx:
                tx.commit_asynchronously()
                claimed, lost = activations.claim_deferred(tx, keys, lease=self.lease, worker=worker)
        except SQLAlchemyError as error:
            log.warning("leases_not_renewed", leases=len(keys), error=str(error).splitlines()[0])
            return
        for lease_id, (attempt, _) in late.items():
            if lease_id in claimed:
                attempt.deferral = None
            elif lease_id in lost and not attempt.is_reported:
                attempt.is_lost = True
                attempt.stop("lease", self._loop)

    def _stop_late_attempts(self, now: float) -> None:
        for attempt in self.attempts():
            if attempt.deadline is not None and now >= attempt.deadline:
                attempt.stop("deadline", self._loop)
            is_late = attempt.stopped is not None and now - attempt.stopped_at >= self._grace
            if is_late and attempt.report_on_behalf and not attempt.is_reported and not attempt.is_abandoned:
                threading.Thread(target=self._abandon, args=(attempt,), daemon=True).start()
                attempt.is_abandoned = True  # after the start: if no thread can be started, the next tick tries again

    def _abandon(self, attempt: Attempt) -> None:
        """Report on behalf of an attempt that does not stop. On a thread of its own, because renewals must go on."""
        log.warning("attempt_abandoned", run_id=str(attempt.run_id), id=str(attempt.activation_id))
        attempt.cancel_again(self._loop)
        try:
            abandon = attempt.report_on_behalf
            if abandon is not None:
                abandon()
        finally:
            with self._changed:
                self._attempts.pop(attempt.lease_id, None)
                if not attempt.is_over:
                    self._abandoned.add(attempt.lease_id)
                    COMPUTING_THREADS.thread_abandoned(attempt.thread)
                self._changed.notify_all()

    def _active_runs(self) -> dict[RunId, SessionId]:
        """Return run -> conversation of the runs that this process works for, or has claimed from since the last poll.

        So a run between two nodes is polled as well.
        """
        with self._lock:
            runs, self._claimed_runs = self._claimed_runs, {}
            for attempt in self._attempts.values():
                if attempt.conversation_id is not None and attempt.stopped is None:
                    runs[attempt.run_id] = attempt.conversation_id
            return runs
