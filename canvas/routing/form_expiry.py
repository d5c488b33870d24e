"""How long a form waits for a person, where the canvas says so (decisions.md 28): `expires_after` of a UserFillUp.

Seconds, or a text with a unit: `90`, `"90"`, `"90s"`, `"30m"`, `"12h"`, `"7d"`, `"2w"`. Missing, null and `""` leave it
to the deployment.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from canvas.graph.canvas import Canvas

LONGEST = timedelta(days=366)
"""A run that waits keeps its rows, so there is an end to it."""

_UNITS: Mapping[str, tuple[str, int]] = {
    "w": ("week", 604_800),
    "d": ("day", 86_400),
    "h": ("hour", 3_600),
    "m": ("minute", 60),
    "s": ("second", 1),
}
_WRITTEN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([wdhms]?)", re.IGNORECASE)


def expires_after(params: Mapping[str, Any]) -> timedelta | None:
    """How long a form with these params waits; None where they do not say.

    Raises ValueError for what is no time, no time at all, or more than a year.
    """
    wanted = params.get("expires_after")
    if wanted is None or wanted == "":
        return None
    seconds = _seconds(wanted)
    if seconds is None or not 0 < seconds <= LONGEST.total_seconds():
        raise ValueError(
            f"expires_after {wanted!r} is no time that a form can wait. "
            f'Give seconds or a text like "30m", "12h" or "7d", {LONGEST.days} days at most.'
        )
    return timedelta(seconds=seconds)


def own_expiry(canvas: Canvas, node_id: str) -> timedelta | None:
    """How long a form of a canvas waits. A time that makes no sense came in unchecked, and counts as none."""
    try:
        return expires_after(canvas.node(node_id).params)
    except ValueError:
        return None


def reason_of_expiry(canvas: Canvas, asked: Sequence[str], usual: timedelta) -> str | None:
    """Why a run fails when the first time of its open forms is over; None if that is the deployment's usual one.

    `asked` are the nodes that ask.
    """
    own, node_id = min(((own_expiry(canvas, node_id), node_id) for node_id in asked), key=lambda time: time[0] or usual)
    if own is None:
        return None
    return f'Nobody has answered the form "{canvas.node(node_id).name or node_id}" ({node_id}) within {in_words(own)}.'


def in_words(time: timedelta) -> str:
    """A time as people say it, in the largest unit that goes into it: `7 days`, `90 seconds`."""
    seconds = time.total_seconds()
    for name, size in list(_UNITS.values())[1:]:
        if seconds % size == 0:
            return _counted(int(seconds // size), name)
    return f"{seconds:g} seconds"


def _seconds(wanted: Any) -> float | None:
    if isinstance(wanted, str):
        written = _WRITTEN.fullmatch(wanted.strip())
        return float(written[1]) * _UNITS[written[2].lower() or "s"][1] if written else None
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not math.isfinite(wanted):
        return None
    return wanted if abs(wanted) < 1e12 else None


def _counted(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"
