"""Leases: renewed while the work goes on; on cancel, loss or deadline the attempt is stopped.

One thread renews all leases of a process in one statement, on a connection of its own; a second one listens for calls
on the bus, a third one looks at cancel keys. A call is a matter of milliseconds; whoever misses it finds at the next
renewal that the lease is not his any more. While no calls are heard, and once they are heard again, leases are renewed
sooner. What does not let go within its grace is reported as stopped in its name, and its thread is left behind.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import redis
import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.errors import AttemptStopped, ExecutorError
from scheduler.messaging.redis_bus import Bus
from store.db.database import Database
from store.runs import activations
from worker.event_loop import Loop
from worker.fastpath.admission import ADMISSION

log = structlog.get_logger()

TICK = 0.05  # seconds between looks at deadlines and graces
LOOKS_APART = 0.05  # seconds between looks at cancel keys, whatever is claimed meanwhile
RENEW_WHILE_UNSUBSCRIBED = (
    1.0  # seconds between renewals while no calls to stop are heard: the rows are then all that tells of a cancel
)
KEYS_AT_ONCE = 4  # runs that are cancelled side by side when many keys are found; each takes a few round trips
AFTER_FAILURE = 1.0  # seconds until a thread goes on that has met what nobody expected
LAST_REPORTS = 2.0  # seconds for the reports of attempts that were given back when the process goes down


@dataclass(eq=False)
class Attempt:
    """One try at an activation, as the keeper of leases sees it. Registered before it is claimed."""

    run_id: UUID
    activation_id: UUID
    lease_id: UUID
    conversation_id: UUID | None = None
    deadline: float | None = None  # monotonic
    stopped: AttemptStopped | None = None
    stopped_at: float = 0.0
    is_reported: bool = False
    is_lost: bool = False
    is_left_behind: bool = False
    is_over: bool = False
    thread: int = field(default_factory=threading.get_ident)  # that carries it out
    abandon: Callable[[], None] | None = None  # report in its name
    postponed: tuple[float, str] | None = None  # until when (monotonic) it gave its place up, and what it waits for
    _task: "asyncio.Task[object] | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def runs_as(self, task: "asyncio.Task[object]") -> None:
        """The coroutine that does the work; called on the loop, by itself. One that was stopped does not begin."""
        self._task = task
        self.must_go_on()

    def must_go_on(self) -> None:
        """Raises CancelledError for an attempt that was stopped before it began to work."""
        if self.stopped is not None:
            raise asyncio.CancelledError

    def is_stopped(self) -> bool:
        """Whether it was told to stop, for whatever reason."""
        return self.stopped is not None

    def insist(self, loop: Loop) -> None:
        """Stop the work, once more if it has swallowed that it was stopped."""
        task = self._task
        if task is not None:
            loop.call(task.cancel)

    def stop(self, reason: str, loop: Loop) -> None:
        """Stop the work; the first reason counts."""
        with self._lock:
            if self.stopped is not None or self.is_reported:
                return
            self.stopped = AttemptStopped(reason)
            self.stopped_at = time.monotonic()
        self.insist(loop)

    def end(self) -> None:
        """The work is over, and nothing leads to it from here any more: it goes without a search for garbage."""
        self.is_over, self.abandon, self._task = True, None, None

    def claim_report(self) -> bool:
        """Take the right to report; True once."""
        with self._lock:
            first, self.is_reported = not self.is_reported, True
            return first


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
    """The attempts of a process and what keeps them."""

    def __init__(
        self,
        database: Database,
        bus: Bus,
        loop: Loop,
        settings: LeaseSettings,
        *,
        on_key: Callable[[UUID], None],
    ) -> None:
        self._database = database
        self._bus = bus
        self._loop = loop
        self.lease = settings.lease
        self._renew_every = settings.renew_every.total_seconds()
        self._cancel_poll = settings.cancel_poll.total_seconds()
        self._grace = settings.shutdown_grace.total_seconds()
        self._on_key = on_key
        self._attempts: dict[UUID, Attempt] = {}
        self._left_behind: set[UUID] = set()  # lease ids of attempts whose threads have not come back
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._is_going_down = False
        self._to_look_at: dict[UUID, UUID] = {}  # runs claimed from since the last look at keys -> conversation
        self._look = threading.Event()
        self.hears: bool | None = None  # whether calls to stop arrive; None: not known yet
        self._renew_soon = False
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep, name="easel-leases", daemon=True),
            threading.Thread(target=self._listen, name="easel-calls", daemon=True),
            threading.Thread(target=self._watch_keys, name="easel-keys", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def register(self, attempt: Attempt) -> bool:
        """Watch an attempt. Before its claim, so that no call to stop slips between. False: the process goes down."""
        with self._lock:
            if self._is_going_down:
                return False
            self._attempts[attempt.lease_id] = attempt
            return True

    def claimed(self, attempt: Attempt, conversation_id: UUID) -> None:
        """The attempt has its lease, which is to be kept. Whether a key has cancelled its run is looked up at once."""
        with self._lock:
            attempt.conversation_id = conversation_id
            self._to_look_at[attempt.run_id] = conversation_id
        self._look.set()

    def forget(self, attempt: Attempt) -> None:
        """The attempt is over."""
        with self._changed:
            attempt.end()
            self._attempts.pop(attempt.lease_id, None)
            self._left_behind.discard(attempt.lease_id)
            self._changed.notify_all()

    def held(self) -> list[Attempt]:
        """All attempts that are registered."""
        with self._lock:
            return list(self._attempts.values())

    def left_behind(self) -> int:
        """How many threads are still with attempts that were reported in their name."""
        with self._lock:
            return len(self._left_behind)

    def stop_run(self, run_id: UUID) -> None:
        """Stop every attempt of a run."""
        for attempt in self.held():
            if attempt.run_id == run_id:
                attempt.stop("user", self._loop)

    def release_all(self) -> None:
        """The process goes down: stop every attempt, so that it is given back, and take no more."""
        with self._lock:
            self._is_going_down = True
        for attempt in self.held():
            attempt.stop("shutdown", self._loop)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is renewed any more."""
        return self._ending.is_set()

    def close(self) -> None:
        """Wait until every attempt has been given back, within the grace and a little; then end the threads."""
        self.release_all()
        with self._changed:
            self._changed.wait_for(lambda: not self._attempts, timeout=self._grace + LAST_REPORTS)
        self._ending.set()
        self._look.set()
        for thread in self._threads:
            thread.join(timeout=2)

    def look(self, passed: float) -> str | None:
        """Why the process should end: one of the threads that its attempts rely on is there no more."""
        ended = [thread.name for thread in self._threads if not thread.is_alive()]
        return f"its thread {ended[0]} has ended" if ended and not self.is_closed else None

    def _keep(self) -> None:
        renewed = time.monotonic()
        while not self._ending.wait(TICK):
            now = time.monotonic()
            pause = self._renew_every if self.hears else min(RENEW_WHILE_UNSUBSCRIBED, self._renew_every)
            try:
                if now - renewed >= pause or self._renew_soon:
                    renewed, self._renew_soon = now, False
                    self._renew()
                self._stop_what_is_late(now)
            except Exception as error:  # noqa: BLE001 (without renewals every attempt of the process would be lost)
                self._has_failed(error)

    def _stop_what_is_late(self, now: float) -> None:
        for attempt in self.held():
            if attempt.deadline is not None and now >= attempt.deadline:
                attempt.stop("deadline", self._loop)
            overdue = attempt.stopped is not None and now - attempt.stopped_at >= self._grace
            if overdue and attempt.abandon and not attempt.is_reported and not attempt.is_left_behind:
                threading.Thread(target=self._leave_behind, args=(attempt,), daemon=True).start()
                attempt.is_left_behind = True  # where no thread is to be had, it is tried again

    def _has_failed(self, error: Exception) -> None:
        """Tell of what nobody expected, and wait a moment, lest it fills the log."""
        thread = threading.current_thread().name
        log.error("lease_thread_failed", thread=thread, error=f"{type(error).__name__}: {error}".partition("\n")[0])
        self._ending.wait(AFTER_FAILURE)

    def _leave_behind(self, attempt: Attempt) -> None:
        """Report in the name of an attempt that does not let go; on a thread of its own, since renewals must go on."""
        log.warning("attempt_abandoned", run_id=str(attempt.run_id), id=str(attempt.activation_id))
        attempt.insist(self._loop)
        try:
            abandon = attempt.abandon
            if abandon is not None:
                abandon()
        finally:
            with self._changed:
                self._attempts.pop(attempt.lease_id, None)
                if not attempt.is_over:
                    self._left_behind.add(attempt.lease_id)
                    ADMISSION.was_left_behind(attempt.thread)
                self._changed.notify_all()

    def _renew(self) -> None:
        # those that have a report, too: it may have to wait until the database takes it
        working = [a for a in self.held() if a.conversation_id is not None and not a.is_lost]
        if not working:
            return
        keys = sorted((a.run_id, a.activation_id, a.lease_id) for a in working)
        try:
            with self._database.transaction() as tx:
                tx.commit_without_waiting()
                kept = activations.renew(tx, keys, self.lease)
                gone = [key for key in keys if key[2] not in kept]
                called_off = activations.find_cancelled(tx, gone) if gone else set[UUID]()
        except SQLAlchemyError as error:
            log.warning("leases_not_renewed", leases=len(keys), error=str(error).splitlines()[0])
            return
        for attempt in working:
            if attempt.lease_id in called_off:  # a cancel whose call was not heard; the lease is his until he reports
                attempt.stop("user", self._loop)
            elif attempt.lease_id not in kept and not attempt.is_reported:
                attempt.is_lost = True
                attempt.stop("lease", self._loop)

    def _watch_keys(self) -> None:
        with ThreadPoolExecutor(KEYS_AT_ONCE, thread_name_prefix="easel-cancels") as cancels:
            while not self._ending.is_set():
                self._look.wait(self._cancel_poll)
                self._look.clear()
                try:
                    found = self._bus.cancelled(self._runs_at_hand())
                    list(cancels.map(self._cancel, found))
                except Exception as error:  # noqa: BLE001 (keys that are set later are still to be seen)
                    self._has_failed(error)
                self._ending.wait(LOOKS_APART)

    def _cancel(self, run_id: UUID) -> None:
        try:
            self._on_key(run_id)  # first the row, then the work: else its report would fail the run
            self.stop_run(run_id)
        except (SQLAlchemyError, ExecutorError) as error:
            log.warning("cancel_not_recorded", run_id=str(run_id), error=str(error).splitlines()[0])

    def _runs_at_hand(self) -> dict[UUID, UUID]:
        """Runs that this process works for, or has since the last look, so that one between two nodes is seen too."""
        with self._lock:
            known, self._to_look_at = self._to_look_at, {}
            for attempt in self._attempts.values():
                if attempt.conversation_id is not None and attempt.stopped is None:
                    known[attempt.run_id] = attempt.conversation_id
            return known

    def _listen(self) -> None:
        while not self._ending.is_set():
            try:
                for run_id in self._bus.calls_to_stop():
                    if not self.hears:
                        self.hears = self._renew_soon = True  # calls may have been lost until now
                    if run_id is not None:
                        self.stop_run(run_id)
                    if self._ending.is_set():
                        return
            except redis.RedisError as error:
                if self.hears is not False:
                    log.warning("cancel_subscription_lost", error=str(error))
                self.hears = False
                self._ending.wait(0.5)
            except Exception as error:  # noqa: BLE001 (calls that come later are still to be heard)
                self.hears = False
                self._has_failed(error)
