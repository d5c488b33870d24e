"""Rendering of the tables of a text as a workbook."""

import io
from typing import Any

import openpyxl
import pytest

from canvas.errors import NodeFailure
from components.documents import render
from components.documents.formats import sheets
from components.documents.formats.sheets import parse_cell


def workbook(text: str) -> dict[str, list[list[Any]]]:
    book = openpyxl.load_workbook(io.BytesIO(render(text, "xlsx")))
    return {sheet.title: [list(row) for row in sheet.iter_rows(values_only=True)] for sheet in book.worksheets}


def test_a_table_is_a_sheet_named_by_the_line_before_it():
    assert workbook("# Sales: Q1\n\n| A | B |\n|---|---|\n| 1 | x |\n| 2 | y |") == {
        "Sales Q1": [["A", "B"], [1, "x"], [2, "y"]]
    }


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("## Heading", "Heading"),
        ("Table of prices", "Table of prices"),
        ("TABLE 2", "TABLE 2"),
        ("Prices: now", "Prices now"),
        ("Just words", "Table_1"),
        ("# a/b\\c*?[d]", "a_b_cd"),
        ("# " + "x" * 40, "x" * 31),
        ("#", "Table_1"),
    ],
)
def test_sheet_titles_are_valid_in_excel(line: str, title: str):
    assert list(workbook(f"{line}\n\n|A|\n|-|\n|1|")) == [title]


def test_table_has_the_nearest_title_and_a_second_one_is_numbered():
    table = "|A|\n|-|\n|1|\n\n"

    titles = list(workbook(f"# One\n# Two\n\nwords\n\n{table}{table}# two\n{table}# {'x' * 31}\n{table}{table}"))

    assert titles == ["Two", "Two_1", "two_2", "x" * 31, "x" * 29 + "_1"]


def test_rows_are_as_long_as_the_header_and_empty_cells_are_dropped():
    (rows,) = workbook("|A|B|\n|-|-|\n|1||2|\n|3|\n|4|5|6|").values()

    assert rows == [["A", "B"], [1, 2], [3, None], [4, 5]] or rows == [["A", "B"], [1, 2], [3, ""], [4, 5]]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("007", "007"),
        ("0", 0),
        ("0.5", 0.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1,234", 1234),
        ("1,234,567.5", 1234567.5),
        ("1,23", "1,23"),
        ("1e999", "1e999"),
        ("9" * 400, "9" * 400),
        ("nan", "nan"),
        ("12 kg", "12 kg"),
        ("٣", "٣"),
        ("1_000", "1_000"),
    ],
)
def test_cells_that_spell_a_number_are_numbers(cell: str, value: Any):
    assert parse_cell(cell) == value
    assert type(parse_cell(cell)) is type(value)


@pytest.mark.parametrize("cell", ["=1+1", "+SUM(A1)", "-cmd", "@x"])
def test_text_never_becomes_a_formula(cell: str):
    book = openpyxl.load_workbook(io.BytesIO(render(f"|={cell}|\n|-|\n|{cell}|", "xlsx")))

    cells = [row[0] for row in book.worksheets[0].iter_rows()]
    assert [(written.data_type, written.value) for written in cells] == [("s", f"={cell}"), ("s", cell)]


def test_a_text_without_tables_is_one_cell():
    for text in ("Just = words", "|A|B|\n|-|-|", "| alone", ""):
        assert list(workbook(text)) == ["Data"]
    assert workbook("=words\n007") == {"Data": [["Content"], ["=words\n007"]]}


def test_workbook_with_too_many_cells_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sheets, "_MAX_CELLS", 10)

    with pytest.raises(NodeFailure, match="more than 10 cells"):
        render("|a" * 6 + "|\n|x|\n", "xlsx")
