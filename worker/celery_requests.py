"""Celery's requests of the task that executes nodes: their states, the commands that end them, and their advances.

- A cancelled node ends as REVOKED: Celery itself knows that state only for tasks that it discards.
- The command "revoke" ends the attempt, running or not, as cancelled by an operator. Celery would discard a task that
  has not begun, and the sweeper would send it again; and a pool of threads cannot terminate a task.
- The advance in the transaction of a report is shown as a task `scheduler.advance`, if task events are on.

Celery calls `on_success` and `on_failure` of a request on the pool's thread. A pool of processes calls them in the
parent, which has no attempts: there "revoke" with "terminate" kills the child, as upstream, and its lease expires.
"""

import threading
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID, uuid4

from celery.worker import state
from celery.worker.request import Request

from canvas.ids import ActivationId
from scheduler.messaging.celery_app import ADVANCE
from worker.task_end import NodeCancelled, TaskEnd


class _TaskEnds(threading.local):
    """What the last task of a thread has ended with."""

    last: TaskEnd | None = None


TASK_ENDS = _TaskEnds()


def _stop_nothing(activation_id: ActivationId) -> bool:
    return False


class NodeRequest(Request):
    """A request to execute a node.

    `stop_activation` stops the attempt at an activation, now or when it begins; it returns False if this process has no
    attempts.
    """

    stop_activation: ClassVar[Callable[[ActivationId], bool]] = staticmethod(_stop_nothing)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wrap `on_success` of the class that Celery derives from this one, which calls no method of its base class."""
        super().__init_subclass__(**kwargs)
        derived: Any = cls
        celery_on_success = derived.on_success

        def on_success(self: "NodeRequest", result: Any, **kwargs: Any) -> None:
            try:
                celery_on_success(self, result, **kwargs)
            finally:
                self.after_task()

        derived.on_success = on_success

    def after_task(self) -> None:
        """Do what follows when Celery has recorded the end of the task."""
        self.show_advance()

    def revoked(self) -> bool:
        """Return whether the task is discarded. A node's task never is: the worker ends its activation."""
        if not state.revoked:
            return super().revoked()
        activation_id = self.activation_id()
        is_revoked = self.id in state.revoked or str(activation_id) in state.revoked
        if not is_revoked or activation_id is None:
            return super().revoked()
        type(self).stop_activation(activation_id)
        return False

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """End the attempt as cancelled by an operator; without threads, kill the child that executes it."""
        activation_id = self.activation_id()
        if activation_id is None or not type(self).stop_activation(activation_id):
            super().terminate(pool, signal)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """End the task; a cancelled node's as REVOKED."""
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(exc_info.exception, NodeCancelled) or isinstance(error, NodeCancelled):
            self._announce_revoked("cancelled", True, None, False)
            return None
        return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def show_advance(self) -> None:
        """Send the events of the advance that the task carried out, as a task of its own."""
        end, TASK_ENDS.last = TASK_ENDS.last, None
        if end is None or end.advance_seconds is None or not self.eventer or not self.eventer.enabled:
            return
        shown = {"name": ADVANCE, "args": repr((self.root_id,)), "kwargs": "{}", "retries": 0, "eta": None}
        task_id = str(uuid4())
        send = self.eventer.send
        send("task-received", uuid=task_id, root_id=self.root_id, parent_id=self.id, expires=None, **shown)
        send("task-started", uuid=task_id)
        send("task-succeeded", uuid=task_id, result="inline", runtime=end.advance_seconds)

    def activation_id(self) -> ActivationId | None:
        """Return the activation that the message names; None if it is malformed."""
        try:
            return ActivationId(UUID(self.args[1]))
        except (IndexError, TypeError, ValueError, AttributeError):
            return None
