"""JSON as rows, messages and keys hold it."""

import json
import re
from typing import Any

import orjson

_MAY_BE_BEYOND_64_BITS = re.compile(rb"[0-9]{19}")


def encode(value: Any) -> str:
    """JSON of a value: key order kept, NaN becomes null, integers of any size."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # an integer beyond 64 bits, or something that is no JSON and then fails here too
        return json.dumps(value, ensure_ascii=False, allow_nan=False)


def decode(data: bytes | bytearray | memoryview | str) -> Any:
    """The inverse: integers of any size stay integers."""
    plain = data.encode() if isinstance(data, str) else data
    return json.loads(bytes(plain)) if _MAY_BE_BEYOND_64_BITS.search(plain) else orjson.loads(plain)
