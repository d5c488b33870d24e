"""How a worker process learns of cancelled runs: by cancel messages over Redis pub/sub, and by cancel keys in Redis.

A message arrives within milliseconds and may be lost. Then the next renewal of the lease tells the same from the
activation's row (`worker/leases/leases.py`). Keys are set by other programs, as RAGFlow does, and are polled.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import redis
import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas.errors import ExecutorError
from canvas.ids import RunId, SessionId
from scheduler.messaging.redis_bus import Bus

log = structlog.get_logger()

MIN_POLL_INTERVAL = 0.05  # seconds between two polls of cancel keys, however much is claimed meanwhile
PARALLEL_CANCELS = 4  # runs cancelled at the same time when many keys are found; each takes a few round trips
RECONNECT_DELAY = 0.5  # seconds before a lost subscription is made anew
FAILURE_PAUSE = 1.0  # seconds that a thread waits after an unexpected error, so that it does not fill the log


class CancelListener:
    """The subscription to cancel messages, on a thread of its own. `stop_run` stops the attempts of a run."""

    def __init__(
        self, bus: Bus, ending: threading.Event, *, stop_run: Callable[[RunId], None], on_subscribed: Callable[[], None]
    ) -> None:
        self._bus = bus
        self._ending = ending
        self._stop_run = stop_run
        self._on_subscribed = on_subscribed
        self.is_subscribed: bool | None = None  # None: not known yet
        self.thread = threading.Thread(target=self._listen, name="easel-calls", daemon=True)

    def _listen(self) -> None:
        while not self._ending.is_set():
            try:
                for run_id in self._bus.cancel_requests():
                    if not self.is_subscribed:
                        self.is_subscribed = True
                        self._on_subscribed()  # messages may have been lost until now
                    if run_id is not None:
                        self._stop_run(run_id)
                    if self._ending.is_set():
                        return
            except redis.RedisError as error:
                if self.is_subscribed is not False:
                    log.warning("cancel_subscription_lost", error=str(error))
                self.is_subscribed = False
                self._ending.wait(RECONNECT_DELAY)
            except Exception as error:  # noqa: BLE001 (the subscription must survive whatever one message causes)
                self.is_subscribed = False
                pause_after_failure(error, self._ending)


class CancelKeyPoller:
    """The poll of cancel keys, on a thread of its own.

    `runs` returns the runs to look at, with their conversations; `cancel_run` cancels a run in the database.
    """

    def __init__(
        self,
        bus: Bus,
        ending: threading.Event,
        *,
        interval: float,
        runs: Callable[[], Mapping[RunId, SessionId]],
        cancel_run: Callable[[RunId], None],
        stop_run: Callable[[RunId], None],
    ) -> None:
        self._bus = bus
        self._ending = ending
        self._interval = interval  # seconds
        self._runs = runs
        self._cancel_run = cancel_run
        self._stop_run = stop_run
        self._poll_now = threading.Event()
        self.thread = threading.Thread(target=self._poll, name="easel-keys", daemon=True)

    def poll_soon(self) -> None:
        """Do not wait for the next interval: a run was claimed, or the process ends."""
        self._poll_now.set()

    def _poll(self) -> None:
        with ThreadPoolExecutor(PARALLEL_CANCELS, thread_name_prefix="easel-cancels") as cancels:
            while not self._ending.is_set():
                self._poll_now.wait(self._interval)
                self._poll_now.clear()
                try:
                    found = self._bus.find_cancelled(self._runs())
                    list(cancels.map(self._cancel, found))
                except Exception as error:  # noqa: BLE001 (keys that are set later must still be found)
                    pause_after_failure(error, self._ending)
                self._ending.wait(MIN_POLL_INTERVAL)

    def _cancel(self, run_id: RunId) -> None:
        try:
            self._cancel_run(run_id)  # the row first, then the attempts: otherwise their reports would fail the run
            self._stop_run(run_id)
        except (SQLAlchemyError, ExecutorError) as error:
            log.warning("cancel_not_recorded", run_id=str(run_id), error=str(error).splitlines()[0])


def pause_after_failure(error: Exception, ending: threading.Event) -> None:
    """Log an unexpected error of a lease thread, and wait a moment, or until the process ends."""
    thread = threading.current_thread().name
    log.error("lease_thread_failed", thread=thread, error=f"{type(error).__name__}: {error}".partition("\n")[0])
    ending.wait(FAILURE_PAUSE)
