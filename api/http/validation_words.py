"""Describe what a schema refuses in the words of RAGFlow's API, which its clients look for."""

from collections.abc import Iterable, Mapping
from typing import Any

MAX_VALUE_CHARS = 128  # of a refused value that a message repeats


def describe_errors(errors: Iterable[Mapping[str, Any]], *, skip: int = 0) -> str:
    """Return one line for each error of pydantic: `Field: <a.b> - Message: <...> - Value: <...>`.

    `skip`: how many steps of an error's location come before the field.
    """
    return "\n".join(describe_field(error["loc"][skip:], error["msg"], error.get("input")) for error in errors)


def describe_field(path: Iterable[Any], message: str, value: Any) -> str:
    """Return the line about one field."""
    shown = str(value)
    if len(shown) > MAX_VALUE_CHARS:
        shown = f"{shown[: MAX_VALUE_CHARS - 3]}..."
    return f"Field: <{'.'.join(map(str, path))}> - Message: <{message}> - Value: <{shown}>"
