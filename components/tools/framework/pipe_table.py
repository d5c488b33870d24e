"""Text tables with pipes between the cells, in the layout of data libraries.

    pipe_table(["", "0"], [["symbol", "ACME"], ["marketCap", 12]])

    |           | 0    |
    |:----------|:-----|
    | symbol    | ACME |
    | marketCap | 12   |

Columns of numbers are right-aligned at their decimal points and have at most six significant digits.
"""

import math
from collections.abc import Sequence
from typing import Any

_PADDING = 2  # characters by which a column is wider than its head


def pipe_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return the table; short rows are padded with empty cells."""
    columns = [[row[number] if number < len(row) else None for row in rows] for number in range(len(head))]
    laid_out = [_column(name, values) for name, values in zip(head, columns, strict=True)]
    lines = (_line([cells[number] for cells in laid_out]) for number in range(len(rows) + 2))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"|{'|'.join(cells)}|"


def _column(name: str, values: Sequence[Any]) -> list[str]:
    """Return head, rule and cells of one column, all of the same width."""
    name = _escape_pipes(name)
    present = [value for value in values if value is not None]
    is_numeric = bool(present) and all(_is_number(value) for value in present)
    cells = [_cell_text(value, is_numeric) for value in values]
    if is_numeric:
        cells = _align_points(cells)
    width = max([len(name) + _PADDING, *map(len, cells)])
    if is_numeric:
        return [f" {name:>{width}} ", f"{'-' * (width + 1)}:", *(f" {cell:>{width}} " for cell in cells)]
    return [f" {name:<{width}} ", f":{'-' * (width + 1)}", *(f" {cell:<{width}} " for cell in cells)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell_text(value: Any, is_numeric: bool) -> str:
    if value is None:
        return "nan" if is_numeric else ""
    if isinstance(value, float) and is_numeric:
        return f"{value:g}" if math.isfinite(value) else str(value)
    return _escape_pipes(" ".join(str(value).split("\n")))


def _escape_pipes(text: str) -> str:
    """Escape the pipes of a text, so that none ends a cell."""
    return text.replace("|", "\\|")


def _align_points(cells: Sequence[str]) -> list[str]:
    """Pad numbers with trailing blanks so that their decimal points (or exponents) are aligned."""
    behind = [_decimals_length(cell) for cell in cells]
    return [cell + " " * (max(behind) - own) for cell, own in zip(cells, behind, strict=True)]


def _decimals_length(number: str) -> int:
    """Return the number of characters from the decimal point on, or from the exponent; 0 without either."""
    point = number.find(".") if "." in number else number.find("e")
    return len(number) - point if point >= 0 else 0
