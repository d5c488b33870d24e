"""Tables: named columns, and rows that are objects. Functions build them from grids or values, stack and join them.

The rules for column names are those of pandas, whose data frames upstream uses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from canvas.errors import NodeFailure
from components.text.templates.templates import json_text

MAX_CELLS = 1_000_000  # in a table, and in all tables of a node together
ONLY_SHEET = "Sheet1"

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[int, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Every row has every column, in this order; a missing value is null."""

    columns: Sequence[str]
    rows: Sequence[Row]


def from_grid(grid: Sequence[Sequence[Any]]) -> Table:
    """Build a table from a grid whose first line names the columns.

    A column without a name is `Unnamed: 2`, by its position; a name's second and third column are `x.1` and `x.2`.
    """
    if count_cells(grid) > MAX_CELLS:
        raise _too_large()
    width = max(map(len, grid), default=0)
    first = [*grid[0], *[None] * (width - len(grid[0]))] if grid else []
    columns = _name_columns(first)
    rows = [dict(zip(columns, [*line, *[None] * (width - len(line))], strict=True)) for line in grid[1:]]
    return Table(columns, rows)


def count_cells(grid: Sequence[Sequence[Any]]) -> int:
    """Return the number of cells of a grid when all lines are padded to the same length."""
    return max(map(len, grid), default=0) * len(grid)


def from_rows(rows: Sequence[Any]) -> Table:
    """Build a table with the columns of all rows, in order of first appearance. A bare value is column `0`."""
    objects: list[Mapping[str, Any]] = [row if isinstance(row, Mapping) else {"0": row} for row in rows]
    columns = list(dict.fromkeys(name for row in objects for name in row))
    if len(columns) * len(objects) > MAX_CELLS:
        raise _too_large()
    return Table(columns, [{name: row.get(name) for name in columns} for row in objects])


def from_value(value: Any) -> dict[str, Table] | None:
    """Return the sheets in a value, by name; None for a value without rows.

    An object of lists has a sheet in each list; any other object is one row; a list is a list of rows. A list of lists
    is a grid whose first line names the columns.
    """
    if has_sheets(value):
        return {name: _from_list(rows) for name, rows in value.items()}
    if isinstance(value, Mapping):
        return {ONLY_SHEET: from_rows([value])}
    return {ONLY_SHEET: _from_list(value)} if isinstance(value, list) else None


def has_sheets(value: Any) -> bool:
    """Return whether a value is an object of lists."""
    return isinstance(value, Mapping) and all(isinstance(rows, list) for rows in value.values())


def stack(tables: Sequence[Table]) -> Table:
    """Return a table with all rows of all tables, one table after the other."""
    columns = list(dict.fromkeys(name for table in tables for name in table.columns))
    count = sum(len(table.rows) for table in tables)
    if len(columns) * count > MAX_CELLS:
        raise _too_large()
    return Table(columns, [{name: row.get(name) for name in columns} for table in tables for row in table.rows])


def join(left: Table, right: Table, on: str) -> Table:
    """Return the full outer join of two tables on a column.

    The rows are ordered by that column, null last. Other columns that both tables have become `x_x` and `x_y`.
    """
    shared = set(left.columns) & set(right.columns) - {on}
    used = {*left.columns, *right.columns}
    left_names = {name: _add_suffix(name, "_x", shared, used) for name in left.columns}
    right_names = {name: _add_suffix(name, "_y", shared, used) for name in right.columns if name != on}
    columns = [*left_names.values(), *right_names.values()]
    lefts, rights = _by_key(left, on), _by_key(right, on)
    count = sum(max(1, len(lefts.get(key, ()))) * max(1, len(rights.get(key, ()))) for key in lefts | rights)
    if count * len(columns) > MAX_CELLS:
        raise _too_large()
    nothing: Sequence[Row] = ({},)
    rows: list[Row] = []
    for key in sorted(lefts | rights):
        for one in lefts.get(key, nothing):
            for other in rights.get(key, nothing):
                row = {new: one.get(name) for name, new in left_names.items()}
                row |= {new: other.get(name) for name, new in right_names.items()}
                row[on] = one[on] if on in one else other[on]
                rows.append(row)
    return Table(columns, rows)


def to_markdown(table: Table, max_rows: int) -> str:
    """Return the first rows as a Markdown table; "" for a table without columns."""
    if not table.columns:
        return ""
    lines = [_line(table.columns), _line(["---"] * len(table.columns))]
    lines += [_line([row[name] for name in table.columns]) for row in table.rows[:max_rows]]
    return "\n".join(lines)


def text_of(value: Any) -> str:
    """Return a value as the text of a cell: null is empty, objects and lists are JSON."""
    if value is None:
        return ""
    return json_text(value) if isinstance(value, Mapping | list) else str(value)


def _from_list(items: list[Any]) -> Table:
    is_grid = bool(items) and all(isinstance(item, list) for item in items)
    return from_grid(items) if is_grid else from_rows(items)


def _name_columns(cells: Sequence[Any]) -> list[str]:
    headings = [text_of(cell) or f"Unnamed: {position}" for position, cell in enumerate(cells)]
    used, numbers, names = set(headings), dict.fromkeys(headings, 0), list[str]()
    for heading in headings:
        name = heading
        while numbers[heading] and name in used:
            name = f"{heading}.{numbers[heading]}"
            numbers[heading] += 1
        numbers[heading] = max(1, numbers[heading])
        used.add(name)
        names.append(name)
    return names


def _add_suffix(name: str, suffix: str, shared: set[str], used: set[str]) -> str:
    if name not in shared:
        return name
    new = name + suffix
    while new in used:
        new += suffix
    used.add(new)
    return new


def _by_key(table: Table, on: str) -> dict[Key, list[Row]]:
    rows: dict[Key, list[Row]] = {}
    for row in table.rows:
        rows.setdefault(_key(row[on]), []).append(row)
    return rows


def _key(value: Any) -> Key:
    """Return a value's key for comparison and order: numbers, then texts, then null. 1 and "1" are different."""
    if value is None:
        return (2, "")
    return (0, value) if isinstance(value, bool | int | float) else (1, text_of(value))


def _line(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(value: Any) -> str:
    return " ".join(text_of(value).replace("|", "\\|").split("\n"))


def _too_large() -> NodeFailure:
    return NodeFailure(f"The table would have more than {MAX_CELLS:,} cells. Use fewer rows or columns.")
