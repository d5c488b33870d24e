"""Frames between a worker and the process that holds one of its database sessions: JSON behind a length.

    frame = encoded({"rows": rows_as_json(rows)})   ->  8 bytes of length, then JSON
    rows_of(decoded(body)["rows"])                  ->  the same rows

Values that JSON has no form for are pairs of a tag and a text. Nothing is pickled: a process that a hostile server has
taken over can send a wrong value, and no code.
"""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

LENGTH = struct.Struct(">Q")
DEEPEST = 100  # levels of a value; what lies deeper is cut
MOST_BITS = 14_284  # of a whole number; Python writes no number of more than 4,300 digits
CUT = "..."
_LIST, _OBJECT, _DECIMAL, _DATE, _DATETIME, _TIME, _BYTES = "l", "o", "n", "d", "dt", "t", "b"


def encoded(message: Mapping[str, Any]) -> bytes:
    """A message as a frame. Raises ValueError for what is no JSON."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return LENGTH.pack(len(body)) + body


def decoded(body: bytes | bytearray) -> dict[str, Any]:
    """The message of a frame's body. Raises ValueError for what is no JSON object."""
    message = json.loads(body.decode("utf-8", "surrogatepass"))
    if not isinstance(message, dict):
        raise ValueError("The frame holds no JSON object.")
    return message


def rows_as_json(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows of a driver in a form that `encoded` accepts."""
    return [[_as_json(value, DEEPEST) for value in row] for row in rows]


def rows_of(told: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The rows of `rows_as_json`. Raises ValueError or TypeError for what it cannot have made."""
    return [tuple(map(_value, row)) for row in told]


def _as_json(value: Any, levels: int) -> Any:
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if value.bit_length() <= MOST_BITS else None
        case float():
            return value
        case Decimal():
            return [_DECIMAL, str(value)]
        case datetime():
            return [_DATETIME, value.isoformat()]
        case date():
            return [_DATE, value.isoformat()]
        case time():
            return [_TIME, value.isoformat()]
        case bytes() | bytearray() | memoryview():
            return [_BYTES, base64.b64encode(value).decode()]
        case _ if levels == 0:
            return CUT
        case Mapping():
            return [_OBJECT, {str(name): _as_json(member, levels - 1) for name, member in value.items()}]
        case list() | tuple() | set() | frozenset():
            return [_LIST, [_as_json(item, levels - 1) for item in value]]
        case _:
            return str(value)


def _value(told: Any) -> Any:
    if not isinstance(told, list):
        return told
    kind, content = told
    match kind:
        case "l":
            return [_value(item) for item in content]
        case "o":
            return {name: _value(member) for name, member in content.items()}
        case "n":
            return Decimal(content)
        case "d":
            return date.fromisoformat(content)
        case "dt":
            return datetime.fromisoformat(content)
        case "t":
            return time.fromisoformat(content)
        case "b":
            return base64.b64decode(content)
        case _:
            raise ValueError(f"There is no kind of value {kind!r}.")
