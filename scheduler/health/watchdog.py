"""Signs of life: a process that is there and does nothing ends itself, and its supervisor starts another.

A `Watch` looks at one sign from a thread of its own. It counts only time that it has seen pass itself: a process that
was stopped for an hour, or whose machine was asleep, has not been silent for an hour.
"""

import faulthandler
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

EXIT_RESTART = os.EX_TEMPFAIL
"""Exit code 75 of a process that ends because it has shown no sign of life: start it again."""

LONGEST_SEEN = 2.0  # looks; what passed between two of them beyond that was not seen


LOCK_HELD = 1
"""Exit code of a process that ends because one call in C has kept the interpreter's lock for too long."""

BEHIND_WATCHES = 5.0  # seconds; a `Watch` needs the lock, and ends a process with less harm, so it goes first
STDERR = 2  # the descriptor; Celery puts objects in the place of `sys.stderr`


class HealthCheck(Protocol):
    """Something that a process shows as long as it gets on."""

    def look(self, passed: float) -> str | None:
        """Look again after so many seconds; why the process should end, or None."""
        ...


class Watchdog:
    """Looks at a sign every so many seconds, and says so once if it fails."""

    def __init__(self, sign: HealthCheck, *, every: float, ends: Callable[[str], None]) -> None:
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
                log.error("watchdog_failed", error=f"{type(error).__name__}: {error}")
                continue
            if reason is not None and not self._ending.is_set():
                self._ends(reason)
                return


class LockWatchdog:
    """Ends the process when no thread gets the interpreter's lock any more.

    A single call in C may keep it: a regular expression that backtracks, a conversion of a huge number. No thread of
    Python can see that, so a timer of faulthandler, which needs no lock, is set anew every second. When it goes off, it
    writes the stacks of all threads to standard error and ends the process with code 1. Leases run out then, as after
    any other death. The timer goes by the wall clock: a process that was stopped (SIGSTOP) for longer ends when it goes
    on.
    """

    def __init__(self, after: float, *, every: float = 1.0) -> None:
        self._after = after
        self._every = every
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch; also after a fork. A process has one such timer, so only its main program starts one."""
        self._ending = threading.Event()
        self._set()
        self._thread = threading.Thread(target=self._run, name="easel-lock", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(self._after)
        faulthandler.cancel_dump_traceback_later()

    def _run(self) -> None:
        while not self._ending.wait(self._every):
            self._set()

    def _set(self) -> None:
        faulthandler.dump_traceback_later(self._after, exit=True, file=STDERR)


@dataclass
class Heartbeat:
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
class BrokerHealthCheck:
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


def exit_for_restart(reason: str, give_back: Callable[[], None], within: float) -> None:
    """End this process at once, after it has given back its work or `within` seconds.

    Nothing else is waited for: whatever has brought the process to a standstill would do the same to its end.
    """
    log.error("process_exiting_unresponsive", reason=reason)
    giving = threading.Thread(target=give_back, name="easel-gives-up", daemon=True)
    giving.start()
    giving.join(within)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_RESTART)
