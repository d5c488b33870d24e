"""Turns errors into outcomes by the failure policy that the author has set, and values into JSON that rows can hold."""

import math
import re
from collections.abc import Mapping
from typing import Any

from canvas.errors import ExecutorError, NodeFailure, NodeTimeout
from canvas.graph.canvas import Node, NodeKind
from canvas.outcome import Failed, Finished, Outcome, Routed
from components.base import Component
from components.nodes.data.variable_assigner import AssignmentFailed

CANCELLED = "Task has been canceled"
CANCELLED_BY_OPERATOR = "Cancelled by an operator, who revoked the task of this node."
_REPLACED_CHARACTERS = str.maketrans(dict.fromkeys("\x00\ufdd0\ufdd1\ufdd2\ufdd3", "\ufffd"))
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
MAX_DEPTH = 200  # levels of an output: 100 that a request may have, and what is put around it; encoders take 250
_MAX_INTEGER = 10**4300 - 1  # Python does not convert longer integers to text


def outcome_of_exception(error: BaseException, node: Node, component: Component[Any]) -> Outcome:
    """Return the outcome of a component that raised: a failure, or the author's default value as `result`."""
    text = sanitize_json(str(error) or type(error).__name__)
    code = error.code if isinstance(error, ExecutorError) else "component_error"
    failed = Failed(text, code)
    if isinstance(error, AssignmentFailed):
        failed = Failed(text, code, outputs={})
    return failed if component.owns_errors else apply_default(failed, node)


def apply_failure_policy(failed: Failed, node: Node, component: Component[Any]) -> Outcome:
    """Return the outcome for a returned failure. Model nodes have applied their default value already."""
    if component.owns_errors or node.kind is NodeKind.MODEL:
        return failed
    return apply_default(failed, node)


def apply_default(failed: Failed, node: Node) -> Outcome:
    """Return the default value as `result` under the policy `comment`, so that the run continues; else the failure."""
    policy = node.failure
    if policy.method != "comment" or not policy.default:
        return failed
    outputs = {**failed.outputs, "result": policy.default}
    if node.is_router:
        return Routed(to=(), outputs=outputs)
    return Finished(outputs=outputs)


def assignments_before_failure(error: BaseException) -> Mapping[str, Any]:
    """Return the assignments that a VariableAssigner made before it failed. They stay."""
    return error.assignments if isinstance(error, AssignmentFailed) else {}


def timeout_error(component: str, seconds: float) -> NodeTimeout:
    """Return the error of a node whose time limit is over."""
    return NodeTimeout(f"{component}: timeout after {seconds:g}s. Raise COMPONENT_EXEC_TIMEOUT_{component.upper()}.")


def sanitize_json(value: Any) -> Any:
    """Return a value as JSON that rows can hold: no NUL, lone surrogates or NaN; other objects become their text.

    Raises NodeFailure for a value that contains itself or is nested too deeply, and for integers above 4,300 digits.
    """
    return _to_json(value)


def sanitize_text(text: str) -> str:
    """Return a text as the row of a message stream can hold it: no NUL or lone surrogates. Reasoning markers stay."""
    return _LONE_SURROGATES.sub("\ufffd", text.replace("\x00", "\ufffd"))


def _to_json(value: Any, levels: int = MAX_DEPTH) -> Any:
    if levels < 0:
        raise NodeFailure(f"An output is nested deeper than {MAX_DEPTH} levels. Return it flat, or as a text.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > _MAX_INTEGER:
            raise NodeFailure("An output is a number of more than 4,300 digits, which cannot be stored.")
        return value
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {
            _clean_text(name if isinstance(name, str) else str(name)): _to_json(item, levels - 1)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_to_json(item, levels - 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_to_json(item, levels - 1) for item in value), key=str)
    return _clean_text(str(value))


def _clean_text(text: str) -> str:
    if text.isascii() and "\x00" not in text:
        return text
    return sanitize_text(text.translate(_REPLACED_CHARACTERS))
