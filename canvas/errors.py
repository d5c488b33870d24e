"""Error classes that all packages share.

An error says what is wrong, where, and what to do. `code` is stable and for machines, `message` is for people,
`details` is JSON. The API and the CLI choose HTTP status and exit code.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class ExecutorError(Exception):
    """Base class of all errors that Easel raises on purpose."""

    code: ClassVar[str] = "executor_error"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details


class InvalidRequest(ExecutorError):
    """Raised for a request that cannot be carried out and that the caller can correct."""

    code = "invalid_request"


class InvalidCanvas(InvalidRequest):
    """Raised for a document that cannot run as a canvas. `findings` lists every defect with its node and field."""

    code = "invalid_canvas"

    def __init__(self, message: str, *, node: str | None = None, field: str | None = None, **details: Any) -> None:
        super().__init__(message, node=node, field=field, **details)
        self.node = node
        self.field = field


class NotFound(InvalidRequest):
    """Raised if this tenant has no such row; a row of another tenant gives the same error."""

    code = "not_found"


class Conflict(InvalidRequest):
    """Raised if the object exists but its state does not allow the operation."""

    code = "conflict"


class NotAllowed(InvalidRequest):
    """Raised for an authenticated caller without the permission for the operation."""

    code = "not_allowed"


class NodeFailure(ExecutorError):
    """Raised by a node that could not do its work. `retryable`: whether another attempt may help."""

    code = "node_failure"

    def __init__(self, message: str, *, retryable: bool = False, **details: Any) -> None:
        super().__init__(message, **details)
        self.retryable = retryable


class ModelError(NodeFailure):
    """Raised if a model service refused a call, broke it off or could not be reached."""

    code = "model_error"


class ToolError(NodeFailure):
    """Raised by a tool that could not carry out its call."""

    code = "tool_error"


class AddressRefused(ToolError):
    """Raised for an address, chosen by a canvas, a value or a model, that must not be connected to. Never retryable."""

    code = "address_refused"


class HostUnknown(AddressRefused):
    """Raised if a host name cannot be resolved at present. No connection was made; an HTTP caller may try again."""


class HttpFailed(ToolError):
    """Raised for a missing, incomplete or failed HTTP response. `details` may have `status` and `retry_after` (s)."""

    code = "http_failed"


class AnswerTooLarge(HttpFailed):
    """Raised for an HTTP response that is larger than its caller accepts."""


class NodeTimeout(NodeFailure):
    """Raised if a node exceeded its time limit."""

    code = "node_timeout"


class UnresolvedReference(NodeFailure):
    """Raised for a reference to a node or global that the canvas does not have."""

    code = "unresolved_reference"


class ValueGone(NodeFailure):
    """Raised if the file of a stored value is missing, or this process has no access to it."""

    code = "value_gone"


class StateError(ExecutorError):
    """Raised if stored facts contradict each other: a bug in Easel."""

    code = "state_error"


class AttemptStopped(BaseException):
    """Raised inside an attempt that was cancelled; `reason` is `user`, `operator`, `deadline`, `lease`,
    `shutdown` or `postponed`.

    It is a BaseException, so `except Exception` does not catch it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BudgetExceeded(BaseException):
    """Raised before a model call that no budget allows. It ends the attempt, not the run.

    It is a BaseException, so a component or tool with `except Exception` does not catch it.
    """

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details
