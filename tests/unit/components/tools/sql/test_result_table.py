import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from components.tools.sql.result_table import ELLIPSIS, MAX_CELL_LENGTH, MAX_DEPTH, json_rows, text_table
from providers.interfaces import Rows

TABLE = """\
|   id | name   |    amount | at         |
|-----:|:-------|----------:|:-----------|
|    1 | Ann    | 10.500000 | 2026-01-02 |
|    2 | Bo     |           |            |"""


def test_rows_become_a_text_table_and_json_objects():
    rows = Rows(
        ["id", "name", "amount", "at"], [(1, "Ann", Decimal("10.5"), datetime(2026, 1, 2)), (2, "Bo", None, None)]
    )

    assert text_table(rows) == TABLE
    assert json_rows(rows) == [
        {"id": 1, "name": "Ann", "amount": 10.5, "at": "2026-01-02"},
        {"id": 2, "name": "Bo", "amount": None, "at": None},
    ]


def test_deeply_nested_value_is_truncated():
    deep: Any = 1
    for _ in range(900):
        deep = [deep]

    cell = json_rows(Rows(["v"], [(deep,)]))[0]["v"]

    assert json.dumps(cell) == "[" * MAX_DEPTH + f'"{ELLIPSIS}"' + "]" * MAX_DEPTH


def test_column_without_values_is_aligned_as_text():
    assert text_table(Rows(["price"], [(None,)])) == "| price   |\n|:--------|\n|         |"


def test_whole_numbers_stay_whole_beside_a_null():
    assert text_table(Rows(["n"], [(1,), (None,)])) == "|   n |\n|----:|\n|   1 |\n|     |"


def test_timestamps_show_their_time_unless_all_are_midnights():
    rows = Rows(["at"], [(datetime(2026, 1, 2),), (datetime(2026, 1, 2, 9, 30, tzinfo=UTC),)])

    assert [row["at"] for row in json_rows(rows)] == ["2026-01-02T00:00:00", "2026-01-02T09:30:00+00:00"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (float("nan"), None),
        (Decimal("Infinity"), None),
        pytest.param(10**5000, None, id="a number too long to print"),
        (date(2026, 1, 2), "2026-01-02"),
        (timedelta(hours=1), "1:00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"text", "text"),
        (b"\xff\x00", "ff00"),
        ({"a": (1, Decimal("2.5"))}, {"a": [1, 2.5]}),
        ("a\x00\ud800", "a\ufffd"),
    ],
)
def test_values_of_a_driver_become_json(value: Any, expected: Any):
    assert json_rows(Rows(["v"], [(value,)])) == [{"v": expected}]


def test_long_cell_is_truncated():
    [row] = json_rows(Rows(["v"], [("x" * MAX_CELL_LENGTH + "y",)]))

    assert row["v"] == "x" * MAX_CELL_LENGTH + "..."


def test_booleans_objects_and_lines_are_one_line_of_text_in_a_table():
    table = text_table(Rows(["ok", "doc", "text"], [(True, {"a": 1}, "a\nb")]))

    assert table.splitlines()[2] == '| True | {"a": 1} | a b    |'


def test_pipes_in_cells_and_names_are_escaped():
    assert text_table(Rows(["a|b", "n"], [("x|y", 1)])).splitlines() == [
        "| a\\|b   |   n |",
        "|:-------|----:|",
        "| x\\|y   |   1 |",
    ]
