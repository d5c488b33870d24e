"""Values in Python's own text form: compared as such, and read from it. DataOperations and ListOperations share it.

A filter compares what Python would print (`True`, `1.0`, `[1, 'a']`; null is empty). A literal is what Python would
read, as a JSON value: tuples and sets are lists, keys are texts. Nothing is ever evaluated.
"""

import ast
import math
from typing import Any

from components.nodes.flow.comparison import TEXT_OPERATORS
from components.text.templates import templates

LONGEST_LITERAL = 200_000  # characters; reading a text takes up to 500 bytes of memory for each of its characters
DEEPEST_LITERAL = 100
LARGEST_NUMBER = 10**4300 - 1  # Python prints and reads no longer ones

_PART_OPERATORS = ("contains", "start with", "end with")
_QUOTES_AND_BRACKETS = ("{", "[", "(", "'", '"')


def matches(value: Any, operator: Any, text: str) -> bool:
    """Whether a filter's rule holds for the text form of a value; case counts. An unknown operator never holds."""
    if operator in ("=", "≠"):
        return (templates.plain_text(value) == text) == (operator == "=")
    return operator in _PART_OPERATORS and TEXT_OPERATORS[operator](templates.plain_text(value), text)


def literal(text: str) -> Any:
    """The value that a text writes as a Python literal; the text itself if it writes none that JSON can hold."""
    if not _looks_like_a_literal(text) or len(text) > LONGEST_LITERAL:
        return text
    try:
        return _as_json(ast.literal_eval(text), DEEPEST_LITERAL)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # the parser's ways to say no
        return text


def _looks_like_a_literal(text: str) -> bool:
    """Containers, quoted texts, constants, and numbers made of digits and dots only: `-3` and `1e3` are texts."""
    bare = text.strip()
    if bare.startswith(_QUOTES_AND_BRACKETS) or bare.lower() in ("true", "false", "none"):
        return True
    return bare.replace(".", "").isdigit()


def _as_json(value: Any, levels: int) -> Any:
    """What Python has read as JSON. Raises ValueError for what JSON has not: bytes, complex numbers, infinities."""
    if levels == 0:
        raise ValueError("nested too deeply")
    match value:
        case None | bool():
            return value
        case str():
            return _whole_text(value)
        case int() if abs(value) <= LARGEST_NUMBER:
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_as_json(item, levels - 1) for item in value]
        case set():
            return sorted((_as_json(item, levels - 1) for item in value), key=str)
        case dict():
            return {_key(key, levels): _as_json(item, levels - 1) for key, item in value.items()}
        case _:
            raise ValueError(f"a {type(value).__name__} is no JSON")


def _key(key: Any, levels: int) -> str:
    return key_text if isinstance(key_text := _as_json(key, levels - 1), str) else templates.json_text(key_text)


def _whole_text(text: str) -> str:
    """The text with its surrogate pairs joined. Raises ValueError for what cannot be stored: half a pair, U+0000."""
    if "\x00" in text:
        raise ValueError("a text holds U+0000")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")
