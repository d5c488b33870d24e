"""Ids sort by their creation time."""

import time
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.primitives.ids import created_at_of, first_id_at, new_id

MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(3000, 1, 1), timezones=st.just(UTC))


def test_id_is_a_uuid_of_version_7_with_its_creation_time():
    before = datetime.now(UTC) - timedelta(milliseconds=1)

    made = new_id()

    assert made.version == 7
    assert made.variant == RFC_4122
    assert before <= created_at_of(made) <= datetime.now(UTC) + timedelta(seconds=1)


def test_ids_of_one_millisecond_differ_and_sort_in_the_order_they_were_made(monkeypatch: pytest.MonkeyPatch):
    frozen = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: frozen)

    made = [new_id() for _ in range(5_000)]

    assert len(set(made)) == len(made)
    assert made == sorted(made, key=lambda one: one.bytes)


def test_an_id_made_after_the_clock_stepped_back_still_sorts_last(monkeypatch: pytest.MonkeyPatch):
    earlier = new_id()
    an_hour_ago = time.time_ns() - 3_600_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: an_hour_ago)

    later = new_id()

    assert later.bytes > earlier.bytes


def test_bound_lies_between_ids_created_before_and_after_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("store.primitives.ids._last", 0)  # restored when the test ends
    a_century_on = int(datetime(2126, 11, 18, 12, tzinfo=UTC).timestamp()) * 1_000
    monkeypatch.setattr(time, "time_ns", lambda: (a_century_on - 60_000) * 1_000_000)
    before = new_id()
    monkeypatch.setattr(time, "time_ns", lambda: a_century_on * 1_000_000)
    after = new_id()

    bound = first_id_at(datetime(2126, 11, 18, 12, tzinfo=UTC))

    assert before.bytes < bound.bytes < after.bytes


@given(MOMENTS)
def test_a_bound_is_exact_to_the_millisecond(moment: datetime):
    bound = first_id_at(moment)

    assert created_at_of(bound) == moment - timedelta(microseconds=moment.microsecond % 1_000)


@given(MOMENTS, MOMENTS)
def test_bounds_sort_like_their_moments(one: datetime, other: datetime):
    earlier, later = sorted((one, other))

    assert first_id_at(earlier).bytes <= first_id_at(later).bytes
