"""Spreadsheet files: read workbooks and CSV files as text and as tables, and write tables as files.

Cells become JSON: dates are ISO texts; errors and markers of missing values are null. Formulas are read as the values
that they had when the file was saved. A text is always written as a text, so that no written cell is a formula.
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
from components.text.extraction.charsets import decode
from components.text.extraction.file_kinds import (
    FileTooLarge,
    Kind,
    check_unpacked,
    library_missing,
    too_large,
    unreadable,
    wrap_parser_errors,
)
from components.text.extraction.tables import MAX_CELLS, ONLY_SHEET, Table, count_cells, from_grid, text_of
from providers.isolation.limited_process import ResourceLimitExceeded, in_limited_process
from providers.isolation.untrusted_threads import in_untrusted_thread

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
CSV = "text/csv"

MAX_XML_BYTES = 256 * 1024 * 1024  # bytes; a workbook is read cell by cell, but its shared texts are held in memory
MAX_ROWS = 1_048_576  # of a file, including empty rows; Excel's limit for a sheet
MAX_CELL_CHARS = 32_767  # characters, Excel's own limit
MAX_TITLE_CHARS = 31
MAX_COLUMNS = 16_384
_EXACT = 10**15  # integers from here on lose digits in a workbook

_NO_VALUE = frozenset([
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null", "#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!",
])  # fmt: skip
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]{1,18}(?:,[0-9]{1,40})?")  # used in countries where CSV files have semicolons
_DELIMITERS = (",", ";", "\t", "|")
_SEPARATOR = re.compile(r"sep=([,;\t|])", re.IGNORECASE)
LINES_COMPARED = 20
_TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_UNTITLED = re.compile(r"[\\/*?:\[\]\x00-\x1f]")
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


async def read_tables(name: str, data: bytes, selection: str = "all") -> dict[str, Table]:
    """Return the sheets of a file by name, as tables. A file name that ends in `.csv` means one sheet.

    `selection`: `all`, `first`, or names separated by commas; unknown names are ignored. The file is read in a process
    with limits. Raises FileUnreadable.
    """
    try:
        grids = await in_limited_process(parse_grids, name, data, selection)
    except ResourceLimitExceeded as limit:
        if limit.retryable:
            raise
        why = f"cannot be read within its limits. {limit.message.rstrip('.')}"
        raise unreadable(name, Kind.EXCEL, why, "Split it, and upload the parts.") from limit
    return await in_untrusted_thread(lambda: {sheet: from_grid(grid) for sheet, grid in grids.items()})


def parse_grids(name: str, data: bytes, selection: str = "all") -> dict[str, list[list[Any]]]:
    """Return the sheets of a file by name, as lists of rows of cells. Raises FileUnreadable."""
    grids: dict[str, list[list[Any]]] = {}
    cells_left = MAX_CELLS
    for sheet, rows in _sheets(name, data):
        if not _is_selected(sheet, selection, is_first=not grids):
            continue
        grid = _trim([[_value(cell) if number else _heading(cell) for cell in row] for number, row in enumerate(rows)])
        cells_left -= count_cells(grid)
        if cells_left < 0:
            raise too_large(name, Kind.EXCEL, f"has more than {MAX_CELLS:,} cells")
        grids[sheet] = grid
    return grids


def text_parts(name: str, data: bytes) -> Iterator[str]:
    """Yield a workbook as text: each sheet's name, then its rows, with tabs between cells. Raises FileUnreadable."""
    is_first = True
    for sheet, rows in _workbook(name, data):
        yield f"Sheet: {sheet}\n" if is_first else f"\nSheet: {sheet}\n"
        is_first = False
        try:
            for row in rows:
                line = "\t".join(" ".join(_display_text(cell).split()) for cell in row).rstrip("\t")
                if line:
                    yield f"{line}\n"
        except FileTooLarge:
            yield "[The rest of the file is left out: it has more rows or cells than can be read.]\n"
            return


def write_xlsx(sheets: Mapping[str, Table]) -> bytes:
    """Return a workbook with these sheets, named as Excel allows. Raises NodeFailure if Excel cannot hold them."""
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
    except ImportError as error:
        raise library_missing("docs", "Excel workbooks") from error
    workbook = Workbook(write_only=True)
    titles: set[str] = set()
    for name, table in sheets.items():
        if len(table.columns) > MAX_COLUMNS:
            raise NodeFailure(f'Sheet "{name}" has more than {MAX_COLUMNS:,} columns, the maximum of Excel.')
        page: Any = workbook.create_sheet(_title(name, titles))
        for row in (dict(zip(table.columns, table.columns, strict=True)), *table.rows):
            cells: list[Any] = [_cell_value(row[column]) for column in table.columns]
            for position, cell in enumerate(cells):
                if isinstance(cell, str) and cell.startswith("="):
                    cells[position] = WriteOnlyCell(page, cell)
                    cells[position].data_type = "s"
            page.append(cells)
    file = io.BytesIO()
    workbook.save(file)
    return file.getvalue()


def write_csv(table: Table) -> bytes:
    """Return a CSV file in UTF-8. A text that a spreadsheet would read as a formula is prefixed with an apostrophe."""
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
    """Yield the name and the rows of each sheet. The rows must be read before the next sheet is requested."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise library_missing("docs", "Excel workbooks") from error
    check_unpacked(name, Kind.EXCEL, data, MAX_XML_BYTES)
    with wrap_parser_errors(name, Kind.EXCEL):
        workbook = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
        room = _ReadLimit(name)
        for sheet in workbook.worksheets:
            page: Any = sheet
            page.reset_dimensions()  # the size that a file declares is often wrong
            yield str(page.title), room.limit_rows(page.iter_rows(values_only=True))


class _ReadLimit:
    """The rows and cells of a file that may still be read: a few bytes of a workbook can mean millions of cells."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows = MAX_ROWS
        self._cells = 4 * MAX_CELLS

    def limit_rows(self, rows: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        with wrap_parser_errors(self._name, Kind.EXCEL):
            for row in rows:
                self._rows -= 1
                self._cells -= len(row)
                if self._rows < 0 or self._cells < 0:
                    raise too_large(self._name, Kind.EXCEL, "has more rows or cells than can be read")
                yield row


def _csv_grid(name: str, data: bytes) -> list[list[Any]]:
    """Return the non-blank lines. A column with only numbers, or only booleans, is converted to that type."""
    with wrap_parser_errors(name, Kind.TEXT):
        text = decode(data)
        delimiter, text = _detect_delimiter(text)
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if line]
    if sum(map(len, lines)) > MAX_CELLS:
        raise too_large(name, Kind.TEXT, f"has more than {MAX_CELLS:,} cells")
    width = max(map(len, lines), default=0)
    columns = [[line[at] if at < len(line) else "" for line in lines[1:]] for at in range(width)]
    body = [_convert_column(texts, delimiter) for texts in columns]
    return [*lines[:1], *map(list, zip(*body, strict=True))]


def _detect_delimiter(text: str) -> tuple[str, str]:
    """Return the delimiter of a CSV file, and its text without Excel's line `sep=;`, which declares one.

    The delimiter is the first one with which all of the first lines have the same number of cells, more than one; a
    comma if there is none.
    """
    first, _, rest = text.partition("\n")
    if (declared := _SEPARATOR.fullmatch(first.strip())) is not None:
        return declared[1], rest
    for delimiter in _DELIMITERS:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        widths = {len(line) for line in islice((line for line in lines if line), LINES_COMPARED)}
        if len(widths) == 1 and widths != {1}:
            return delimiter, text
    return ",", text


def _convert_column(texts: list[str], delimiter: str) -> list[Any]:
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
    """Return a cell as JSON."""
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
    """Return a cell that names a column; here `NA` is a name and not a missing value."""
    return (cell or None) if isinstance(cell, str) else _value(cell)


def _number(value: float) -> int | float | None:
    """Return a float as JSON; Excel has no integers, so 3.0 becomes 3. Infinities and NaN become null."""
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


def _display_text(cell: Any) -> str:
    """Return a cell as text for readers."""
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    return str(cell).upper() if isinstance(cell, bool) else text_of(_number(cell) if isinstance(cell, float) else cell)


def _trim(grid: list[list[Any]]) -> list[list[Any]]:
    """Remove the empty cells at the end of lines, and the empty lines at the end."""
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


def _title(name: str, used: set[str]) -> str:
    """Return a sheet's name as Excel allows it: short, without forbidden characters, unique in any case."""
    title = _UNTITLED.sub("_", _UNWRITABLE.sub("", name)).strip("' ")[:MAX_TITLE_CHARS] or "Sheet"
    number, free = 0, title
    while free.lower() in used:
        number += 1
        free = f"{title[: MAX_TITLE_CHARS - 1 - len(str(number))]}_{number}"
    used.add(free.lower())
    return free


def _cell_value(value: Any) -> Any:
    """Return a value in a type that a workbook can hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and abs(value) < _EXACT:
        return value
    return _UNWRITABLE.sub("", text_of(value))[:MAX_CELL_CHARS]


def _as_text(value: Any) -> str:
    text = text_of(value)
    is_formula = isinstance(value, str) and text.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{text}" if is_formula and not _NUMBER.fullmatch(text) else text
