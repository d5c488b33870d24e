"""Metadata filters of documents (docs/tools.md).

A filter is `{method, logic, manual: [{key, op, value}]}`; the HTTP API has other spellings of some operators. A value
that is a date (`YYYY-MM-DD`) is compared with dates only. Otherwise both sides are compared as numbers, booleans or
lists if both are such literals, else as texts in lower case. Values that cannot be compared do not match, nor do
documents without the key; only `empty` matches those.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canvas.errors import ToolError

_SPELLINGS = {
    "is": "=", "==": "=", "eq": "=", "not is": "≠", "is not": "≠", "!=": "≠", "<>": "≠", "ne": "≠", ">=": "≥",
    "<=": "≤", "ge": "≥", "le": "≤", "gt": ">", "lt": "<", "starts with": "start with", "ends with": "end with",
    "is empty": "empty",
}  # fmt: skip
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MAX_LITERAL_LENGTH = 10_000  # characters


@dataclass(frozen=True, slots=True)
class MetadataCondition:
    """A condition on a document's metadata under one key."""

    key: str
    operator: str
    value: Any


OPERATORS: tuple[str, ...] = (
    "=", "≠", ">", "<", "≥", "≤", "contains", "not contains", "in", "not in", "start with", "end with", "empty",
    "not empty",
)  # fmt: skip


def parse_conditions(stored: Sequence[Any]) -> list[MetadataCondition]:
    """Parse conditions of canvases, models and the HTTP API; those without a key are left out.

    Raises ToolError for an unknown operator.
    """
    found = list[MetadataCondition]()
    for each in stored:
        key = (each.get("key") or each.get("name")) if isinstance(each, Mapping) else None
        if not key:
            continue
        written = str(each.get("op") or each.get("comparison_operator") or each.get("operator") or "=").strip().lower()
        operator = _SPELLINGS.get(written, written)
        if operator not in OPERATORS:
            raise ToolError(f'The metadata filter has the unknown operator "{written}". Use: {", ".join(OPERATORS)}.')
        found.append(MetadataCondition(str(key), operator, each.get("value")))
    return found


def matching_documents(
    metadata: Mapping[Any, Mapping[str, Any]], conditions: Sequence[MetadataCondition], logic: str
) -> set[Any]:
    """Return the documents for which all conditions hold, or any if `logic` is `or`; without conditions all of them."""
    holds_for = any if logic.strip().lower() == "or" else all
    if not conditions:
        return set(metadata)
    return {
        document
        for document, values in metadata.items()
        if holds_for(_holds(condition, values) for condition in conditions)
    }


def _holds(condition: MetadataCondition, values: Mapping[str, Any]) -> bool:
    value = values.get(condition.key)
    is_empty = value is None or value == "" or value == []
    if condition.operator in ("empty", "not empty"):
        return is_empty == (condition.operator == "empty")
    if is_empty:
        return False
    if isinstance(value, list):  # of several values one must match; for a negated operator all must
        verdicts = [_compare(condition, each) for each in value]
        return all(verdicts) if condition.operator in ("≠", "not in", "not contains") else any(verdicts)
    return _compare(condition, value)


def _compare(condition: MetadataCondition, value: Any) -> bool:
    expected = condition.value
    if condition.operator in ("in", "not in"):
        return (_normalize(value) in set(map(_normalize, _as_list(expected)))) == (condition.operator == "in")
    if (text := _TEXT_COMPARISONS.get(condition.operator)) is not None:
        return text(_normalize(value), _normalize(expected))
    if isinstance(expected, str) and _DATE.fullmatch(expected.strip()):
        left, right = str(value).strip(), expected.strip()
        return bool(_DATE.fullmatch(left)) and _COMPARISONS[condition.operator](left, right)
    left, right = _parse_literal(value), _parse_literal(expected)
    if isinstance(left, _NotLiteral) or isinstance(right, _NotLiteral):
        left, right = _normalize(value), _normalize(expected)
    try:
        return bool(_COMPARISONS[condition.operator](left, right))
    except TypeError:
        return False


def _normalize(value: Any) -> str:
    """Return a value as text in lower case; 3 and 3.0 are the same."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip().lower()


def _as_list(value: Any) -> Sequence[Any]:
    """Return the items of a list, or of a comma-separated text."""
    if isinstance(value, list | tuple):
        return value
    literal = _parse_literal(value)
    if isinstance(literal, list | tuple | set):
        return list(literal)
    return [part.strip() for part in str(value).split(",")]


class _NotLiteral:
    """Stands for a text that is not a literal."""


def _parse_literal(value: Any) -> Any:
    """Parse a text as a number, boolean or list; return _NotLiteral() for other texts, and other values unchanged."""
    if not isinstance(value, str):
        return value
    if len(value) > _MAX_LITERAL_LENGTH:
        return _NotLiteral()
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _NotLiteral()


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda value, expected: value == expected,
    "≠": lambda value, expected: value != expected,
    ">": lambda value, expected: value > expected,
    "<": lambda value, expected: value < expected,
    "≥": lambda value, expected: value >= expected,
    "≤": lambda value, expected: value <= expected,
}
_TEXT_COMPARISONS: Mapping[str, Callable[[str, str], bool]] = {
    "contains": lambda value, expected: expected in value,
    "not contains": lambda value, expected: expected not in value,
    "start with": lambda value, expected: value.startswith(expected),
    "end with": lambda value, expected: value.endswith(expected),
}
