"""Encoding of the values that a database session's process sends to its worker."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.databases import session_frames as wire

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.times()
    | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def round_trip(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    frame = wire.encode_frame({"rows": wire.rows_as_json(rows)})
    return wire.rows_from_json(wire.decode_body(frame[wire.LENGTH.size :])["rows"])


@given(st.lists(st.tuples(values, values)))
def test_rows_arrive_as_they_were_sent(rows: list[tuple[Any, ...]]):
    assert round_trip(rows) == rows


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        ("\ud800", "\ud800"),
        pytest.param(10**5000, None, id="a number that Python does not write"),
        (UUID(int=1), str(UUID(int=1))),
        (timedelta(hours=1), "1:00:00"),
        (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
        (date(2026, 1, 2), date(2026, 1, 2)),
        (time(1, 2), time(1, 2)),
        (Decimal("1.50"), Decimal("1.50")),
        (memoryview(b"a"), b"a"),
        ((1, {2}), [1, [2]]),
        ({1: 2}, {"1": 2}),
    ],
)
def test_value_without_a_json_form_is_restored_or_becomes_text(sent: Any, arrives: Any):
    assert round_trip([(sent,)]) == [(arrives,)]


def test_deeply_nested_value_is_truncated():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    [(value,)] = round_trip([(deep,)])

    for _ in range(wire.MAX_DEPTH):
        [value] = value
    assert value == wire.TRUNCATED


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b'"x"', b"\xff"])
def test_frame_that_is_not_an_object_is_refused(body: bytes):
    with pytest.raises(ValueError):  # noqa: PT011 (only the exception type is specified)
        wire.decode_body(body)


@pytest.mark.parametrize("row", [["?", 1], ["l"], ["d", "x"]])
def test_value_of_an_unknown_kind_is_refused(row: Any):
    with pytest.raises(ValueError):  # noqa: PT011 (only the exception type is specified)
        wire.rows_from_json([[row]])
