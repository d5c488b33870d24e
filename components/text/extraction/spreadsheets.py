"""Spreadsheet files: the sheets of a workbook or a CSV file, as text and as tables, and tables as files.

Cells become JSON: dates are ISO texts, errors and what stands for "no value" are null. Formulas are read as the values
they had when the file was saved. A text is written as a text, whatever it begins with, so that no cell of ours is a
formula.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from itertools import islice
from typing import Any

from canvas.errors import NodeFailure
from components.text.extraction.charsets import decoded
from components.text.extraction.file_kinds import (
    FileTooLarge,
    Kind,
    check_unpacked,
    lacking,
    reading,
    too_large,
    unreadable,
)
from components.text.extraction.tables import MOST_CELLS, ONLY_SHEET, Table, of_grid, size_of, text_of
from providers.isolation.limited_process import ResourceLimitExceeded, in_limited_process
from providers.isolation.untrusted_threads import in_untrusted_thread

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
CSV = "text/csv"

MOST_XML = 256 * 1024 * 1024  # bytes; a workbook is read cell by cell, its shared texts are in memory at once
MOST_ROWS = 1_048_576  # of a file, empty ones too; what Excel allows a sheet
LONGEST_CELL = 32_767  # characters, Excel's own limit
LONGEST_TITLE = 31
MOST_COLUMNS = 16_384
_EXACT = 10**15  # whole numbers from here on lose digits in a workbook

_NO_VALUE = frozenset([
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null", "#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!",
])  # fmt: skip
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]{1,18}(?:,[0-9]{1,40})?")  # as in countries whose CSV files have semicolons
_DELIMITERS = (",", ";", "\t", "|")
_SEPARATOR = re.compile(r"sep=([,;\t|])", re.IGNORECASE)
LINES_COMPARED = 20
_TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_UNTITLED = re.compile(r"[\\/*?:\[\]\x00-\x1f]")
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def tables_of(name: str, data: bytes, selection: str = "all") -> dict[str, Table]:
    """The sheets of a file by name, as tables. A name that ends in `.csv` means one sheet.

    `selection`: `all`, `first`, or names with commas between them; a name that no sheet has means nothing.
    Raises FileUnreadable.
    """
    return {sheet: of_grid(grid) for sheet, grid in grids_of(name, data, selection).items()}


async def read_tables(name: str, data: bytes, selection: str = "all") -> dict[str, Table]:
    """The same as `tables_of`, without harm to this process: the file is read in one with limits."""
    try:
        grids = await in_limited_process(grids_of, name, data, selection)
    except ResourceLimitExceeded as limit:
        if limit.retryable:
            raise
        why = f"cannot be read within its limits. {limit.message}"
        raise unreadable(name, Kind.EXCEL, why, "Split it, and upload the parts.") from limit
    return await in_untrusted_thread(lambda: {sheet: of_grid(grid) for sheet, grid in grids.items()})


def grids_of(name: str, data: bytes, selection: str = "all") -> dict[str, list[list[Any]]]:
    """The sheets of a file by name, as lines of cells. Raises FileUnreadable."""
    grids: dict[str, list[list[Any]]] = {}
    room = MOST_CELLS
    for sheet, rows in _sheets(name, data):
        if not _is_selected(sheet, selection, is_first=not grids):
            continue
        grid = _trimmed(
            [[_value(cell) if number else _heading(cell) for cell in row] for number, row in enumerate(rows)]
        )
        room -= size_of(grid)
        if room < 0:
            raise too_large(name, Kind.EXCEL, f"has more than {MOST_CELLS:,} cells")
        grids[sheet] = grid
    return grids


def text_parts(name: str, data: bytes) -> Iterator[str]:
    """A workbook as text: each sheet's name, then its rows, cells apart by tabs. Raises FileUnreadable."""
    is_first = True
    for sheet, rows in _workbook(name, data):
        yield f"Sheet: {sheet}\n" if is_first else f"\nSheet: {sheet}\n"
        is_first = False
        try:
            for row in rows:
                line = "\t".join(" ".join(_shown(cell).split()) for cell in row).rstrip("\t")
                if line:
                    yield f"{line}\n"
        except FileTooLarge:
            yield "[The rest of the file is left out: it has more rows or cells than can be read.]\n"
            return


def xlsx_of(sheets: Mapping[str, Table]) -> bytes:
    """A workbook with these sheets, under names as Excel allows them. Raises NodeFailure if Excel cannot hold it."""
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
    except ImportError as error:
        raise lacking("docs", "Excel workbooks") from error
    workbook = Workbook(write_only=True)
    titles: set[str] = set()
    for name, table in sheets.items():
        if len(table.columns) > MOST_COLUMNS:
            raise NodeFailure(f'Sheet "{name}" has more than {MOST_COLUMNS:,} columns. Excel takes no more.')
        page: Any = workbook.create_sheet(_title(name, titles))
        for row in (dict(zip(table.columns, table.columns, strict=True)), *table.rows):
            cells: list[Any] = [_written(row[column]) for column in table.columns]
            for position, cell in enumerate(cells):
                if isinstance(cell, str) and cell.startswith("="):
                    cells[position] = WriteOnlyCell(page, cell)
                    cells[position].data_type = "s"
            page.append(cells)
    file = io.BytesIO()
    workbook.save(file)
    return file.getvalue()


def csv_of(table: Table) -> bytes:
    """A CSV file in UTF-8. A text that a spreadsheet would take for a formula gets an apostrophe before it."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_as_text(name) for name in table.columns])
    writer.writerows([_as_text(row[name]) for name in table.columns] for row in table.rows)
    return file.getvalue().encode("utf-8", "replace")


# -- reading ----------------------------------------------------------------------------------------------------------


def _sheets(name: str, data: bytes) -> Iterator[tuple[str, Iterator[Sequence[Any]]]]:
    if name.lower().endswith(".csv"):
        yield ONLY_SHEET, iter(_csv_grid(name, data))
    else:
        yield from _workbook(name, data)


def _workbook(name: str, data: bytes) -> Iterator[tuple[str, Iterator[Sequence[Any]]]]:
    """The sheets of a workbook and the rows of each, to be read before the next sheet is asked for."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise lacking("docs", "Excel workbooks") from error
    check_unpacked(name, Kind.EXCEL, data, MOST_XML)
    with reading(name, Kind.EXCEL):
        workbook = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
        room = _Room(name)
        for sheet in workbook.worksheets:
            page: Any = sheet
            page.reset_dimensions()  # what a file says of its own size is often wrong
            yield str(page.title), room.taken(page.iter_rows(values_only=True))


class _Room:
    """How much of a file may still be read. A few bytes of a workbook can stand for millions of empty cells."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows = MOST_ROWS
        self._cells = 4 * MOST_CELLS

    def taken(self, rows: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        with reading(self._name, Kind.EXCEL):
            for row in rows:
                self._rows -= 1
                self._cells -= len(row)
                if self._rows < 0 or self._cells < 0:
                    raise too_large(self._name, Kind.EXCEL, "has more rows or cells than can be read")
                yield row


def _csv_grid(name: str, data: bytes) -> list[list[Any]]:
    """Lines that are not blank; a column whose values are all numbers, or all truth values, has them as such."""
    with reading(name, Kind.TEXT):
        text = decoded(data)
        delimiter, text = _delimited(text)
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if line]
    if sum(map(len, lines)) > MOST_CELLS:
        raise too_large(name, Kind.TEXT, f"has more than {MOST_CELLS:,} cells")
    width = max(map(len, lines), default=0)
    columns = [[line[at] if at < len(line) else "" for line in lines[1:]] for at in range(width)]
    body = [_typed(texts, delimiter) for texts in columns]
    return [*lines[:1], *map(list, zip(*body, strict=True))]


def _delimited(text: str) -> tuple[str, str]:
    """The sign between the cells of a CSV file, and the file without Excel's line `sep=;`, which says so.

    A comma, unless the file's first lines have equally many cells, more than one, with another sign alone.
    """
    first, _, rest = text.partition("\n")
    if (said := _SEPARATOR.fullmatch(first.strip())) is not None:
        return said[1], rest
    for delimiter in _DELIMITERS:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        widths = {len(line) for line in islice((line for line in lines if line), LINES_COMPARED)}
        if len(widths) == 1 and widths != {1}:
            return delimiter, text
    return ",", text


def _typed(texts: list[str], delimiter: str) -> list[Any]:
    values = [text for text in texts if text not in _NO_VALUE]
    if values and all(text in _TRUTH for text in values):
        return [_TRUTH.get(text) for text in texts]
    numbers = [text.strip() for text in values]
    if delimiter == ";" and values and all(map(_DECIMAL_COMMA.fullmatch, numbers)) and "," in "".join(numbers):
        return [None if text in _NO_VALUE else float(text.strip().replace(",", ".")) for text in texts]
    for pattern, number in ((_WHOLE, int), (_NUMBER, float)):
        if values and all(pattern.fullmatch(text) for text in numbers):
            return [None if text in _NO_VALUE else number(text) for text in texts]
    return list(texts)


def _value(cell: Any) -> Any:
    """A cell as JSON."""
    match cell:
        case str():
            return None if cell in _NO_VALUE else cell
        case float():
            return _number(cell)
        case None | bool() | int():
            return cell
        case datetime() | date() | time():
            return cell.isoformat()
        case _:
            return str(cell)


def _heading(cell: Any) -> Any:
    """A cell that names a column; `NA` is as good a name as any."""
    return (cell or None) if isinstance(cell, str) else _value(cell)


def _number(value: float) -> int | float | None:
    """Excel knows no whole numbers: 3.0 is 3."""
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


def _shown(cell: Any) -> str:
    """A cell as a person reads it."""
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    return str(cell).upper() if isinstance(cell, bool) else text_of(_number(cell) if isinstance(cell, float) else cell)


def _trimmed(grid: list[list[Any]]) -> list[list[Any]]:
    """Without the empty cells at the end of lines, and the empty lines at the end."""
    for line in grid:
        while line and line[-1] is None:
            line.pop()
    while grid and not grid[-1]:
        grid.pop()
    return grid


def _is_selected(sheet: str, selection: str, *, is_first: bool) -> bool:
    match selection.strip().lower():
        case "" | "all":
            return True
        case "first":
            return is_first
        case _:
            return sheet in [name.strip() for name in selection.split(",")]


# -- writing ----------------------------------------------------------------------------------------------------------


def _title(name: str, taken: set[str]) -> str:
    """A sheet's name as Excel allows it: short, without its own signs, and in no case twice."""
    title = _UNTITLED.sub("_", _UNWRITABLE.sub("", name)).strip("' ")[:LONGEST_TITLE] or "Sheet"
    number, found = 0, title
    while found.lower() in taken:
        number += 1
        found = f"{title[: LONGEST_TITLE - 1 - len(str(number))]}_{number}"
    taken.add(found.lower())
    return found


def _written(value: Any) -> Any:
    """A value as a workbook takes it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and abs(value) < _EXACT:
        return value
    return _UNWRITABLE.sub("", text_of(value))[:LONGEST_CELL]


def _as_text(value: Any) -> str:
    text = text_of(value)
    is_formula = isinstance(value, str) and text.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{text}" if is_formula and not _NUMBER.fullmatch(text) else text
