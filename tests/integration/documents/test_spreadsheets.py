"""Spreadsheet files are read into tables and written from tables."""

import asyncio
import io
from datetime import datetime, time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl import Workbook, load_workbook

from canvas.errors import NodeFailure
from components.text.extraction import spreadsheets
from components.text.extraction.file_kinds import FileTooLarge, FileUnreadable
from components.text.extraction.spreadsheets import parse_grids, read_tables, write_csv, write_xlsx
from components.text.extraction.tables import Table, from_rows

CELLS = st.none() | st.booleans() | st.integers(-(10**14), 10**14) | st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=8
).filter(lambda text: text not in spreadsheets._NO_VALUE)  # fmt: skip


def workbook(**sheets: list[list[Any]]) -> bytes:
    book = Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets.items():
        page = book.create_sheet(name)
        for row in rows:
            page.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def open_workbook(data: bytes) -> Any:
    return load_workbook(io.BytesIO(data))


def tables_of(name: str, data: bytes, selection: str = "all") -> dict[str, Table]:
    return asyncio.run(read_tables(name, data, selection))


def rows_of(data: bytes, name: str = "a.xlsx") -> Any:
    return next(iter(tables_of(name, data).values())).rows


def test_a_workbook_has_a_table_for_each_sheet():
    data = workbook(S1=[["id", "name"], [1, "a"]], S2=[["x"]], S3=[])

    assert tables_of("a.xlsx", data) == {
        "S1": Table(["id", "name"], [{"id": 1, "name": "a"}]), "S2": Table(["x"], []), "S3": Table([], []),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (3.0, 3), (2.5, 2.5), (True, True), (None, None), ("NA", None), ("#DIV/0!", None), ("nan", None), (" ", " "),
        (datetime(2024, 1, 31), "2024-01-31T00:00:00"), (time(9, 30), "09:30:00"), ("=1+1", None), ("007", "007"),
    ],
)  # fmt: skip
def test_cells_become_json(cell: Any, value: Any):
    read = rows_of(workbook(S=[["a", "b"], [cell, 1]]))[0]["a"]

    assert read == value
    assert type(read) is type(value)


def test_trailing_empty_rows_and_cells_are_omitted():
    data = workbook(S=[["a", None], [None, None], [1, None], [None, None]])

    assert rows_of(data) == [{"a": None}, {"a": 1}]


def test_column_named_na_is_not_a_missing_value():
    assert rows_of(b"NA,x\n1,2", "a.csv") == [{"NA": 1, "x": 2}]


@pytest.mark.parametrize(
    ("selection", "sheets"),
    [
        ("all", ["S1", "S2"]), ("", ["S1", "S2"]), ("first", ["S1"]), ("S2", ["S2"]), ("S2, nope , S1", ["S1", "S2"]),
        ("nope", []),
    ],
)  # fmt: skip
def test_sheets_are_chosen_by_name(selection: str, sheets: list[str]):
    assert list(tables_of("a.xlsx", workbook(S1=[["a"]], S2=[["b"]]), selection)) == sheets


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1", "+2", ""], [1, 2, None]), (["1", "2.5"], [1, 2.5]), (["007", "8"], [7, 8]), (["1", "x"], ["1", "x"]),
        (["True", "false", "NA"], [True, False, None]), (["1e999", "2"], [None, 2]), (["True", "1"], ["True", "1"]),
        (["1234567890123456789", "1"], ["1234567890123456789", "1"]), (["inf", "1"], ["inf", "1"]),
        (["", "NA"], [None, None]), (["a b", '"'], ["a b", '"']),
    ],
)  # fmt: skip
def test_a_column_of_a_csv_file_is_of_one_type(texts: list[str], values: list[Any]):
    lines = ["a,b", *('"' + text.replace('"', '""') + '",z' for text in texts)]

    assert [row["a"] for row in rows_of("\n".join(lines).encode(), "A.CSV")] == values


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("name;price\nAnn;1,5\nBo;2", [{"name": "Ann", "price": 1.5}, {"name": "Bo", "price": 2.0}]),
        ("sep=;\r\na;b, c\r\n1;x\r\n", [{"a": 1, "b, c": "x"}]),
        ("a\tb\n1\t2,5\n", [{"a": 1, "b": "2,5"}]),
        ("a|b\n1|2", [{"a": 1, "b": 2}]),
        ('a;b\n"1;2";3', [{"a": "1;2", "b": 3}]),
        ("a,b\n1;2,3;4", [{"a": "1;2", "b": "3;4"}]),
        ("a;b,c\n1;2,3", [{"a;b": "1;2", "c": 3}]),
        ("note\nx; y\nz", [{"note": "x; y"}, {"note": "z"}]),
    ],
)
def test_a_csv_file_may_have_semicolons_tabs_or_bars_between_its_cells(text: str, rows: list[Any]):
    assert rows_of(text.encode(), "a.csv") == rows


def test_a_csv_file_may_be_ragged_and_in_another_encoding():
    data = "名,b\n\n张,1,2\n李".encode("gb18030")

    assert tables_of("a.csv", data) == {
        "Sheet1": Table(
            ["名", "b", "Unnamed: 2"],
            [{"名": "张", "b": 1, "Unnamed: 2": 2}, {"名": "李", "b": None, "Unnamed: 2": None}],
        )
    }


@pytest.mark.parametrize(("name", "data"), [("a.xlsx", b"a,b"), ("a.xls", b"\xd0\xcf\x11\xe0"), ("a", b"")])
def test_error_for_an_invalid_workbook_names_the_file(name: str, data: bytes):
    with pytest.raises(FileUnreadable, match=f'"{name}"'):
        tables_of(name, data)


@pytest.mark.parametrize("name", ["a.csv", "a.xlsx"])
def test_a_file_with_far_too_many_cells_is_refused(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr(spreadsheets, "MAX_CELLS", 3)

    with pytest.raises(FileTooLarge, match="more than 3 cells"):
        parse_grids(name, b"a,b\n1,2" if name == "a.csv" else workbook(S=[["a", "b"], [1, 2]]))


def test_written_tables_read_back_unchanged():
    table = from_rows([{"id": 1, "name": "ä", "ok": True}, {"id": 2.5, "name": None, "ok": False}])

    assert tables_of("a.xlsx", write_xlsx({"S": table})) == {"S": table}
    assert tables_of("a.csv", write_csv(table)) == {"Sheet1": table}


@given(st.lists(CELLS, min_size=1, max_size=4))
@settings(max_examples=8, deadline=None)
def test_any_written_cell_reads_back_unchanged(cells: list[Any]):
    table = from_rows([{"a": cell, "last": "x"} for cell in cells])

    assert tables_of("a.xlsx", write_xlsx({"S": table}))["S"] == table


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "=cmd|' /C calc'!A0"])
def test_a_text_is_never_written_as_a_formula(text: str):
    table = from_rows([{text: text}])

    page = open_workbook(write_xlsx({"S": table})).worksheets[0]

    assert [(row[0].value, row[0].data_type) for row in page.iter_rows()] == [(text, "s")] * 2
    assert write_csv(table).decode().splitlines() == [f"'{text}"] * 2


def test_negative_number_in_text_is_not_escaped_in_a_csv_file():
    assert (
        write_csv(from_rows([{"a": "-5", "b": -5, "c": None, "d": [1], "e": "x,y"}]))
        == b'a,b,c,d,e\n-5,-5,,[1],"x,y"\n'
    )


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ({"k": [1]}, '{"k": [1]}'), (10**15, "1000000000000000"), ("a\x00\x0bb\ud800", "ab"),
        ("x" * 40_000, "x" * 32_767),
    ],
)  # fmt: skip
def test_value_that_a_cell_cannot_contain_is_written_as_valid_text(value: Any, cell: str):
    assert open_workbook(write_xlsx({"S": from_rows([{"a": value}])})).worksheets[0]["A2"].value == cell


def test_sheets_get_names_that_excel_allows():
    names = ["B/1", "B\\1", "b_1", "x" * 40, "x" * 40, "'quoted' [a]:*?", ""]

    titles = open_workbook(
        write_xlsx({name + " " * index: from_rows([]) for index, name in enumerate(names)})
    ).sheetnames

    assert titles == ["B_1", "B_1_1", "b_1_2", "x" * 31, "x" * 29 + "_1", "quoted' _a____", "Sheet"]


def test_sheet_with_more_columns_than_excel_allows_is_refused():
    with pytest.raises(NodeFailure, match="16,384 columns"):
        write_xlsx({"S": from_rows([{str(column): 1 for column in range(16_385)}])})
