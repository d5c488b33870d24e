"""Watchdogs: an unresponsive process ends itself, and its supervisor starts another.

A `Watchdog` runs one health check from a thread of its own. It counts only time during which it ran itself: a process
that was stopped for an hour, or whose machine was asleep, has not been unresponsive for an hour.
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
"""Exit code 75 of a process that ends because it was unresponsive: start it again."""

MAX_COUNTED_INTERVALS = 2.0  # check intervals; time beyond that between two checks does not count

LOCK_HELD = 1
"""Exit code of a process that ends because one call in C has held the interpreter's lock for too long."""

# seconds more than a `Watchdog` waits, which needs the lock and ends a process with less harm
LOCK_WATCHDOG_DELAY = 5.0
STDERR = 2  # the descriptor; Celery replaces `sys.stderr`


class HealthCheck(Protocol):
    """A check whether a process makes progress."""

    def check(self, passed: float) -> str | None:
        """Check after `passed` seconds; return the reason why the process should end, or None."""
        ...


class Watchdog:
    """Runs a health check every `every` seconds, and calls `ends` once if it fails."""

    def __init__(self, sign: HealthCheck, *, every: float, ends: Callable[[str], None]) -> None:
        self._sign = sign
        self._every = every
        self._ends = ends
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="easel-watch", daemon=True)

    def start(self) -> None:
        """Start the checks."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the checks."""
        self._ending.set()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._ending.wait(self._every):
            now = time.monotonic()
            seen, last = min(now - last, MAX_COUNTED_INTERVALS * self._every), now
            try:
                reason = self._sign.check(seen)
            except Exception as error:  # noqa: BLE001 (the watchdog must not end)
                log.error("watchdog_failed", error=f"{type(error).__name__}: {error}")
                continue
            if reason is not None and not self._ending.is_set():
                self._ends(reason)
                return


class LockWatchdog:
    """Ends the process when no thread gets the interpreter's lock any more.

    A single call in C may hold it: a regular expression that backtracks, a conversion of a huge number. No thread of
    Python can detect that, so a timer of faulthandler, which needs no lock, is reset every second. When it expires, it
    writes the stacks of all threads to standard error and ends the process with code 1. Its leases then expire, as
    after any other crash. The timer uses the wall clock: a process that was stopped (SIGSTOP) for longer ends when it
    continues.
    """

    def __init__(self, after: float, *, every: float = 1.0) -> None:
        self._after = after
        self._every = every
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the timer; also after a fork. A process has one such timer, so only its main program starts it."""
        self._ending = threading.Event()
        self._set()
        self._thread = threading.Thread(target=self._run, name="easel-lock", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the timer."""
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
    """The health check of a loop that calls `beat` whenever it makes progress."""

    what: str
    max_interval: float  # seconds between two beats
    _idle_seconds: float = 0.0

    def beat(self) -> None:
        """Record progress."""
        self._idle_seconds = 0.0

    def check(self, passed: float) -> str | None:
        """Return why the process should end: the loop has made no progress for too long."""
        self._idle_seconds += passed
        return (
            f"{self.what} has made no progress for {self._idle_seconds:.0f} s"
            if self._idle_seconds > self.max_interval
            else None
        )


@dataclass
class BrokerHealthCheck:
    """The health check of a process that receives messages: those that it sends to itself through the broker return.

    Time does not count while the broker accepts no messages, nor while the process is full and rightly receives none.
    """

    send: Callable[[], bool]  # False: the broker is unreachable
    is_full: Callable[[], bool]
    unresponsive_after: float  # seconds during which a message was sent and could have been received
    _missing_seconds: float = 0.0
    _is_expecting: bool = False
    _has_received: threading.Event = field(default_factory=threading.Event)

    def mark_received(self) -> None:
        """Record that a message has returned."""
        self._has_received.set()

    def check(self, passed: float) -> str | None:
        """Return why the process should end; otherwise send the next message and return None."""
        if self.is_full() or self._has_received.is_set() or not self._is_expecting:
            self._missing_seconds = 0.0
        else:
            self._missing_seconds += passed
        self._has_received.clear()
        if self._missing_seconds > self.unresponsive_after:
            return (
                f"it has received none of its own messages for {self._missing_seconds:.0f} s, "
                "while the broker accepts them"
            )
        self._is_expecting = False  # also if sending raises: an unsent message cannot return
        self._is_expecting = not self.is_full() and self.send()
        return None


def exit_for_restart(reason: str, release: Callable[[], None], within: float) -> None:
    """End this process, after `release` has returned, or after `within` seconds.

    Nothing else is waited for: what has blocked the process might block its shutdown, too.
    """
    log.error("process_exiting_unresponsive", reason=reason)
    releasing = threading.Thread(target=release, name="easel-gives-up", daemon=True)
    releasing.start()
    releasing.join(within)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_RESTART)
