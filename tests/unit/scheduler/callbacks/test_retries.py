"""When a failed delivery is tried again."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.callbacks.retries import DEFAULT_SCHEDULE, JITTER, LONGEST, RetrySchedule, parse_retry_after

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
FIRST = st.timedeltas(min_value=timedelta(milliseconds=1), max_value=timedelta(hours=8))
PERIOD = st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=7))


def test_default_schedule_tries_about_a_dozen_times_in_a_day() -> None:
    at, waits = NOW, list[timedelta]()
    while (wait := DEFAULT_SCHEDULE.next_wait(len(waits) + 1, NOW, at, 0.5)) is not None:
        waits.append(wait)
        at += wait

    assert [wait.total_seconds() for wait in waits[:4]] == [5, 15, 45, 135]
    assert 10 <= len(waits) <= 12
    assert timedelta(hours=16) < at - NOW <= timedelta(hours=24)


@given(FIRST, PERIOD, st.integers(1, 1000))
def test_delays_never_shrink_and_have_a_limit(first: timedelta, period: timedelta, tries: int) -> None:
    schedule = RetrySchedule(first, period)

    assert timedelta(0) < schedule.delay(tries) <= schedule.delay(tries + 1) <= max(LONGEST, first)


@given(FIRST, PERIOD, st.integers(1, 50), st.floats(0, 1), st.timedeltas(timedelta(0), timedelta(days=7)))
def test_wait_is_the_delay_with_jitter_and_ends_within_the_period(
    first: timedelta, period: timedelta, tries: int, chance: float, elapsed: timedelta
) -> None:
    schedule, delay = RetrySchedule(first, period), RetrySchedule(first, period).delay(tries)

    wait = schedule.next_wait(tries, NOW, NOW + elapsed, chance)

    rounding = timedelta(microseconds=1)
    if wait is None:
        assert elapsed + delay * (1 + JITTER) + rounding >= period
    else:
        assert delay * (1 - JITTER) - rounding <= wait <= delay * (1 + JITTER) + rounding
        assert elapsed + wait <= period


@given(FIRST, PERIOD, st.integers(1, 50), st.floats(0, 1), st.timedeltas(timedelta(0), timedelta(days=30)))
def test_wait_that_a_receiver_asks_for_is_obeyed_within_the_period(
    first: timedelta, period: timedelta, tries: int, chance: float, asked: timedelta
) -> None:
    schedule = RetrySchedule(first, period)

    own = schedule.next_wait(tries, NOW, NOW, chance)
    wait = schedule.next_wait(tries, NOW, NOW, chance, asked)

    assert wait == (max(own, min(asked, period)) if own is not None else None)


@given(FIRST, PERIOD, st.lists(st.tuples(st.floats(0, 1), st.none() | st.just(timedelta(days=9))), max_size=5))
def test_every_delivery_is_given_up_at_last(
    first: timedelta, period: timedelta, answers: list[tuple[float, timedelta | None]]
) -> None:
    schedule, at, tries = RetrySchedule(first, period), NOW, 1
    while tries < 10_000:
        chance, asked = answers[tries % len(answers)] if answers else (0.0, None)
        wait = schedule.next_wait(tries, NOW, at, chance, asked)
        if wait is None:
            return
        at, tries = at + wait, tries + 1
    raise AssertionError("It is tried for ever.")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("120", 120), (" 7 ", 7), ("Mon, 05 Jan 2026 08:01:00 GMT", 60), ("Mon, 05 Jan 2026 07:00:00 GMT", None),
     ("soon", None), ("-5", None), ("", None), (None, None)],
)  # fmt: skip
def test_retry_after_is_read_as_seconds_or_a_date(written: str | None, seconds: int | None) -> None:
    assert parse_retry_after(written, NOW) == (timedelta(seconds=seconds) if seconds is not None else None)
