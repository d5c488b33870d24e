"""Two values that differ, as people read them: on a line each, cut to the part in which they begin to differ."""

import json
from typing import Any, Final

WIDTH = 160  # characters of each side
_CONTEXT = 40  # characters that are shown of two long texts before they differ


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing()
"""The value of a side that has none."""


def shown_pair(one: Any, other: Any) -> tuple[str, str]:
    """Return two JSON values as texts; of two long ones, the part where they begin to differ."""
    left, right = _format_value(one), _format_value(other)
    if max(len(left), len(right)) <= WIDTH:
        return left, right
    parting = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return _cut(left, parting), _cut(right, parting)


def _cut(text: str, parting: int) -> str:
    start = max(0, parting - _CONTEXT) if len(text) > WIDTH else 0
    end = start + WIDTH
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"


def _format_value(value: Any) -> str:
    return str(value) if value is NOTHING else json.dumps(value, ensure_ascii=False, default=str)
