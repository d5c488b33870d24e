"""The JSON encoding of rows, messages and keys."""

import json
import re
from typing import Any

import orjson

_MAY_BE_BEYOND_64_BITS = re.compile(rb"[0-9]{19}")


def encode(value: Any) -> str:
    """Return a value as JSON: keys stay in order, NaN becomes null, integers may have any size."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # an integer beyond 64 bits; a value that is not JSON fails here too
        return json.dumps(value, ensure_ascii=False, allow_nan=False)


def decode(data: bytes | bytearray | memoryview | str) -> Any:
    """Return the value of a JSON text; integers of any size stay integers."""
    plain = data.encode() if isinstance(data, str) else data
    return json.loads(bytes(plain)) if _MAY_BE_BEYOND_64_BITS.search(plain) else orjson.loads(plain)
