"""Checks of tool parameters. They run when the canvas is loaded and raise ValueError in RAGFlow's words.

    top_n: Annotated[int, positive("Top N")] = 10

The web UI stores some numbers as text, so texts that spell numbers are accepted.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BeforeValidator

_WHOLE_NUMBER = re.compile(r"\s*\+?\d{1,9}\s*")


def positive(label: str) -> BeforeValidator:
    """Return a check for a whole number above 0, also as text or float."""

    def check(value: Any) -> int:
        number = whole_number(value)
        if number is None or number <= 0:
            raise ValueError(f"{label} {value} not supported, should be positive integer")
        return number

    return BeforeValidator(check)


def one_of(label: str, options: Sequence[str], *, by_reference: bool = False) -> BeforeValidator:
    """Return a check for one of some texts; with `by_reference` a text with references is accepted, too."""

    def check(value: Any) -> Any:
        if value not in options and not (by_reference and may_have_references(value)):
            raise ValueError(f"{label} {value} is not supported, it should be in [{', '.join(options)}]")
        return value

    return BeforeValidator(check)


def not_empty(label: str) -> BeforeValidator:
    """Return a check for a value that is not empty."""

    def check(value: Any) -> Any:
        if value is None or (isinstance(value, str) and not value.strip()):
            raise ValueError(f"{label} does not support empty value.")
        return value

    return BeforeValidator(check)


def flag(label: str) -> BeforeValidator:
    """Return a check for a boolean, also as text."""

    def check(value: Any) -> bool:
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        if not isinstance(value, bool):
            raise ValueError(f"{label} {value} not supported, should be boolean")
        return value

    return BeforeValidator(check)


def whole_number(value: Any) -> int | None:
    """Return the whole number that a value is or spells; None for any other value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        return int(value) if _WHOLE_NUMBER.fullmatch(value) else None
    return value if isinstance(value, int) else None


def parse_list(value: Any) -> Any:
    """Return the list for a text that is a JSON list; any other value unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def may_have_references(value: Any) -> bool:
    """Whether a text may contain references, so that it can only be checked once they are resolved."""
    return isinstance(value, str) and ("{" in value or "@" in value or value.startswith(("sys.", "env.")))


def text_list(value: Any) -> list[str]:
    """Return the non-empty texts of a list, of a JSON list written by a model, or of a comma-separated text."""
    values = parse_list(value)
    items = values.split(",") if isinstance(values, str) else values if isinstance(values, list | tuple) else ()
    stripped = (str(item).strip() for item in items if item is not None)
    return [text for text in stripped if text]
