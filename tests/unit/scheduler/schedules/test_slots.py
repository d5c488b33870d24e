"""Slots: times of day across changes of the clock, intervals, and errors that name the field."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import InvalidRequest
from scheduler.schedules.slots import (
    SHORTHANDS,
    Cron,
    Interval,
    Once,
    moment_of,
    next_slot,
    next_slots,
    parse_spec,
    slots_after,
)

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Asia/Kolkata",
    "Africa/Cairo", "Asia/Beirut", "Pacific/Apia", "Antarctica/Troll", "America/St_Johns",
)  # fmt: skip
zones = st.sampled_from(ZONES)
moments = st.datetimes(datetime(2008, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))
minutes = st.sampled_from(("0", "30", "*/7", "5,55", "59"))
hours = st.sampled_from(("0", "2", "1-3", "*/5", "23,0", "*/2"))
days = st.sampled_from((("*", "*", "*"), ("*", "*", "0"), ("1", "*", "*"), ("*", "3,10", "*"), ("L", "*", "*")))


def of(zone: str, *written: str) -> list[str]:
    """Return the local times of the slots of a date, from the midnight before; `written`: date and expression."""
    date, expression = written
    first = datetime.fromisoformat(date).replace(tzinfo=ZoneInfo(zone))
    last = first + timedelta(days=1)
    found = next_slots(Cron(expression, zone), first - timedelta(seconds=1), 100)
    return [slot.astimezone(ZoneInfo(zone)).strftime("%H:%M %z") for slot in found if slot < last]


@pytest.mark.parametrize(
    ("date", "expression", "expected"),
    [
        ("2026-03-29", "30 2 * * *", ["03:00 +0200"]),  # clocks skip from 2 to 3
        ("2026-03-29", "*/20 2 * * *", ["03:00 +0200"]),
        ("2026-03-29", "0 2,3 * * *", ["03:00 +0200"]),
        ("2026-03-29", "30 1-3 * * *", ["01:30 +0100", "03:00 +0200", "03:30 +0200"]),
        ("2026-10-25", "30 2 * * *", ["02:30 +0200"]),  # clocks show 2 to 3 twice
        ("2026-10-25", "*/30 2 * * *", ["02:00 +0200", "02:30 +0200"]),
        ("2026-10-25", "0 2,3 * * *", ["02:00 +0200", "03:00 +0100"]),
    ],
)
def test_slot_of_a_named_hour_is_due_once_where_the_clock_changes(
    date: str, expression: str, expected: list[str]
) -> None:
    assert of("Europe/Berlin", date, expression) == expected


@pytest.mark.parametrize("expression", ["0 * * * *", "*/15 * * * *", "59 * * * mon-sun"])
@pytest.mark.parametrize("date", ["2026-03-29", "2026-10-25"])
def test_slots_of_every_hour_follow_elapsed_time_where_the_clock_changes(expression: str, date: str) -> None:
    start = datetime.fromisoformat(date).replace(tzinfo=UTC) - timedelta(hours=6)
    found = next_slots(Cron(expression, "Europe/Berlin"), start, 40)

    steps = {later - earlier for earlier, later in pairwise(found)}

    assert steps == {timedelta(minutes=15 if "15" in expression else 60)}


@given(zones, moments, minutes, hours, days)
def test_slots_are_the_local_times_of_the_expression_each_once(
    zone: str, after: datetime, minute: str, hour: str, rest: tuple[str, str, str]
) -> None:
    spec = Cron(" ".join((minute, hour, *rest)), zone)
    local = after.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    naive = Cron(spec.expression, "UTC")
    walls = [slot.replace(tzinfo=None) for slot in next_slots(naive, local.replace(tzinfo=UTC), 12)]

    found = next_slots(spec, after, 12)

    assert found == sorted(set(found))
    assert all(slot > after for slot in found)
    expected = sorted({moment for wall in walls if (moment := moment_of(wall, ZoneInfo(zone))) > after})
    assert found[: len(expected)] == expected[: len(found)]


@given(zones, moments, minutes, st.one_of(hours, st.just("*")), days, st.integers(1, 5))
def test_slots_continue_from_any_slot_as_they_do_without_a_break(
    zone: str, after: datetime, minute: str, hour: str, rest: tuple[str, str, str], broken_at: int
) -> None:
    spec = Cron(" ".join((minute, hour, *rest)), zone)

    found = next_slots(spec, after, 8)

    assert next_slots(spec, found[broken_at - 1], 8 - broken_at) == found[broken_at:]
    assert next_slot(spec, found[broken_at] - timedelta(microseconds=1)) == found[broken_at]


@given(zones, st.datetimes(datetime(2008, 1, 1), datetime(2035, 1, 1)))
def test_moment_of_a_local_time_shows_it_or_is_the_end_of_the_gap(zone: str, wall: datetime) -> None:
    place = ZoneInfo(zone)

    moment = moment_of(wall, place)

    shown = moment.astimezone(place).replace(tzinfo=None)
    if shown != wall:
        before = (moment - timedelta(seconds=1)).astimezone(place).replace(tzinfo=None)
        assert before < wall < shown
    else:
        assert moment.astimezone(place).fold == 0


@given(st.integers(1, 100_000), st.data(), moments)
def test_slots_of_an_interval_are_equally_far_from_the_epoch(every: int, data: st.DataObject, after: datetime) -> None:
    offset = data.draw(st.integers(0, every - 1))

    first, second = next_slots(Interval(every, offset), after, 2)

    assert after < first <= after + timedelta(seconds=every)
    assert int(first.timestamp()) % every == offset
    assert second - first == timedelta(seconds=every)


def test_single_moment_has_one_slot() -> None:
    at = datetime(2027, 1, 1, 8, tzinfo=UTC)

    assert list(slots_after(Once(at), at - timedelta(seconds=1))) == [at]
    assert next_slot(Once(at), at) is None


@pytest.mark.parametrize(
    "spec", [Cron("0 0 1 * *", "Asia/Kolkata"), Cron("0 * * * *", "UTC"), Interval(10**6, 0)], ids=str
)
def test_slots_end_with_the_calendar(spec: Cron | Interval) -> None:
    assert next_slots(spec, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), 2) == []
    assert len(next_slots(spec, datetime(1, 1, 1, tzinfo=UTC), 2)) == 2


@pytest.mark.parametrize(
    "written",
    [
        {"cron": "30 7 * * mon-fri", "time_zone": "Europe/Berlin"},
        {"every_seconds": 90, "offset": 30},
        {"at": "2027-01-01T08:00:00+00:00"},
    ],
)
def test_stored_specification_is_read_as_it_was_written(written: Mapping[str, Any]) -> None:
    assert parse_spec(written).to_json() == written


@pytest.mark.parametrize("shorthand", SHORTHANDS)
def test_shorthand_has_the_slots_of_its_expression(shorthand: str) -> None:
    start = datetime(2026, 5, 5, tzinfo=UTC)

    found = next_slots(parse_spec({"cron": shorthand}), start, 3)

    assert found == next_slots(Cron(SHORTHANDS[shorthand], "UTC"), start, 3)


@pytest.mark.parametrize(
    ("written", "field", "words"),
    [
        ({}, "spec", "`cron`"),
        ({"cron": "* * * * *", "every_seconds": 5}, "spec", "cron and every_seconds"),
        ({"cron": "61 * * * *"}, "spec.cron", "the field minute is '61'"),
        ({"cron": "0 24 * * *"}, "spec.cron", "the field hour is '24'"),
        ({"cron": "0 0 0 * *"}, "spec.cron", "the field day of the month is '0'"),
        ({"cron": "0 0 * 13 *"}, "spec.cron", "the field month is '13'"),
        ({"cron": "0 0 * * fr"}, "spec.cron", "the field day of the week is 'fr'"),
        ({"cron": "0 0 * *"}, "spec.cron", "has 4 fields"),
        ({"cron": "0 0 0 * * *"}, "spec.cron", "`every_seconds`"),
        ({"cron": "0 0 30 2 *"}, "spec.cron", "no date that exists"),
        ({"cron": "@often"}, "spec.cron", "@hourly"),
        ({"cron": 5}, "spec.cron", "a text"),
        ({"cron": "* * * * *", "time_zone": "Europe/Berln"}, "spec.time_zone", "Did you mean Europe/Berlin?"),
        ({"cron": "* * * * *", "time_zone": "../../etc/passwd"}, "spec.time_zone", "not a time zone"),
        ({"cron": "* * * * *", "time_zone": "Europe"}, "spec.time_zone", "not a time zone"),
        ({"cron": "* * * * *", "offset": 5}, "spec.offset", "does not go with `cron`"),
        ({"every_seconds": 0}, "spec.every_seconds", "from 1"),
        ({"every_seconds": True}, "spec.every_seconds", "whole number"),
        ({"every_seconds": 60, "offset": 60}, "spec.offset", "less than"),
        ({"at": "2027-01-01T08:00:00"}, "spec.at", "with its offset"),
        ({"at": "tomorrow"}, "spec.at", "ISO 8601"),
    ],
)
def test_wrong_specification_is_refused_with_its_field_and_the_remedy(
    written: Mapping[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_spec(written)

    assert refused.value.details["field"] == field
    assert words in refused.value.message
