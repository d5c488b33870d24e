"""Tables as canvases hold them: named columns, and rows that are objects. Made of grids or values, stacked and joined.

The rules for names and columns are those of the data frames that upstream keeps its sheets in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from canvas.errors import NodeFailure
from components.text.templates.templates import json_text

MOST_CELLS = 1_000_000  # of a table, and of all tables of a node together
ONLY_SHEET = "Sheet1"

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[int, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Every row has every column, in this order; what is missing is null."""

    columns: Sequence[str]
    rows: Sequence[Row]


def of_grid(grid: Sequence[Sequence[Any]]) -> Table:
    """A table whose first line names the columns.

    A column without a name is `Unnamed: 2`, by its position; a name's second and third column are `x.1` and `x.2`.
    """
    if size_of(grid) > MOST_CELLS:
        raise _too_large()
    width = max(map(len, grid), default=0)
    first = [*grid[0], *[None] * (width - len(grid[0]))] if grid else []
    columns = _named(first)
    rows = [dict(zip(columns, [*line, *[None] * (width - len(line))], strict=True)) for line in grid[1:]]
    return Table(columns, rows)


def size_of(grid: Sequence[Sequence[Any]]) -> int:
    """How many cells a grid has once its lines are equally long."""
    return max(map(len, grid), default=0) * len(grid)


def of_rows(rows: Sequence[Any]) -> Table:
    """A table with every column that any of the rows has, in order of first appearance. A bare value is column `0`."""
    objects: list[Mapping[str, Any]] = [row if isinstance(row, Mapping) else {"0": row} for row in rows]
    columns = list(dict.fromkeys(name for row in objects for name in row))
    if len(columns) * len(objects) > MOST_CELLS:
        raise _too_large()
    return Table(columns, [{name: row.get(name) for name in columns} for row in objects])


def of_value(value: Any) -> dict[str, Table] | None:
    """The sheets that a value stands for, by name; None for a value without rows.

    An object of lists has a sheet in each of them, any other object is one row, a list is rows. A list of lists is a
    grid whose first line names the columns.
    """
    if has_sheets(value):
        return {name: _of_list(rows) for name, rows in value.items()}
    if isinstance(value, Mapping):
        return {ONLY_SHEET: of_rows([value])}
    return {ONLY_SHEET: _of_list(value)} if isinstance(value, list) else None


def has_sheets(value: Any) -> bool:
    """Whether a value is an object of lists."""
    return isinstance(value, Mapping) and all(isinstance(rows, list) for rows in value.values())


def stacked(tables: Sequence[Table]) -> Table:
    """All rows of all tables, one table after the other."""
    columns = list(dict.fromkeys(name for table in tables for name in table.columns))
    count = sum(len(table.rows) for table in tables)
    if len(columns) * count > MOST_CELLS:
        raise _too_large()
    return Table(columns, [{name: row.get(name) for name in columns} for table in tables for row in table.rows])


def joined(left: Table, right: Table, on: str) -> Table:
    """The full outer join on a column: each row of one with each row of the other that has the same value there.

    Ordered by that value, null last. Other columns that both have become `x_x` and `x_y`.
    """
    shared = set(left.columns) & set(right.columns) - {on}
    taken = {*left.columns, *right.columns}
    here = {name: _suffixed(name, "_x", shared, taken) for name in left.columns}
    there = {name: _suffixed(name, "_y", shared, taken) for name in right.columns if name != on}
    columns = [*here.values(), *there.values()]
    lefts, rights = _by_key(left, on), _by_key(right, on)
    count = sum(max(1, len(lefts.get(key, ()))) * max(1, len(rights.get(key, ()))) for key in lefts | rights)
    if count * len(columns) > MOST_CELLS:
        raise _too_large()
    nothing: Sequence[Row] = ({},)
    rows: list[Row] = []
    for key in sorted(lefts | rights):
        for one in lefts.get(key, nothing):
            for other in rights.get(key, nothing):
                row = {named: one.get(name) for name, named in here.items()}
                row |= {named: other.get(name) for name, named in there.items()}
                row[on] = one[on] if on in one else other[on]
                rows.append(row)
    return Table(columns, rows)


def markdown(table: Table, most_rows: int) -> str:
    """The first rows as a Markdown table; "" for a table without columns."""
    if not table.columns:
        return ""
    lines = [_line(table.columns), _line(["---"] * len(table.columns))]
    lines += [_line([row[name] for name in table.columns]) for row in table.rows[:most_rows]]
    return "\n".join(lines)


def text_of(value: Any) -> str:
    """A value in a cell of text: null is empty, objects and lists are JSON."""
    if value is None:
        return ""
    return json_text(value) if isinstance(value, Mapping | list) else str(value)


def _of_list(items: list[Any]) -> Table:
    is_grid = bool(items) and all(isinstance(item, list) for item in items)
    return of_grid(items) if is_grid else of_rows(items)


def _named(cells: Sequence[Any]) -> list[str]:
    wanted = [text_of(cell) or f"Unnamed: {position}" for position, cell in enumerate(cells)]
    taken, numbers, names = set(wanted), dict.fromkeys(wanted, 0), list[str]()
    for name in wanted:
        found = name
        while numbers[name] and found in taken:
            found = f"{name}.{numbers[name]}"
            numbers[name] += 1
        numbers[name] = max(1, numbers[name])
        taken.add(found)
        names.append(found)
    return names


def _suffixed(name: str, suffix: str, shared: set[str], taken: set[str]) -> str:
    if name not in shared:
        return name
    found = name + suffix
    while found in taken:
        found += suffix
    taken.add(found)
    return found


def _by_key(table: Table, on: str) -> dict[Key, list[Row]]:
    rows: dict[Key, list[Row]] = {}
    for row in table.rows:
        rows.setdefault(_key(row[on]), []).append(row)
    return rows


def _key(value: Any) -> Key:
    """A value as it is compared and ordered: numbers, then texts, then null. A number is no text that spells it."""
    if value is None:
        return (2, "")
    return (0, value) if isinstance(value, bool | int | float) else (1, text_of(value))


def _line(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(value: Any) -> str:
    return " ".join(text_of(value).replace("|", "\\|").split("\n"))


def _too_large() -> NodeFailure:
    return NodeFailure(f"The table would have more than {MOST_CELLS:,} cells. Take fewer rows or columns.")
