"""Isolation of suspected poison tasks: a process executes only one activation at a time that has crashed twice.

A crash counts for every activation that the dead worker held, so one of them may be the cause and the others only its
neighbours. The next crash fails an activation that has crashed twice. So a process claims only one of them at a time,
and the others wait without a lease, where a crash does not count for them. Nothing is lost with this memory: the rows
are ready, and the sweeper sends their task messages again (docs/decisions/0009-poison-tasks-run-alone.md).
"""

from threading import Lock

from canvas.ids import ActivationId, RunId
from worker.leases.attempt_handle import Attempt

ISOLATE_AFTER_CRASHES = 2
"""Crashes after which the next one fails the activation."""

TaskRef = tuple[RunId, ActivationId]
"""(run, activation), as task messages name it."""


class PoisonTaskSlot:
    """The one slot of a process for a suspected poison task, and the tasks that wait for it, each once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holder: Attempt | None = None
        self._waiting: dict[TaskRef, None] = {}

    def acquire(self, attempt: Attempt) -> bool:
        """Take the slot for an attempt. False: another attempt has it, and the task was set aside until it leaves.

        An attempt whose thread was abandoned is reported already, and does not keep the slot.
        """
        task = attempt.run_id, attempt.activation_id
        with self._lock:
            if self._holder is not None and not self._holder.is_abandoned:
                self._waiting[task] = None
                return False
            self._waiting.pop(task, None)
            self._holder = attempt
            return True

    def release(self, attempt: Attempt) -> TaskRef | None:
        """Free the slot; return a task that was set aside, which the caller executes now. None: there is none."""
        with self._lock:
            if self._holder is not attempt:
                return None
            self._holder = None
            task = next(iter(self._waiting), None)
            if task is not None:
                del self._waiting[task]
            return task
