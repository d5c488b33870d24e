"""Frames between a worker and the process of a database session: a length, then JSON.

    frame = encode_frame({"rows": rows_as_json(rows)})  ->  8 bytes of length, then JSON
    rows_from_json(decode_body(body)["rows"])           ->  the same rows

Values without a JSON form are pairs of a tag and a text. Nothing is pickled: a process that a hostile server controls
can send a wrong value, but no code.
"""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

LENGTH = struct.Struct(">Q")
MAX_DEPTH = 100  # levels of a nested value; deeper levels are replaced by TRUNCATED
MAX_INTEGER_BITS = 14_284  # of an integer; Python does not convert integers of more than 4,300 digits to text
TRUNCATED = "..."
_LIST, _OBJECT, _DECIMAL, _DATE, _DATETIME, _TIME, _BYTES = "l", "o", "n", "d", "dt", "t", "b"


def encode_frame(message: Mapping[str, Any]) -> bytes:
    """Return a message as a frame. Raises ValueError if it cannot be written as JSON."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return LENGTH.pack(len(body)) + body


def decode_body(body: bytes | bytearray) -> dict[str, Any]:
    """Return the message in the body of a frame. Raises ValueError if the body is not a JSON object."""
    message = json.loads(body.decode("utf-8", "surrogatepass"))
    if not isinstance(message, dict):
        raise ValueError("The frame does not contain a JSON object.")
    return message


def rows_as_json(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the rows of a driver in a form that `encode_frame` accepts."""
    return [[_as_json(value, MAX_DEPTH) for value in row] for row in rows]


def rows_from_json(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return the rows that `rows_as_json` has converted. Raises ValueError or TypeError for any other input."""
    return [tuple(map(_from_json, row)) for row in rows]


def _as_json(value: Any, levels: int) -> Any:
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if value.bit_length() <= MAX_INTEGER_BITS else None
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
            return TRUNCATED
        case Mapping():
            return [_OBJECT, {str(name): _as_json(member, levels - 1) for name, member in value.items()}]
        case list() | tuple() | set() | frozenset():
            return [_LIST, [_as_json(item, levels - 1) for item in value]]
        case _:
            return str(value)


def _from_json(item: Any) -> Any:
    if not isinstance(item, list):
        return item
    kind, content = item
    match kind:
        case "l":
            return [_from_json(each) for each in content]
        case "o":
            return {name: _from_json(member) for name, member in content.items()}
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
            raise ValueError(f"{kind!r} is not a valid tag of a value.")
