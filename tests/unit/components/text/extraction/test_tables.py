"""Tables are made of grids and values, stacked and joined."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.errors import NodeFailure
from components.text.extraction import tables
from components.text.extraction.tables import Table, from_grid, from_rows, from_value, join, stack, to_markdown

NAMES = from_grid([["id", "name"], [1, "a"], [2, "b"]])
VALUES = from_grid([["id", "v"], [2, 20], [3, 30]])
CELLS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["1", "a", ""])
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=6).map(lambda rows: from_grid([["k", "v"], *rows]))


def test_the_first_line_of_a_grid_names_the_columns():
    table = from_grid([["id", "name"], [1, "a"], [2, "b"]])

    assert table == Table(["id", "name"], [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["a", None, "b", ""], ["a", "Unnamed: 1", "b", "Unnamed: 3"]),
        (["x", "x", "x"], ["x", "x.1", "x.2"]),
        (["x", "x.1", "x"], ["x", "x.1", "x.2"]),
        (["Unnamed: 1", None], ["Unnamed: 1", "Unnamed: 1.1"]),
        ([2024, 1.5, True], ["2024", "1.5", "True"]),
    ],
)
def test_column_names_are_unique(cells: list[Any], names: list[str]):
    assert from_grid([cells]).columns == names


def test_lines_of_different_length_are_padded_with_null():
    assert from_grid([["a"], [1, 2], []]).rows == [{"a": 1, "Unnamed: 1": 2}, {"a": None, "Unnamed: 1": None}]


def test_missing_columns_of_rows_are_null():
    table = from_rows([{"a": 1, "b": "x"}, {"c": 3, "a": 2}, 7])

    assert table.columns == ["a", "b", "c", "0"]
    assert table.rows[1] == {"a": 2, "b": None, "c": 3, "0": None}
    assert table.rows[2] == {"a": None, "b": None, "c": None, "0": 7}


@pytest.mark.parametrize(
    ("value", "sheets"),
    [
        ({"A": [{"x": 1}], "B": []}, {"A": Table(["x"], [{"x": 1}]), "B": Table([], [])}),
        ({"x": 1, "y": [2]}, {"Sheet1": Table(["x", "y"], [{"x": 1, "y": [2]}])}),
        ([{"x": 1}], {"Sheet1": Table(["x"], [{"x": 1}])}),
        ([["x"], [1]], {"Sheet1": Table(["x"], [{"x": 1}])}),
        ([1], {"Sheet1": Table(["0"], [{"0": 1}])}),
        ({}, {}),
        ("text", None),
        (5, None),
        (None, None),
    ],
)
def test_value_becomes_sheets_or_one_row_or_rows(value: Any, sheets: Any):
    assert from_value(value) == sheets


def test_stacked_tables_have_all_columns():
    assert stack([NAMES, VALUES]).rows == [
        {"id": 1, "name": "a", "v": None},
        {"id": 2, "name": "b", "v": None},
        {"id": 2, "name": None, "v": 20},
        {"id": 3, "name": None, "v": 30},
    ]


def test_join_contains_rows_that_only_one_side_has():
    assert join(NAMES, VALUES, "id").rows == [
        {"id": 1, "name": "a", "v": None},
        {"id": 2, "name": "b", "v": 20},
        {"id": 3, "name": None, "v": 30},
    ]


def test_columns_of_both_sides_get_suffixes():
    left, right = from_grid([["id", "v", "v_x"], [1, "l", "w"]]), from_grid([["v", "id"], ["r", 1]])

    assert join(left, right, "id").rows == [{"id": 1, "v_x_x": "l", "v_x": "w", "v_y": "r"}]


def test_rows_with_the_same_value_are_joined_and_null_comes_last():
    left, right = from_grid([["k", "l"], [None, 0], ["1", 1], [1, 2], [1, 3]]), from_grid([["k", "r"], [1, 4], [1, 5]])

    rows = join(left, right, "k").rows

    assert [(row["k"], row["l"], row["r"]) for row in rows] == [
        (1, 2, 4), (1, 2, 5), (1, 3, 4), (1, 3, 5), ("1", 1, None), (None, 0, None)
    ]  # fmt: skip


@given(TABLES, TABLES)
@settings(max_examples=25)
def test_a_join_loses_no_row_of_either_side(left: Table, right: Table):
    rows = join(left, right, "k").rows

    assert {(row["k"], row["v"]) for row in left.rows} <= {(row["k"], row["v_x"]) for row in rows}
    assert {(row["k"], row["v"]) for row in right.rows} <= {(row["k"], row["v_y"]) for row in rows}


def test_table_with_too_many_cells_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "MAX_CELLS", 6)
    twice = from_grid([["k", "v"], [1, 1], [1, 2]])

    for make in (
        lambda: from_grid([[1, 2, 3], [], []]),
        lambda: from_rows([{"a": 1}, {"b": 1}, {"c": 1}]),
        lambda: stack([twice, twice]),
        lambda: join(twice, twice, "k"),
    ):
        with pytest.raises(NodeFailure, match="more than 6 cells"):
            make()


def test_markdown_shows_the_first_rows_with_special_characters_escaped():
    table = from_rows([{"a|b": None, "c": "x|y\nz"}, {"a|b": [1], "c": 2}, {"a|b": 3}])

    assert to_markdown(table, 2) == "| a\\|b | c |\n| --- | --- |\n|  | x\\|y z |\n| [1] | 2 |"
    assert to_markdown(from_rows([]), 2) == ""
