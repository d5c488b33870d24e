"""Notifications: what is sent to other processes after the commit of an advance or a lifecycle operation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from canvas.ids import RunId, SessionId
from canvas.state.run_state import RunStatus
from store.runs.new_activations import PendingTaskMessages, TaskMessage


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What follows from the end of a run."""

    conversation_id: SessionId  # its cancel keys are deleted, and those of the run
    next_run: RunId | None = None  # the conversation's next run, which a scheduler is to start
    delete_external_keys: Callable[[], None] | None = None  # deletes the cancel keys of the run's external ids


@dataclass(frozen=True, slots=True)
class Notifications:
    """What `Dispatch` sends after a commit. By default: nothing."""

    run_id: RunId
    task_messages: Sequence[TaskMessage] = ()
    promoted: PendingTaskMessages | None = None  # further task messages
    events: range = range(0)  # numbers of the events stored
    status: RunStatus | None = None  # of the run from now on; None: it is as before
    cancel_requested: bool = False  # running attempts must stop
    end: RunEnd | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.status is not None and self.status.is_over

    def followed_by(self, later: "Notifications") -> "Notifications":
        """Return these together with those of a later decision in the same transaction."""
        return Notifications(
            self.run_id,
            [*self.task_messages, *later.task_messages],
            later.promoted or self.promoted,
            range(self.events.start, later.events.stop)
            if self.events and later.events
            else later.events or self.events,
            later.status or self.status,
            self.cancel_requested or later.cancel_requested,
            later.end or self.end,
        )
