"""Rows of a database as JSON objects and as a text table.

    |   id | name   |    amount | at         |
    |-----:|:-------|----------:|:-----------|
    |    1 | Ann    | 10.500000 | 2026-01-02 |
    |    2 | Bo     |           |            |

The format of a column follows from all of its values: whole numbers stay whole beside a null (docs/tools.md, row T14),
and timestamps are shown as dates if all of them are at midnight.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any

from components.text.templates.templates import value_text
from providers.interfaces import Rows
from providers.models.text.sanitizer import clean

MAX_CELL_LENGTH = 32 * 1024  # characters
MAX_INTEGER = 10**4300 - 1  # Python does not convert longer numbers to text
ELLIPSIS = "..."
MAX_DEPTH = 100  # levels of a value within a cell
_PADDING = 2  # characters by which a column is wider than its name


def json_rows(found: Rows) -> list[dict[str, Any]]:
    """Return one object for each row, with its values by column name."""
    names = _names(found)
    columns = [_as_json(column) for column in _columns(found)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def text_table(found: Rows) -> str:
    """Return all rows as a text table. Numbers are right-aligned, fractions have six digits."""
    laid_out = [
        _layout_column(name, _as_json(column)) for name, column in zip(_names(found), _columns(found), strict=True)
    ]
    return "\n".join(f"|{'|'.join(cells)}|" for cells in zip(*laid_out, strict=True))


def _names(found: Rows) -> list[str]:
    return [clean(str(name)) for name in found.columns]


def _columns(found: Rows) -> list[list[Any]]:
    return [[row[number] for row in found.rows] for number in range(len(found.columns))]


def _as_json(column: Sequence[Any]) -> list[Any]:
    stamps = [value for value in column if isinstance(value, datetime)]
    only_days = all(stamp.time() == time.min for stamp in stamps)
    return [
        _day_or_instant(value, only_days) if isinstance(value, datetime) else _to_json_value(value) for value in column
    ]


def _day_or_instant(stamp: datetime, only_days: bool) -> str:
    return stamp.date().isoformat() if only_days else stamp.isoformat()


def _to_json_value(value: Any, levels: int = MAX_DEPTH) -> Any:
    """Return a driver's value as JSON: decimals as numbers, types that JSON does not have as text."""
    if levels == 0:
        return ELLIPSIS
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) <= MAX_INTEGER else None
        case float() | Decimal():
            number = float(value)
            return number if isfinite(number) else None
        case date() | time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return _truncate(_text_of(bytes(value)))
        case Mapping():
            return {clean(str(name)): _to_json_value(member, levels - 1) for name, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_to_json_value(item, levels - 1) for item in value]
        case _:
            return _truncate(clean(str(value)))


def _text_of(data: bytes) -> str:
    """Return bytes as text if they are valid UTF-8, else as hexadecimal digits."""
    try:
        return clean(data.decode())
    except UnicodeDecodeError:
        return data.hex()


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_CELL_LENGTH else text[:MAX_CELL_LENGTH] + ELLIPSIS


def _layout_column(name: str, values: Sequence[Any]) -> list[str]:
    """Return name, rule and cells of one column, all of the same width."""
    present = [value for value in values if value is not None]
    is_numeric = bool(present) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in present
    )
    has_fractions = any(isinstance(value, float) for value in present)
    head = _one_line(name)
    cells = [_cell_text(value, is_numeric and has_fractions) for value in values]
    width = max(len(head) + _PADDING, *map(len, cells))
    if is_numeric:
        return [f" {head:>{width}} ", f"{'-' * (width + 1)}:", *(f" {cell:>{width}} " for cell in cells)]
    return [f" {head:<{width}} ", f":{'-' * (width + 1)}", *(f" {cell:<{width}} " for cell in cells)]


def _cell_text(value: Any, as_fraction: bool) -> str:
    if value is None:
        return ""
    if as_fraction:
        return f"{float(value):.6f}"
    return str(value) if isinstance(value, bool) else _one_line(value_text(value))


def _one_line(text: str) -> str:
    """Return a text as a table cell: on one line, with escaped pipes."""
    return " ".join(text.splitlines()).replace("|", "\\|")
