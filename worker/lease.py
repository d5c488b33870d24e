"""Leases: renewed while the work goes on; on cancel, loss or deadline the attempt is stopped.

One thread renews all leases of a process in one statement, on a connection of its own, and looks at cancel keys; a
second one listens for calls on the bus. What does not let go within its grace is reported as stopped in its name, and
its thread is left behind.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import redis
import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.errors import AttemptStopped, ExecutorError
from scheduler.bus import Bus
from store import activations
from store.database import Database
from worker.loop import Loop

log = structlog.get_logger()

TICK = 0.05  # seconds between looks at deadlines and graces
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
    abandon: Callable[[], None] | None = None  # report in its name
    _task: "asyncio.Task[object] | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def runs_as(self, task: "asyncio.Task[object]") -> None:
        """The coroutine that does the work; called on the loop. A stop that came earlier takes effect now."""
        self._task = task
        if self.stopped is not None:
            task.cancel()

    def stop(self, reason: str, loop: Loop) -> None:
        """Stop the work; the first reason counts."""
        with self._lock:
            if self.stopped is not None or self.is_reported:
                return
            self.stopped = AttemptStopped(reason)
            self.stopped_at = time.monotonic()
        if self._task is not None:
            loop.call(self._task.cancel)

    def claim_report(self) -> bool:
        """Take the right to report; True once."""
        with self._lock:
            first, self.is_reported = not self.is_reported, True
            return first


class Leases:
    """The attempts of a process and what keeps them."""

    def __init__(
        self,
        database: Database,
        bus: Bus,
        loop: Loop,
        *,
        lease: timedelta,
        renew_every: timedelta,
        cancel_poll: timedelta,
        grace: timedelta,
        on_key: Callable[[UUID], None],
    ) -> None:
        self._database = database
        self._bus = bus
        self._loop = loop
        self.lease = lease
        self._renew_every = renew_every.total_seconds()
        self._cancel_poll = cancel_poll.total_seconds()
        self._grace = grace.total_seconds()
        self._on_key = on_key
        self._attempts: dict[UUID, Attempt] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._is_going_down = False
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

    def forget(self, attempt: Attempt) -> None:
        """The attempt is over."""
        with self._changed:
            self._attempts.pop(attempt.lease_id, None)
            self._changed.notify_all()

    def held(self) -> list[Attempt]:
        """All attempts that are registered."""
        with self._lock:
            return list(self._attempts.values())

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
        for thread in self._threads:
            thread.join(timeout=2)

    def _keep(self) -> None:
        renewed = time.monotonic()
        while not self._ending.wait(TICK):
            now = time.monotonic()
            if now - renewed >= self._renew_every:
                renewed = now
                self._renew()
            for attempt in self.held():
                if attempt.deadline is not None and now >= attempt.deadline:
                    attempt.stop("deadline", self._loop)
                overdue = attempt.stopped is not None and now - attempt.stopped_at >= self._grace
                if overdue and attempt.abandon and not attempt.is_reported and not attempt.is_left_behind:
                    attempt.is_left_behind = True
                    threading.Thread(target=self._leave_behind, args=(attempt,), daemon=True).start()

    def _leave_behind(self, attempt: Attempt) -> None:
        """Report in the name of an attempt that does not let go; on a thread of its own, since renewals must go on."""
        log.warning("attempt_left_behind", run_id=str(attempt.run_id), id=str(attempt.activation_id))
        try:
            if attempt.abandon is not None:
                attempt.abandon()
        finally:
            self.forget(attempt)

    def _renew(self) -> None:
        working = [a for a in self.held() if a.conversation_id is not None and not a.is_reported and not a.is_lost]
        if not working:
            return
        keys = sorted((a.run_id, a.activation_id, a.lease_id) for a in working)
        try:
            with self._database.transaction() as tx:
                tx.commit_without_waiting()
                kept = activations.renew(tx, keys, self.lease)
        except SQLAlchemyError as error:
            log.warning("leases_not_renewed", leases=len(keys), error=str(error).splitlines()[0])
            return
        for attempt in working:
            if attempt.lease_id not in kept and not attempt.is_reported:
                attempt.is_lost = True
                attempt.stop("lease", self._loop)

    def _watch_keys(self) -> None:
        while not self._ending.wait(self._cancel_poll):
            runs = {a.run_id: a.conversation_id for a in self.held() if a.conversation_id and a.stopped is None}
            for run_id in self._bus.cancelled(runs):
                try:
                    self._on_key(run_id)  # first the row, then the work: else its report would fail the run
                    self.stop_run(run_id)
                except (SQLAlchemyError, ExecutorError) as error:
                    log.warning("cancel_not_recorded", run_id=str(run_id), error=str(error).splitlines()[0])

    def _listen(self) -> None:
        while not self._ending.is_set():
            try:
                for run_id in self._bus.calls_to_stop():
                    if run_id is not None:
                        self.stop_run(run_id)
                    if self._ending.is_set():
                        return
            except redis.RedisError as error:
                log.warning("calls_not_heard", error=str(error))
                self._ending.wait(1)
