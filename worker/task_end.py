"""How the Celery task of a node ends, as Flower and Celery's signals show it (docs/operations.md, "Flower").

A failed attempt is FAILURE with its error, a cancelled one REVOKED, one whose activation is executed again RETRY. All
others are SUCCESS, with what the attempt reported as the result: a node that waits for a person says so there.
"""

from dataclasses import dataclass
from enum import StrEnum

from celery.exceptions import Ignore, Retry

from canvas.outcome import (
    POSTPONED,
    ContainerExited,
    ContainerOpened,
    Failed,
    NextIteration,
    Outcome,
    Routed,
    WaitingForInput,
)

MAX_TEXT = 500  # characters of an error or a result in an event of Celery's

REFUSED = "Another attempt has the activation, or it is over: nothing of this one was stored."
NOT_CLAIMED = "not executed: claimed by another attempt, over, or not due"
CANCELLED_BY_OPERATOR = "cancelled_by_operator"
"""Code of the failure of a node whose task was revoked."""


class NodeFailed(Exception):
    """Raised to end a task as FAILURE. Its text is the node's error."""


class NodeCancelled(Ignore):
    """Raised to end a task as REVOKED."""


class TaskState(StrEnum):
    """Celery's states of a task that has ended."""

    SUCCEEDED = "SUCCESS"
    FAILED = "FAILURE"
    CANCELLED = "REVOKED"
    RETRIED = "RETRY"


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task ends, and the result or error that is shown."""

    state: TaskState
    text: str
    advance_seconds: float | None = None  # how long the advance in the report's transaction took; None: there was none

    def result(self) -> str:
        """Return the task's result. Raises what makes Celery end it in another state."""
        match self.state:
            case TaskState.FAILED:
                raise NodeFailed(self.text)
            case TaskState.CANCELLED:
                raise NodeCancelled(self.text)
            case TaskState.RETRIED:
                raise Retry(self.text, exc=NodeFailed(self.text))
            case TaskState.SUCCEEDED:
                return self.text


def task_end_of(outcome: Outcome | None) -> TaskEnd:
    """Return the end of a task whose attempt has this outcome; None: it has lost its lease."""
    if outcome is None:
        return TaskEnd(TaskState.RETRIED, REFUSED)
    if isinstance(outcome, Failed):
        return TaskEnd(_state_of(outcome), outcome.error[:MAX_TEXT])
    return TaskEnd(TaskState.SUCCEEDED, _describe(outcome)[:MAX_TEXT])


def _state_of(failed: Failed) -> TaskState:
    if failed.code in ("cancelled", CANCELLED_BY_OPERATOR):
        return TaskState.CANCELLED
    if failed.retryable or failed.code == POSTPONED:
        return TaskState.RETRIED
    return TaskState.SUCCEEDED if failed.is_over_budget else TaskState.FAILED


def _describe(outcome: Outcome) -> str:
    match outcome:
        case WaitingForInput():
            return "waits for a person"
        case Routed(to=to):
            return f"routed to {', '.join(to)}" if to else "routed to no node"
        case ContainerOpened():
            return "opened its body"
        case NextIteration():
            return "began an iteration"
        case ContainerExited():
            return "left its container"
        case _:
            return "finished"
