"""Expiry of forms: how long a form waits for an answer, by the parameter `expires_after` of a UserFillUp.

The value is in seconds, or a text with a unit: `90`, `"90"`, `"90s"`, `"30m"`, `"12h"`, `"7d"`, `"2w"`. If it is
missing, null or `""`, the deployment's setting applies.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from canvas.graph.canvas import Canvas

MAX_EXPIRY = timedelta(days=366)
"""The largest accepted value. A waiting run keeps its rows, so it must not wait without end."""

_UNITS: Mapping[str, tuple[str, int]] = {
    "w": ("week", 604_800),
    "d": ("day", 86_400),
    "h": ("hour", 3_600),
    "m": ("minute", 60),
    "s": ("second", 1),
}
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([wdhms]?)", re.IGNORECASE)


def expires_after(params: Mapping[str, Any]) -> timedelta | None:
    """Return how long a form with these params waits; None if they do not say.

    Raises ValueError if the value is not a time, is 0 or less, or exceeds 366 days.
    """
    value = params.get("expires_after")
    if value is None or value == "":
        return None
    seconds = _seconds(value)
    if seconds is None or not 0 < seconds <= MAX_EXPIRY.total_seconds():
        raise ValueError(
            f"expires_after {value!r} is not a valid time. "
            f'Give seconds or a text like "30m", "12h" or "7d", {MAX_EXPIRY.days} days at most.'
        )
    return timedelta(seconds=seconds)


def form_expiry_of(canvas: Canvas, node_id: str) -> timedelta | None:
    """Return how long a form of a canvas waits; an invalid time, in a canvas stored unchecked, counts as None."""
    try:
        return expires_after(canvas.node(node_id).params)
    except ValueError:
        return None


def expiry_error(canvas: Canvas, node_ids: Sequence[str], default: timedelta) -> str | None:
    """Return the error of a run whose first open form has expired; None if that form has no time of its own.

    `node_ids` are the ids of the nodes with open forms, `default` is the deployment's time.
    """
    own, node_id = min(
        ((form_expiry_of(canvas, node_id), node_id) for node_id in node_ids), key=lambda time: time[0] or default
    )
    if own is None:
        return None
    name = canvas.node(node_id).name or node_id
    return f'The form "{name}" ({node_id}) was not answered within {format_time(own)}.'


def format_time(time: timedelta) -> str:
    """Format a time in the largest unit that divides it: `7 days`, `90 seconds`."""
    seconds = time.total_seconds()
    for name, size in list(_UNITS.values())[1:]:
        if seconds % size == 0:
            return _format_count(int(seconds // size), name)
    return f"{seconds:g} seconds"


def _seconds(value: Any) -> float | None:
    if isinstance(value, str):
        match = _TIME.fullmatch(value.strip())
        return float(match[1]) * _UNITS[match[2].lower() or "s"][1] if match else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if abs(value) < 1e12 else None


def _format_count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"
