"""Plans: which slot is fired now, which slots are missed, and that every slot has exactly one fate."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.schedules.planning import GRACE, MAX_COUNTED, MAX_WAITING, CatchUp, Missed, Plan, first_slot, plan
from scheduler.schedules.slots import Interval, Once, next_slots

NOON = datetime(2026, 11, 4, 12, tzinfo=UTC)
HOURLY = Interval(3600, 0)
MINUTE = timedelta(minutes=1)
NOTHING_LATE = CatchUp(timedelta(0), 1)


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def test_slot_on_time_is_fired_without_any_catch_up() -> None:
    late_by = GRACE - timedelta(seconds=1)

    assert plan(HOURLY, NOON, NOON + late_by, NOTHING_LATE) == Plan(NOON, None, NOON + hours(1))


def test_late_slot_outside_of_the_window_is_missed() -> None:
    now = NOON + 5 * MINUTE

    assert plan(HOURLY, NOON, now, NOTHING_LATE) == Plan(None, Missed(NOON, 1), NOON + hours(1))
    assert plan(HOURLY, NOON, now, CatchUp(5 * MINUTE, 1)) == Plan(NOON, None, NOON + hours(1))


@pytest.mark.parametrize(("at_most", "first_fired", "missed"), [(1, 5, 5), (3, 3, 3), (10, 2, 2)])
def test_last_late_slots_are_caught_up_and_older_ones_are_missed(at_most: int, first_fired: int, missed: int) -> None:
    now = NOON + hours(5.5)

    planned = plan(HOURLY, NOON, now, CatchUp(hours(3.5), at_most))

    assert planned == Plan(NOON + hours(first_fired), Missed(NOON, missed), NOON + hours(first_fired + 1))


def test_slots_that_wait_for_the_previous_run_are_not_late() -> None:
    now = NOON + hours(5.5)

    planned = plan(HOURLY, NOON, now, NOTHING_LATE, waiting_since=NOON)

    assert planned == Plan(NOON, None, NOON + hours(1))


def test_oldest_of_too_many_waiting_slots_are_missed() -> None:
    now = NOON + hours(MAX_WAITING + 9.5)

    planned = plan(HOURLY, NOON, now, NOTHING_LATE, waiting_since=NOON)

    assert planned == Plan(NOON + hours(10), Missed(NOON, 10), NOON + hours(11))


def test_no_slot_is_fired_after_the_end() -> None:
    end_at = NOON + hours(1.5)

    assert plan(HOURLY, NOON, NOON, NOTHING_LATE, end_at=end_at).following == NOON + hours(1)
    assert plan(HOURLY, NOON + hours(1), NOON + hours(1), NOTHING_LATE, end_at=end_at).following is None
    assert first_slot(HOURLY, NOON + hours(1), end_at=end_at) is None


def test_years_of_missed_slots_are_counted_up_to_a_limit() -> None:
    planned = plan(Interval(1, 0), NOON, NOON + timedelta(days=3650), NOTHING_LATE)

    assert planned.missed is not None
    assert planned.missed.count >= MAX_COUNTED
    assert planned.slot == NOON + timedelta(days=3650) - GRACE


def test_clock_that_was_set_back_fires_no_slot_twice() -> None:
    assert first_slot(HOURLY, NOON - hours(5), last=NOON) == NOON + hours(1)


def test_single_moment_is_missed_or_fired_and_then_over() -> None:
    once = Once(NOON)

    assert plan(once, NOON, NOON + hours(2), CatchUp(hours(1), 1)) == Plan(None, Missed(NOON, 1), None)
    assert plan(once, NOON, NOON + hours(1), CatchUp(hours(1), 1)) == Plan(NOON, None, None)


@given(
    st.integers(20, 4000),
    st.lists(st.integers(0, 20_000), min_size=1, max_size=20),
    st.integers(0, 10_000),
    st.integers(1, 5),
)
def test_every_slot_is_fired_or_missed_exactly_once_however_rarely_it_is_looked(
    every: int, pauses: list[int], window: int, at_most: int
) -> None:
    spec, now = Interval(every, 0), NOON
    following = first_slot(spec, now - timedelta(seconds=1))
    expected_first = following
    fired: list[datetime] = []
    missed = 0

    for pause in pauses:
        now += timedelta(seconds=pause)
        while following is not None and following <= now:
            planned = plan(spec, following, now, CatchUp(timedelta(seconds=window), at_most))
            assert planned.following is not None
            assert planned.following > following
            fired += [planned.slot] if planned.slot is not None else []
            missed += planned.missed.count if planned.missed is not None else 0
            following = planned.following

    assert expected_first is not None
    assert fired == sorted(set(fired))
    due = next_slots(spec, expected_first - timedelta(seconds=1), 100_000, until=now)
    assert set(fired) <= set(due)
    assert len(fired) + missed == len(due)
