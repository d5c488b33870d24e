"""The range of time of the overview, as requests write it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.viewer.overview import MAX_SPAN, _parse_range
from canvas.errors import InvalidRequest
from store.monitoring.overview import RunRange
from store.primitives.ids import created_at_of, first_id_at


def test_default_is_the_last_day_in_48_parts() -> None:
    before = datetime.now(UTC)

    chosen = _parse_range("", "", "", "48")

    assert before <= chosen.end <= datetime.now(UTC)
    assert (chosen.span, chosen.buckets, chosen.canvas_id) == (timedelta(days=1), 48, None)


@pytest.mark.parametrize(
    "written",
    ["2026-01-31T08:00Z", "2026-01-31T09:00+01:00", "2026-01-31T09:00 01:00", "2026-01-31T08:00", "2026-01-31 08:00"],
)
def test_times_are_utc_unless_they_have_an_offset(written: str) -> None:
    chosen = _parse_range(written, "2026-02-01", "", "1")

    assert chosen.first == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert chosen.end == datetime(2026, 2, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("begin", "to", "buckets", "field"),
    [
        ("x", "", "1", "from"),
        ("", "tomorrow", "1", "to"),
        ("1969-01-01", "1969-01-02", "1", "to"),
        ("9999-12-31", "", "1", "from"),
        ("2026-02-01", "2026-02-01", "1", "from"),
        ("2026-02-02", "2026-02-01", "1", "from"),
        ("2026-01-01", "2026-02-01T00:00:00.001", "1", "from"),
        ("", "", "0", "buckets"),
        ("", "", "121", "buckets"),
        ("", "", "-1", "buckets"),
        ("", "", "١", "buckets"),
        ("", "", "9" * 5000, "buckets"),
    ],
)
def test_invalid_range_is_refused_and_its_parameter_named(begin: str, to: str, buckets: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _parse_range(begin, to, "", buckets)

    assert refused.value.details["field"] == field


def test_longest_range_is_31_days() -> None:
    assert _parse_range("2026-01-01", "2026-02-01", "", "1").span == MAX_SPAN


@given(st.datetimes(datetime(2000, 1, 2), datetime(8000, 1, 1)), st.timedeltas(timedelta(1), timedelta(31)), st.data())
def test_parts_begin_at_the_times_of_their_first_ids(end: datetime, span: timedelta, data: st.DataObject) -> None:
    buckets = data.draw(st.integers(1, 120))
    chosen = RunRange(end.replace(tzinfo=UTC) - span, end.replace(tzinfo=UTC), buckets)

    starts = chosen.starts

    assert len(starts) == buckets
    assert starts == sorted(starts)
    assert first_id_at(starts[0]) == first_id_at(chosen.first)
    assert [created_at_of(first_id_at(start)) for start in starts] == starts
    assert starts[-1] < chosen.end
