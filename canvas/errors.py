"""What can go wrong, as a family that every package shares (house style: errors).

An error says where, what and what to do. `code` is stable and for machines, `message` is for people, `details` is
JSON. HTTP statuses and exit codes are chosen at the edge, never here.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class ExecutorError(Exception):
    """The root of everything Easel raises on purpose."""

    code: ClassVar[str] = "executor_error"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details


class InvalidRequest(ExecutorError):
    """The caller asked for something that cannot be done, and can mend it."""

    code = "invalid_request"


class InvalidCanvas(InvalidRequest):
    """A document is no canvas that could run. `findings` lists every defect, each naming its node and field."""

    code = "invalid_canvas"

    def __init__(self, message: str, *, node: str | None = None, field: str | None = None, **details: Any) -> None:
        super().__init__(message, node=node, field=field, **details)
        self.node = node
        self.field = field


class NotFound(InvalidRequest):
    """No such row for this tenant; foreign rows look exactly the same."""

    code = "not_found"


class Conflict(InvalidRequest):
    """The thing exists but is in a state that does not allow this."""

    code = "conflict"


class NotAllowed(InvalidRequest):
    """The caller is known and may not do this."""

    code = "not_allowed"


class NodeFailure(ExecutorError):
    """A node could not do its work. `retryable` says whether another attempt may help."""

    code = "node_failure"

    def __init__(self, message: str, *, retryable: bool = False, **details: Any) -> None:
        super().__init__(message, **details)
        self.retryable = retryable


class ModelError(NodeFailure):
    """A model service refused, broke off or could not be reached. `kind` is one of the codes of tools.md 10.4."""

    code = "model_error"


class ToolError(NodeFailure):
    """A tool could not do what it was asked."""

    code = "tool_error"


class AddressRefused(ToolError):
    """An address that a canvas, a value or a model chose leads where nothing may go (tools 1.11). Never retryable."""

    code = "address_refused"


class HostUnknown(AddressRefused):
    """A host name cannot be resolved at present. Nothing is connected to; whoever asks over HTTP may try again."""


class HttpFailed(ToolError):
    """No whole answer came over HTTP, or one that is none: `details` may carry `status` and `retry_after` (s)."""

    code = "http_failed"


class AnswerTooLarge(HttpFailed):
    """An answer has more bytes than its caller takes."""


class NodeTimeout(NodeFailure):
    """A node's time limit has passed."""

    code = "node_timeout"


class UnresolvedReference(NodeFailure):
    """A text or parameter refers to a node or global that the canvas does not have."""

    code = "unresolved_reference"


class ValueGone(NodeFailure):
    """A stored value lies in a file that is not there, or not within this process's reach."""

    code = "value_gone"


class StateError(ExecutorError):
    """Stored facts contradict each other: a bug of ours, reported loudly."""

    code = "state_error"


class AttemptStopped(BaseException):
    """Why an attempt was cancelled; `reason` is `user`, `deadline`, `lease`, `shutdown` or `postponed`.

    No `except Exception` sees it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BudgetExceeded(BaseException):
    """A model must not be called, for what that may cost is no longer there. It ends the attempt, not the run.

    Neither a component nor a tool may take it for an answer, so no `except Exception` sees it.
    """

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details
