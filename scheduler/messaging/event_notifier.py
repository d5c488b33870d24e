"""Event notifications: sent by a thread of their own, those of many runs in one batch.

An advance does not wait for Redis. A notification carries the number of the last stored event, so the last one of a run
replaces earlier ones: the first is sent at once, and those of the next few milliseconds are merged.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson
import structlog

from canvas.ids import RunId

log = structlog.get_logger()

BATCH_INTERVAL = 0.005  # seconds between two batches; the notification of a run's end does not wait for it
CLOSE_TIMEOUT = 1.0  # seconds that a process has at shutdown to send what is left


@dataclass(frozen=True, slots=True)
class EventNotification:
    """The message to readers of a run that the events `first` to `number` are stored now, and so are those before."""

    run_id: RunId
    first: int
    number: int
    is_over: bool = False

    @property
    def payload(self) -> bytes:
        """The encoded message to the event streams of the API."""
        return orjson.dumps({"n": self.number, "over": self.is_over})

    @property
    def public_payload(self) -> bytes:
        """The encoded message to subscribers of the run's events, docs/events.md."""
        return orjson.dumps({"run_id": self.run_id.hex, "stored": self.number, "over": self.is_over})

    def merge(self, earlier: "EventNotification | None") -> "EventNotification":
        """Return both notifications merged into one."""
        if earlier is None:
            return self
        return EventNotification(
            self.run_id,
            min(self.first, earlier.first),
            max(self.number, earlier.number),
            self.is_over or earlier.is_over,
        )


class EventNotifier:
    """Pending notifications, by run. One thread calls `send` with all of them."""

    def __init__(
        self, send: Callable[[Sequence[EventNotification]], object], thread_name: str = "easel-notifications"
    ) -> None:
        self._send = send
        self._thread_name = thread_name
        self._pending: dict[RunId, EventNotification] = {}
        self._lock = threading.Lock()
        self._has_pending = threading.Event()
        self._hurry = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, notification: EventNotification) -> None:
        """Add a notification, which is sent soon."""
        with self._lock:
            self._pending[notification.run_id] = notification.merge(self._pending.get(notification.run_id))
            if self._thread is None and not self._is_closed:  # at the first notification, so after any fork
                self._thread = threading.Thread(target=self._work, name=self._thread_name, daemon=True)
                self._thread.start()
        if notification.is_over:
            self._hurry.set()
        if not self._has_pending.is_set():
            self._has_pending.set()

    def close(self) -> None:
        """Send what is left, and end."""
        with self._lock:
            self._is_closed = True
        self._hurry.set()
        self._has_pending.set()
        if self._thread is not None:
            self._thread.join(timeout=CLOSE_TIMEOUT)

    def _work(self) -> None:
        while True:
            self._has_pending.wait()
            began = time.monotonic()
            self._has_pending.clear()
            self._hurry.clear()
            with self._lock:
                notifications, self._pending = list(self._pending.values()), {}
                ends = self._is_closed
            if notifications:
                self._send_logged(notifications)
            if ends:
                return
            self._hurry.wait(BATCH_INTERVAL - (time.monotonic() - began))

    def _send_logged(self, notifications: Sequence[EventNotification]) -> None:
        try:
            self._send(notifications)
        except Exception:  # the only sending thread must not end
            log.exception("event_notifications_not_sent", runs=len(notifications))
