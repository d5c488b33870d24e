"""Signs of life: a process that is there and does nothing ends itself, and its supervisor starts another.

A `Watch` looks at one sign from a thread of its own. It counts only time that it has seen pass itself: a process that
was stopped for an hour, or whose machine was asleep, has not been silent for an hour.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

log = structlog.get_logger()

GIVES_UP = os.EX_TEMPFAIL
"""Exit code 75 of a process that ends because it has shown no sign of life: start it again."""

LONGEST_SEEN = 2.0  # looks; what passed between two of them beyond that was not seen


class Sign(Protocol):
    """Something that a process shows as long as it gets on."""

    def look(self, passed: float) -> str | None:
        """Look again after so many seconds; why the process should end, or None."""
        ...


class Watch:
    """Looks at a sign every so many seconds, and says so once if it fails."""

    def __init__(self, sign: Sign, *, every: float, ends: Callable[[str], None]) -> None:
        self._sign = sign
        self._every = every
        self._ends = ends
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="easel-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ending.set()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._ending.wait(self._every):
            now = time.monotonic()
            seen, last = min(now - last, LONGEST_SEEN * self._every), now
            try:
                reason = self._sign.look(seen)
            except Exception as error:  # noqa: BLE001 (a watch that has ended would never tell)
                log.error("watch_failed", error=f"{type(error).__name__}: {error}")
                continue
            if reason is not None and not self._ending.is_set():
                self._ends(reason)
                return


@dataclass
class Beat:
    """The sign of a loop that calls `beat` wherever it gets on."""

    what: str
    at_most: float  # seconds between two beats
    _silent: float = 0.0

    def beat(self) -> None:
        """It gets on."""
        self._silent = 0.0

    def look(self, passed: float) -> str | None:
        """Why the process should end: nothing has moved for too long."""
        self._silent += passed
        return f"{self.what} has not moved for {self._silent:.0f} s" if self._silent > self.at_most else None


@dataclass
class Ear:
    """The sign of a process that receives: what it sends to itself through the broker comes back.

    A broker that takes nothing is away, which is no deafness; a process that is full rightly receives nothing.
    """

    send: Callable[[], bool]  # False: the broker is away
    is_full: Callable[[], bool]
    deaf_after: float  # seconds for which something was sent and could have been received
    _unheard: float = 0.0
    _is_expecting: bool = False
    _has_heard: threading.Event = field(default_factory=threading.Event)

    def hear(self) -> None:
        """Something has come back."""
        self._has_heard.set()

    def look(self, passed: float) -> str | None:
        """Why the process should end; else send the next one."""
        if self.is_full() or self._has_heard.is_set() or not self._is_expecting:
            self._unheard = 0.0
        else:
            self._unheard += passed
        self._has_heard.clear()
        if self._unheard > self.deaf_after:
            return f"nothing that was sent to it has come for {self._unheard:.0f} s, and the broker takes messages"
        self._is_expecting = False  # also if sending raises: what was not sent cannot come
        self._is_expecting = not self.is_full() and self.send()
        return None


def give_up(reason: str, give_back: Callable[[], None], within: float) -> None:
    """End this process at once, after it has given back its work or `within` seconds.

    Nothing else is waited for: whatever has brought the process to a standstill would do the same to its end.
    """
    log.error("process_gives_up", reason=reason)
    giving = threading.Thread(target=give_back, name="easel-gives-up", daemon=True)
    giving.start()
    giving.join(within)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(GIVES_UP)
