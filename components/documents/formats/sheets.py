"""An Excel workbook with the tables of a Markdown text, one sheet each.

A text is always written as a text, so that no cell becomes a formula.
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

_MAX_TITLE_CHARS = 31
_MAX_CELL_CHARS = 32_767  # characters; Excel's limit
_MAX_ROWS, _MAX_COLUMNS = 1_048_576, 16_384
_MAX_CELLS = 1_000_000  # short rows are padded, so a small text can mean very many cells

_SEPARATOR = frozenset("|:- \t")
_NO_TITLE = re.compile(r"[*?\[\]:]")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_LEADING_ZERO = re.compile(r"[+-]?0\d+")
_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_MAX_DIGITS = 308  # of a number that spreadsheets can hold


@dataclass(slots=True)
class ParsedTable:
    """A table of the text: its title ("" if it has none) and its rows, of which the first is the header."""

    title: str
    rows: list[list[str]] = field(default_factory=list[list[str]])


def render_sheets(text: str) -> bytes:
    """Return the workbook; a text without any table becomes one cell of a sheet `Data`."""
    try:
        from openpyxl import Workbook
    except ImportError as missing:
        raise NodeFailure('Making a workbook needs the extra "docs": pip install easel[docs].') from missing
    grids = [grid for grid in find_tables(text) if len(grid.rows) > 1 and grid.rows[0]]
    if sum(len(grid.rows) * len(grid.rows[0]) for grid in grids) > _MAX_CELLS:
        raise NodeFailure(f"The tables have more than {_MAX_CELLS} cells. Split them into several workbooks.")
    workbook = Workbook(write_only=True)
    used: set[str] = set()
    for number, grid in enumerate(grids, start=1):
        sheet = workbook.create_sheet(_unique_title(_title(grid.title) or f"Table_{number}", used))
        _fill(sheet, grid.rows)
    if not grids:
        _fill(workbook.create_sheet("Data"), [["Content"], [text]], typed=False)
    stream = io.BytesIO()
    workbook.save(stream)
    return stream.getvalue()


def find_tables(text: str) -> Iterator[ParsedTable]:
    """Yield every group of table lines, with the nearest title before it, without separator rows and empty cells."""
    title = ""
    grid: ParsedTable | None = None
    for raw in text.split("\n"):
        line = raw.strip()
        if line.startswith("|") and "|" in line[1:]:
            grid = grid or ParsedTable(title)
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


def parse_cell(cell: str) -> str | int | float:
    """Return a cell's value: a number if it is written as one, else its text. A number with a leading zero is text."""
    number = cell.replace(",", "") if _GROUPED.fullmatch(cell) else cell
    if _LEADING_ZERO.fullmatch(number) or len(number) > _MAX_DIGITS or not number.isascii():
        return cell
    if _INTEGER.fullmatch(number):
        return int(number)
    if _FLOAT.fullmatch(number) and math.isfinite(value := float(number)):
        return value
    return cell


def _fill(sheet: "WriteOnlyWorksheet", rows: Sequence[Sequence[str]], typed: bool = True) -> None:
    width = len(rows[0])
    if width > _MAX_COLUMNS or len(rows) > _MAX_ROWS:
        raise NodeFailure(f"A sheet holds {_MAX_ROWS} rows of {_MAX_COLUMNS} cells. Split the table into several.")
    sheet.append([_text_cell(sheet, name) for name in rows[0]])
    for row in rows[1:]:
        cells = [*row[:width], *[""] * (width - len(row))]
        values = (parse_cell(cell) if typed else cell for cell in cells)
        sheet.append([_text_cell(sheet, value) if isinstance(value, str) else value for value in values])


def _text_cell(sheet: "WriteOnlyWorksheet", text: str) -> Any:
    """Return a cell that is text, even if the text looks like a formula."""
    from openpyxl.cell import WriteOnlyCell

    cell = WriteOnlyCell(sheet, text[:_MAX_CELL_CHARS])
    cell.data_type = "s"
    return cell


def _title(line: str) -> str:
    cut = line.lstrip("#").strip()[:_MAX_TITLE_CHARS]
    return _NO_TITLE.sub("", cut.replace("/", "_").replace("\\", "_")).strip(" '")


def _unique_title(title: str, used: set[str]) -> str:
    """Return the title, with a number if an earlier sheet has the same title in any case."""
    name, number = title, 0
    while name.casefold() in used:
        number += 1
        suffix = f"_{number}"
        name = title[: _MAX_TITLE_CHARS - len(suffix)] + suffix
    used.add(name.casefold())
    return name
