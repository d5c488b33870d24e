"""Values in Python's text form: compare them, and read literals. DataOperations and ListOperations share it.

A filter compares the text that Python would print (`True`, `1.0`, `[1, 'a']`; null is empty). A Python literal becomes
a JSON value: tuples and sets become lists, keys become texts. Code is never evaluated.
"""

import ast
import math
from typing import Any

from components.text.comparison import TEXT_OPERATORS
from components.text.templates import templates

MAX_LITERAL_CHARS = 200_000  # characters; reading a text takes up to 500 bytes of memory for each of its characters
MAX_LITERAL_LEVELS = 100
MAX_INTEGER = 10**4300 - 1  # Python neither prints nor reads longer integers

_PART_OPERATORS = ("contains", "start with", "end with")
_QUOTES_AND_BRACKETS = ("{", "[", "(", "'", '"')


def matches(value: Any, operator: Any, text: str) -> bool:
    """Return whether a filter's rule holds for the text form of a value, with regard to case; False for an unknown
    operator.
    """
    if operator in ("=", "≠"):
        return (templates.plain_text(value) == text) == (operator == "=")
    return operator in _PART_OPERATORS and TEXT_OPERATORS[operator](templates.plain_text(value), text)


def read_literal(text: str) -> Any:
    """Return the value of a Python literal; return the text itself if it is not one, or JSON has no such value."""
    if not _looks_like_a_literal(text) or len(text) > MAX_LITERAL_CHARS:
        return text
    try:
        return _as_json(ast.literal_eval(text), MAX_LITERAL_LEVELS)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # all errors of the parser
        return text


def _looks_like_a_literal(text: str) -> bool:
    """Return whether a text may be a container, a quoted text, a constant, or a number.

    Numbers consist of digits and dots only: `-3` and `1e3` are texts.
    """
    bare = text.strip()
    if bare.startswith(_QUOTES_AND_BRACKETS) or bare.lower() in ("true", "false", "none"):
        return True
    return bare.replace(".", "").isdigit()


def _as_json(value: Any, levels: int) -> Any:
    """Return a Python value as a JSON value. Raises ValueError if JSON has no such value: bytes, complex, infinity."""
    if levels == 0:
        raise ValueError("nested too deeply")
    match value:
        case None | bool():
            return value
        case str():
            return _join_surrogates(value)
        case int() if abs(value) <= MAX_INTEGER:
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
            raise ValueError(f"JSON has no {type(value).__name__}")


def _key(key: Any, levels: int) -> str:
    return key_text if isinstance(key_text := _as_json(key, levels - 1), str) else templates.json_text(key_text)


def _join_surrogates(text: str) -> str:
    """Return the text with its surrogate pairs joined. Raises ValueError for a lone surrogate or U+0000."""
    if "\x00" in text:
        raise ValueError("a text holds U+0000")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")
