"""What a schedule does now: which slot it fires, and which slots it has missed. Pure: no database and no clock.

A slot is on time until GRACE has passed. A later slot is caught up if it is not older than the window of the schedule,
and one of the last `at_most` such slots; all others are missed. Slots of a schedule that waits for its previous run
(overlap `enqueue`) are not late while they wait.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.schedules.slots import Spec, next_slot, slots_after

GRACE = timedelta(seconds=10)
"""How late a slot may be and still count as on time."""
MAX_WAITING = 100
"""Slots on time that may be due at once: those behind a long run. Older ones are missed."""
MAX_COUNTED = 1000
"""Missed slots before the window that are counted."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How old a late slot may be, and how many late slots are fired."""

    window: timedelta
    at_most: int


@dataclass(frozen=True, slots=True)
class Missed:
    """Slots that are not fired. `count` ends at MAX_COUNTED for those before the window."""

    first: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What is due: the slot to fire now (None: none), what was missed, and the slot that is handled next."""

    slot: datetime | None
    missed: Missed | None
    following: datetime | None


def plan(
    spec: Spec,
    first: datetime,
    now: datetime,
    catch_up: CatchUp,
    *,
    waiting_since: datetime | None = None,
    end_at: datetime | None = None,
) -> Plan:
    """Return what a schedule does at `now` whose first slot that was not handled yet is `first`.

    `waiting_since`: since when its slots have waited for a previous run. `end_at`: no slot is later.
    """
    reference = min(waiting_since or now, now)
    on_time_from = reference - GRACE
    horizon = min(reference - catch_up.window, on_time_from)
    until = now if end_at is None else min(now, end_at)
    missed = 0
    start: datetime | None = first
    if first < horizon:
        for slot in slots_after(spec, first - timedelta(microseconds=1)):
            if slot >= horizon or slot > until or missed == MAX_COUNTED:
                break
            missed += 1
        start = next_slot(spec, horizon - timedelta(microseconds=1))
    late: deque[datetime] = deque(maxlen=catch_up.at_most)
    on_time: deque[datetime] = deque(maxlen=MAX_WAITING)
    total = 0
    if start is not None and start <= until:
        for slot in slots_after(spec, start - timedelta(microseconds=1)):
            if slot > until:
                break
            total += 1
            (late if slot < on_time_from else on_time).append(slot)
    kept = [*late, *on_time] if len(on_time) < MAX_WAITING else [*on_time]
    missed += total - len(kept)
    chosen = kept[0] if kept else None
    following = next_slot(spec, chosen or until) if chosen or missed else first
    if following is not None and end_at is not None and following > end_at:
        following = None
    return Plan(chosen, Missed(first, missed) if missed else None, following)


def first_slot(
    spec: Spec, now: datetime, *, last: datetime | None = None, end_at: datetime | None = None
) -> datetime | None:
    """Return the slot at which a new, changed or resumed schedule is due next; None if it has ended.

    `last`: the slot that it fired last. No slot is fired twice, even if the clock was set back.
    """
    found = next_slot(spec, max(now, last) if last is not None else now)
    return found if found is None or end_at is None or found <= end_at else None
