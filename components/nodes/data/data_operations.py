"""DataOperations: transform a list of objects.

DSL: `query` (references, each to an object or a list of objects), `operations` and, by operation, `select_keys`,
`remove_keys`, `filter_values[] {key, operator, value}`, `updates[] {key, value}`, `rename_keys[] {old_key, new_key}`.
The rows are all objects that the references hold, in order; other values are ignored. `result` is the list of new rows;
for `combine` it is one object. Rows are never changed in place, so other nodes do not see the changes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import field_validator

from canvas.document.drawing import values_of
from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.base import Params, component
from components.context import NodeContext
from components.text.python_text import matches, read_literal
from components.text.templates import templates

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Row]

OPERATIONS = (
    "select_keys", "literal_eval", "combine", "filter_values", "append_or_update", "remove_keys", "rename_keys",
)  # fmt: skip
_SAME_AS = {"equals": "=", "==": "=", "!=": "≠"}


class DataOperationsParams(Params):
    default_outputs = ("result",)
    later_outputs = ()

    operations: Any = "literal_eval"
    query: Any = ()
    select_keys: Any = ()
    remove_keys: Any = ()
    filter_values: Any = ()
    updates: Any = ()
    rename_keys: Any = ()

    @field_validator("operations")
    @classmethod
    def _known_operation(cls, operation: Any) -> str:
        if operation not in OPERATIONS:
            raise ValueError(f"Operation {operation!r} is not supported. Use one of {', '.join(OPERATIONS)}.")
        return operation

    @field_validator("query")
    @classmethod
    def _references(cls, query: Any) -> tuple[str, ...]:
        return tuple(str(reference) for reference in values_of(_as_list(query), "input"))

    @field_validator("select_keys", "remove_keys")
    @classmethod
    def _keys(cls, keys: Any) -> frozenset[str]:
        return frozenset(key for key in values_of(_as_list(keys), "name") if isinstance(key, str))

    @field_validator("filter_values", "updates", "rename_keys")
    @classmethod
    def _rules(cls, rules: Any) -> tuple[Row, ...]:
        return tuple(rule if isinstance(rule, Mapping) else {} for rule in _as_list(rules))


@component("DataOperations", DataOperationsParams, effect="pure")
def data_operations(params: DataOperationsParams, ctx: NodeContext) -> Finished:
    rows = [row for reference in params.query for row in _rows_of(reference, ctx)]
    try:
        return Finished(outputs={"result": _OPERATIONS[params.operations](rows, params, ctx)})
    except RecursionError:
        raise NodeFailure(f"{params.operations}: a row is nested too deeply.") from None


def _as_list(value: Any) -> list[Any]:
    """Return the value as a list; a single value becomes a list of one, an empty value an empty list."""
    if isinstance(value, list | tuple):
        return list(value)
    return [value] if value else []


def _rows_of(reference: str, ctx: NodeContext) -> list[Row]:
    value = ctx.lookup(reference)
    ctx.note_input(reference.strip("{} "), value)
    return [row for row in (value if isinstance(value, list) else [value]) if isinstance(row, Mapping)]


def _select_keys(rows: Rows, params: DataOperationsParams, ctx: NodeContext) -> list[Row]:
    return [{key: value for key, value in row.items() if key in params.select_keys} for row in rows]


def _remove_keys(rows: Rows, params: DataOperationsParams, ctx: NodeContext) -> list[Row]:
    return [{key: value for key, value in row.items() if key not in params.remove_keys} for row in rows]


def _literal_eval(rows: Rows, params: DataOperationsParams, ctx: NodeContext) -> list[Row]:
    return [_read_literals(row) for row in rows]


def _read_literals(value: Any) -> Any:
    """Return the value with every text in it read as a literal. Texts inside a literal are not read again."""
    match value:
        case str():
            return read_literal(value)
        case Mapping():
            return {key: _read_literals(item) for key, item in value.items()}
        case list() | tuple():
            return [_read_literals(item) for item in value]
        case _:
            return value


def _combine(rows: Rows, params: DataOperationsParams, ctx: NodeContext) -> Row:
    """Combine all rows into one object. The values of a repeated key are collected in a list; lists are flattened."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.items():
            values.setdefault(key, []).append(value)
    return {key: _spread(several) if len(several) > 1 else several[0] for key, several in values.items()}


def _spread(values: list[Any]) -> list[Any]:
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def _filter_values(rows: Rows, params: DataOperationsParams, ctx: NodeContext) -> list[Row]:
    rules = [(_key(rule), _operator(rule), _operand(rule, ctx)) for rule in params.filter_values]

    def matches_all(row: Row) -> bool:
        return all(key in row and matches(row[key], operator, text) for key, operator, text in rules)

    return [row for row in rows if matches_all(row)]


def _key(rule: Row) -> str:
    return templates.plain_text(rule.get("key"))


def _operator(rule: Row) -> str:
    name = str(rule.get("operator") or "").lower()
    return _SAME_AS.get(name, name)


def _operand(rule: Row, ctx: NodeContext) -> str:
    """Return the text to compare with. A text whose references are all empty stays as it is written."""
    value = rule.get("value")
    return str(_fill(value, ctx)) if isinstance(value, str) else templates.plain_text(value)


def _append_or_update(rows: Rows, params: DataOperationsParams, ctx: NodeContext) -> list[Row]:
    pairs = ((_name(rule, "key"), rule.get("value")) for rule in params.updates)
    updates = {key: _fill(value, ctx) for key, value in pairs if key}
    return [{**row, **updates} for row in rows]


def _fill(value: Any, ctx: NodeContext) -> Any:
    return (templates.format_text(value, ctx.lookup) or value) if isinstance(value, str) else value


def _rename_keys(rows: Rows, params: DataOperationsParams, ctx: NodeContext) -> list[Row]:
    pairs = [(_name(rule, "old_key"), _name(rule, "new_key")) for rule in params.rename_keys]
    return [_rename(row, ((old, new) for old, new in pairs if old and new and old != new)) for row in rows]


def _rename(row: Row, pairs: Iterable[tuple[str, str]]) -> Row:
    """Rename the row's keys, one after the other. A new key comes last, unless the row already has it."""
    result = dict(row)
    for old, new in pairs:
        if old in result:
            result[new] = result.pop(old)
    return result


def _name(rule: Row, field: str) -> str:
    return templates.plain_text(rule.get(field)).strip()


_OPERATIONS: Mapping[str, Callable[[Rows, DataOperationsParams, NodeContext], Any]] = {
    "select_keys": _select_keys,
    "literal_eval": _literal_eval,
    "combine": _combine,
    "filter_values": _filter_values,
    "append_or_update": _append_or_update,
    "remove_keys": _remove_keys,
    "rename_keys": _rename_keys,
}
