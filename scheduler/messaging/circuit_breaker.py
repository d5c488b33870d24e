"""Circuit breaker: after a server did not answer, callers skip it for a moment and do not wait for it.

Threads of a process share one CircuitBreaker for each server. While it is open, one caller per second tries the server,
and all others continue without it: nothing that is sent there is a fact.
"""

import threading
import time

ANSWER_TIMEOUT = 0.5  # seconds; a reachable server answers in a few milliseconds
RETRY_AFTER = 1.0  # seconds until one caller tries the server again


class CircuitBreaker:
    """State of one server: closed (it answers) or open (it did not answer recently)."""

    def __init__(self, lasts: float = RETRY_AFTER) -> None:
        self._lasts = lasts
        self._lock = threading.Lock()
        self._until: float | None = None

    def is_open(self) -> bool:
        """Return whether to skip the server. Every `lasts` seconds one caller gets False and tries the server."""
        with self._lock:
            now = time.monotonic()
            if self._until is None:
                return False
            if now < self._until:
                return True
            self._until = now + self._lasts
            return False

    def record_failure(self) -> None:
        """Open the breaker: the server did not answer."""
        with self._lock:
            self._until = time.monotonic() + self._lasts

    def record_success(self) -> None:
        """Close the breaker: the server has answered."""
        with self._lock:
            self._until = None
