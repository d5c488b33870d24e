"""Weeks of runs."""

from datetime import UTC, datetime

import pytest

from store.primitives.ids import first_id_at
from store.primitives.weeks import Week


@pytest.mark.parametrize(
    "moment",
    [datetime(2026, 11, 22, 23, 59, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC), datetime(2020, 12, 31, tzinfo=UTC)],
)
def test_week_is_found_by_its_name_and_by_an_id_of_its_runs(moment: datetime):
    week = Week.of(moment)

    assert Week.from_name(week.name) == week
    assert Week.of_run(first_id_at(moment)) == week
    assert week.begins_at <= moment < week.ends_at


@pytest.mark.parametrize("name", ["", "ab", "2026w60", "2026w00", "2026-47", "2026w470", "0000w10"])
def test_name_that_is_not_a_week_gives_none(name: str):
    assert Week.from_name(name) is None
