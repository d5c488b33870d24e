"""JSON that a model wrote: found in an answer, repaired where it is damaged, and made fit to store."""

import math
from collections.abc import Mapping
from typing import Any

import json_repair

from providers.cleaning import clean, without_reasoning


def read_json(answer: str) -> dict[str, Any] | list[Any] | None:
    """The object or array in an answer, repaired where it is damaged; None if there is none.

    Reasoning and a fence around it do not count. What comes out can be stored: no NaN, no infinity, no NUL.
    """
    found = repaired(without_reasoning(answer).rpartition("```json")[2].rstrip().removesuffix("```"))
    return found if isinstance(found, dict | list) else None


def repaired(text: str) -> Any:
    """The JSON value that a text means, plain; None for what is nested deeper than anyone asked for."""
    try:
        return plain(json_repair.loads(text))
    except (ValueError, RecursionError):
        return None


def plain(value: Any) -> Any:
    """The same value as JSON that every encoder and the database take; what is no JSON value becomes its text."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return clean(value)
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [plain(item) for item in value]
        case Mapping():
            return {clean(str(key)): plain(item) for key, item in value.items()}
        case _:
            return clean(str(value))
