"""A server that does not answer is left alone for a moment, so that not everybody waits for it anew.

Threads of a process share one Silence for each server. While it lasts, one caller at a time finds out whether the
server is back, and the others go on without it: nothing that is sent here is a fact.
"""

import threading
import time

ANSWERS_WITHIN = 0.5  # seconds; a server that is there answers in a few milliseconds
ASKED_AGAIN_AFTER = 1.0  # seconds


class CircuitBreaker:
    """Whether a server has kept silent of late."""

    def __init__(self, lasts: float = ASKED_AGAIN_AFTER) -> None:
        self._lasts = lasts
        self._lock = threading.Lock()
        self._until: float | None = None

    def holds(self) -> bool:
        """Whether to go on without asking. After a while one caller is told to ask again; what he finds counts."""
        with self._lock:
            now = time.monotonic()
            if self._until is None:
                return False
            if now < self._until:
                return True
            self._until = now + self._lasts
            return False

    def begins(self) -> None:
        """The server did not answer."""
        with self._lock:
            self._until = time.monotonic() + self._lasts

    def ends(self) -> None:
        """The server has answered."""
        with self._lock:
            self._until = None
