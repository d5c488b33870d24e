"""The watchdog of the event loop. A component that blocks the loop blocks everything that the process executes.

Leases are renewed on a thread of their own, so such a process would keep its leases for ever and do nothing. It exits
after a while and releases its attempts, except the one that blocks the loop, which would block the next worker as well:
its lease expires, and that counts as a crash (docs/decisions/0013-unresponsive-processes-exit.md).
"""

import asyncio
import sys
import traceback
from collections.abc import Mapping
from contextvars import Context
from dataclasses import dataclass
from types import FrameType
from typing import Any

import structlog
from structlog.contextvars import STRUCTLOG_KEY_PREFIX

from worker.leases.attempt_handle import Attempt
from worker.leases.leases import LeaseKeeper
from worker.threads.event_loop import WorkerLoop

log = structlog.get_logger()

WARN_AFTER = 5.0  # seconds; parsing a large document may take that long, a coroutine that only waits never does


@dataclass
class EventLoopWatchdog:
    """Checks that the loop executes callbacks."""

    loop: WorkerLoop
    leases: LeaseKeeper
    blocked_after: float  # seconds
    _blocked_for: float = 0.0
    _has_run: bool = True
    _has_warned: bool = False

    def check(self, passed: float) -> str | None:
        """Return why the process must exit; None if the loop works, or has not been blocked for long enough.

        `passed` is the time since the last check, in seconds. Each check puts a callback on the loop, for the next one.
        """
        if self._has_run:
            self._blocked_for, self._has_run, self._has_warned = 0.0, False, False
            self.loop.call(self._note_run)
            return None
        self._blocked_for += passed
        if self._blocked_for > self.blocked_after:
            at_fault = self._find_blocking_attempt()
            if at_fault is not None and at_fault.acquire_report_right():
                self.leases.forget(at_fault)
            return f"its event loop has been blocked for {self._blocked_for:.0f} s"
        if self._blocked_for > WARN_AFTER and not self._has_warned:
            self._has_warned = True
            log.warning("loop_blocked", seconds=round(self._blocked_for, 1), **self._log_fields())
        return None

    def _note_run(self) -> None:
        self._has_run = True

    def _log_fields(self) -> Mapping[str, Any]:
        """Return what the loop executes: the log fields of its attempt, and the line of code."""
        frame = self._frame()
        line = traceback.extract_stack(frame, limit=1)[0] if frame is not None else None
        return {**_bound_log_fields(frame), "at": f"{line.filename}:{line.lineno} {line.name}" if line else None}

    def _find_blocking_attempt(self) -> Attempt | None:
        activation = _bound_log_fields(self._frame()).get("activation_id")
        return next((attempt for attempt in self.leases.attempts() if str(attempt.activation_id) == activation), None)

    def _frame(self) -> FrameType | None:
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] (documented, and there is no other way)
        return frames.get(self.loop.thread_id or 0)


def _bound_log_fields(frame: FrameType | None) -> dict[str, Any]:
    """Return the log fields of the attempt whose callback a thread's loop executes; {} if it executes none.

    A loop executes handles. Each has the context variables of the attempt that started its task, as do tasks that this
    task starts.
    """
    while frame is not None:
        handle = frame.f_locals.get("self")
        if isinstance(handle, asyncio.Handle):
            context: Context = getattr(handle, "_context")  # noqa: B009 (`get_context` came with Python 3.12)
            bound: dict[str, Any] = {variable.name: value for variable, value in context.items()}
            mine = {name: value for name, value in bound.items() if name.startswith(STRUCTLOG_KEY_PREFIX)}
            return {name.removeprefix(STRUCTLOG_KEY_PREFIX): value for name, value in mine.items()}
        frame = frame.f_back
    return {}
