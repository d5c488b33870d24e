"""Checks that a JSON value can be stored: plain values, finite numbers, valid Unicode, bounded depth."""

import json
import math
from collections.abc import Mapping
from typing import Any

from canvas.errors import InvalidCanvas

MAX_DEPTH = 100  # far beyond any canvas, far below the interpreter's recursion limit
SMALLEST, LARGEST = -(2**63), 2**64 - 1  # whole numbers that JSON encoders and databases agree on


def parse_json(source: str | bytes, max_bytes: int) -> Any:
    """Parse a JSON text. Raises InvalidCanvas if it is not valid JSON, or too large."""
    size = len(source.encode("utf-8", "surrogatepass")) if isinstance(source, str) else len(source)
    if size > max_bytes:
        raise InvalidCanvas(f"The canvas has {size} bytes, and {max_bytes} are allowed.")
    try:
        return json.loads(source.lstrip("\ufeff") if isinstance(source, str) else source)
    except RecursionError:
        raise InvalidCanvas(f"Invalid DSL JSON string. It is nested deeper than {MAX_DEPTH} levels.") from None
    except ValueError as error:
        raise InvalidCanvas("Invalid DSL JSON string.") from error


def copy_storable(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a JSON object with plain values only. Raises Unstorable for a value that cannot be stored."""
    try:
        return _copy_value(value, MAX_DEPTH)
    except _Unstorable as defect:
        path = defect.path[::-1]
        if path[:1] == ["dsl"]:
            path = path[1:]
        is_in_node = path[:1] == ["components"] and len(path) > 1
        node = path[1] if is_in_node else None
        field = ".".join(path[2:] if is_in_node else path)
        where = f"Node {node}, field {field}" if node else f"Field {field}"
        raise Unstorable(where, defect.reason, node, field or None) from defect


class Unstorable(InvalidCanvas):
    """Raised for a document or request with a value that cannot be stored: `where` it is, and the `reason`."""

    def __init__(self, where: str, reason: str, node: str | None, field: str | None) -> None:
        super().__init__(f"DSL is not JSON-serializable. {where}: {reason}.", node=node, field=field)
        self.where = where
        self.reason = reason


class _Unstorable(Exception):
    """Raised for a value that cannot be stored; `path` collects the steps to it, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


def _copy_value(value: Any, levels: int) -> Any:
    if levels == 0:
        raise _Unstorable(f"nested deeper than {MAX_DEPTH} levels")
    match value:
        case None | bool():
            return value
        case str():
            return _check_text(value)
        case int():
            return _check_integer(value)
        case float():
            return _check_number(value)
        case Mapping():
            return {_check_key(key): _copy_value_at(str(key), item, levels) for key, item in value.items()}
        case list() | tuple():
            return [_copy_value_at(str(position), item, levels) for position, item in enumerate(value)]
        case _:
            raise _Unstorable(f"a {type(value).__name__} is not a JSON value")


def _copy_value_at(step: str, value: Any, levels: int) -> Any:
    try:
        return _copy_value(value, levels - 1)
    except _Unstorable as defect:
        defect.path.append(step)
        raise


def _check_key(key: Any) -> str:
    if not isinstance(key, str):
        raise _Unstorable(f"the key {key!r} is not a text")
    return _check_text(key)


def _check_text(text: str) -> str:
    if "\x00" in text:
        raise _Unstorable("a text contains the character U+0000, which cannot be stored")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _Unstorable("a text contains half of a surrogate pair") from None
    return text


def _check_integer(number: int) -> int:
    if SMALLEST <= number <= LARGEST:
        return number
    raise _Unstorable("a whole number needs more than 64 bits")


def _check_number(number: float) -> float:
    if math.isfinite(number):
        return number
    raise _Unstorable(f"{number} is not a JSON number")
