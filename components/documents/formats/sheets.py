"""A workbook of the tables in a Markdown text, one sheet each (components 3.3.2).

Text stays text whatever it begins with, so that no cell becomes a formula.
"""

import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from canvas.errors import NodeFailure

if TYPE_CHECKING:
    from openpyxl.worksheet._write_only import WriteOnlyWorksheet

_LONGEST_TITLE = 31
_LONGEST_CELL = 32_767  # characters; spreadsheets have no room for more
_MOST_ROWS, _MOST_COLUMNS = 1_048_576, 16_384
_MOST_CELLS = 1_000_000  # short rows are filled up, so a small text can ask for very many

_SEPARATOR = frozenset("|:- \t")
_NO_TITLE = re.compile(r"[*?\[\]:]")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_LEADING_ZERO = re.compile(r"[+-]?0\d+")
_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_MOST_DIGITS = 308  # of a number that spreadsheets can hold


@dataclass(slots=True)
class Grid:
    """A table as it is read: its title, "" if nothing names it, and its rows, the first of which is the header."""

    title: str
    rows: list[list[str]] = field(default_factory=list[list[str]])


def sheets(text: str) -> bytes:
    """The workbook; a text without any table is one cell of a sheet `Data`."""
    try:
        from openpyxl import Workbook
    except ImportError as missing:
        raise NodeFailure("Making a workbook needs openpyxl: pip install easel[docs].") from missing
    grids = [grid for grid in grids_of(text) if len(grid.rows) > 1 and grid.rows[0]]
    if sum(len(grid.rows) * len(grid.rows[0]) for grid in grids) > _MOST_CELLS:
        raise NodeFailure(f"The tables have more than {_MOST_CELLS} cells. Make several workbooks of them.")
    workbook = Workbook(write_only=True)
    taken: set[str] = set()
    for number, grid in enumerate(grids, start=1):
        sheet = workbook.create_sheet(_distinct(_title(grid.title) or f"Table_{number}", taken))
        _fill(sheet, grid.rows)
    if not grids:
        _fill(workbook.create_sheet("Data"), [["Content"], [text]], typed=False)
    stream = io.BytesIO()
    workbook.save(stream)
    return stream.getvalue()


def grids_of(text: str) -> Iterator[Grid]:
    """Every run of table lines, with the nearest title before it. Separator rows and empty cells are left out."""
    title = ""
    grid: Grid | None = None
    for raw in text.split("\n"):
        line = raw.strip()
        if line.startswith("|") and "|" in line[1:]:
            grid = grid or Grid(title)
            if "-" not in line or not _SEPARATOR.issuperset(line):
                grid.rows.append([cell for part in line.split("|") if (cell := part.strip())])
            continue
        if grid is not None:
            yield grid
            grid = None
        if line.startswith("#") or ":" in line or line.lower().startswith("table"):
            title = line
    if grid is not None:
        yield grid


def typed_value(cell: str) -> str | int | float:
    """The number that a cell spells, else its text. Numbers with a leading zero are codes, and text."""
    number = cell.replace(",", "") if _GROUPED.fullmatch(cell) else cell
    if _LEADING_ZERO.fullmatch(number) or len(number) > _MOST_DIGITS or not number.isascii():
        return cell
    if _INTEGER.fullmatch(number):
        return int(number)
    if _FLOAT.fullmatch(number) and math.isfinite(value := float(number)):
        return value
    return cell


def _fill(sheet: "WriteOnlyWorksheet", rows: Sequence[Sequence[str]], typed: bool = True) -> None:
    width = len(rows[0])
    if width > _MOST_COLUMNS or len(rows) > _MOST_ROWS:
        raise NodeFailure(f"A sheet holds {_MOST_ROWS} rows of {_MOST_COLUMNS} cells. Make several tables of this one.")
    sheet.append([_text_cell(sheet, name) for name in rows[0]])
    for row in rows[1:]:
        cells = [*row[:width], *[""] * (width - len(row))]
        values = (typed_value(cell) if typed else cell for cell in cells)
        sheet.append([_text_cell(sheet, value) if isinstance(value, str) else value for value in values])


def _text_cell(sheet: "WriteOnlyWorksheet", text: str) -> Any:
    """A cell that is text, even where it begins like a formula."""
    from openpyxl.cell import WriteOnlyCell

    cell = WriteOnlyCell(sheet, text[:_LONGEST_CELL])
    cell.data_type = "s"
    return cell


def _title(line: str) -> str:
    cut = line.lstrip("#").strip()[:_LONGEST_TITLE]
    return _NO_TITLE.sub("", cut.replace("/", "_").replace("\\", "_")).strip(" '")


def _distinct(title: str, taken: set[str]) -> str:
    """The title, numbered if an earlier sheet has it; case does not tell sheets apart."""
    name, number = title, 0
    while name.casefold() in taken:
        number += 1
        suffix = f"_{number}"
        name = title[: _LONGEST_TITLE - len(suffix)] + suffix
    taken.add(name.casefold())
    return name
