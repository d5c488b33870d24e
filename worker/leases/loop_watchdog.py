"""Whether the worker's event loop turns. A component that blocks it holds up everything that the process runs.

Renewals go on in a thread of their own, so such a process would keep its leases for ever and do nothing. It ends after
a while, and gives back what it has in hand; but not the attempt that blocks the loop, for that would block the next
worker as well: its lease runs out, and it is counted as a death like any other.
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

from worker.event_loop import Loop
from worker.leases.attempt_handle import Attempt
from worker.leases.leases import LeaseKeeper

log = structlog.get_logger()

WARNED_AFTER = 5.0  # seconds; long enough for a large document, too long for anything that waits


@dataclass
class EventLoopWatchdog:
    """The sign of a loop that turns: what is put on it is carried out."""

    loop: Loop
    leases: LeaseKeeper
    blocked_after: float  # seconds
    _still: float = 0.0
    _has_turned: bool = True
    _has_warned: bool = False

    def look(self, passed: float) -> str | None:
        """Why the process should end; else see whether the loop turns until the next look."""
        if self._has_turned:
            self._still, self._has_turned, self._has_warned = 0.0, False, False
            self.loop.call(self._turn)
            return None
        self._still += passed
        if self._still > self.blocked_after:
            at_fault = self._at_fault()
            if at_fault is not None and at_fault.claim_report():
                self.leases.forget(at_fault)
            return f"its event loop has stood still for {self._still:.0f} s"
        if self._still > WARNED_AFTER and not self._has_warned:
            self._has_warned = True
            log.warning("loop_blocked", seconds=round(self._still, 1), **self._where())
        return None

    def _turn(self) -> None:
        self._has_turned = True

    def _where(self) -> Mapping[str, Any]:
        """What the loop is at: the node, as its attempt has told the log, and the line of code."""
        frame = self._frame()
        line = traceback.extract_stack(frame, limit=1)[0] if frame is not None else None
        return {**_told(frame), "at": f"{line.filename}:{line.lineno} {line.name}" if line else None}

    def _at_fault(self) -> Attempt | None:
        activation = _told(self._frame()).get("activation_id")
        return next((held for held in self.leases.held() if str(held.activation_id) == activation), None)

    def _frame(self) -> FrameType | None:
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] (documented, and there is no other way)
        return frames.get(self.loop.thread_id or 0)


def _told(frame: FrameType | None) -> dict[str, Any]:
    """What was bound to the log for the work that a thread's loop is at; nothing if the loop is at none.

    A loop carries out handles, each in a context that its task has from the attempt that began it, and so have tasks
    begun by that one.
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
