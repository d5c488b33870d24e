"""ListOperations: select a part of a list, filter it, sort it, or drop duplicates.

DSL: `query` (a reference to a list), `operations` (`nth`, `head`, `tail`, `filter`, `sort`, `drop_duplicates`), `n`,
`strict`, `sort_method`, `sort_by`, `filter {operator, value}`. Values compare as in Python: 1, 1.0 and true are equal,
and values of types without a common order cannot be sorted. All three outputs are always set, declared or not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.base import Params, component
from components.context import NodeContext
from components.text.python_text import matches
from components.text.templates import templates

OPERATIONS = ("nth", "head", "tail", "filter", "sort", "drop_duplicates")


class ListOperationsParams(Params):
    default_outputs = ("result", "first", "last")
    later_outputs = ()

    query: Any = Field(default="", validate_default=True)
    operations: Any = "nth"
    n: Any = 0
    strict: Any = False
    sort_method: Any = "asc"
    sort_by: Any = ""
    filter: Any = Field(default_factory=dict)

    @field_validator("query")
    @classmethod
    def _names_a_list(cls, query: Any) -> Any:
        if not query:
            raise ValueError(f"query {query!r} must not be empty.")
        return query

    @field_validator("operations")
    @classmethod
    def _known_operation(cls, operation: Any) -> str:
        if operation is None or (isinstance(operation, str) and not operation.strip()):
            return "nth"
        if isinstance(operation, str) and operation.strip().lower() == "topn":
            return "head"
        if operation not in OPERATIONS:
            raise ValueError(f"Operation {operation!r} is not supported. Use one of {', '.join(OPERATIONS)}.")
        return operation

    @field_validator("n")
    @classmethod
    def _whole_number(cls, n: Any) -> int:
        try:
            return int(n)
        except (ValueError, TypeError, OverflowError):
            return 0

    @field_validator("strict")
    @classmethod
    def _strict_or_not(cls, strict: Any) -> bool:
        if isinstance(strict, str):
            return strict.strip().lower() in ("1", "true", "yes", "on")
        return bool(strict)

    @field_validator("sort_by")
    @classmethod
    def _sort_keys(cls, keys: Any) -> tuple[str, ...]:
        texts = keys.split(",") if isinstance(keys, str) else keys if isinstance(keys, list | tuple) else ()
        return tuple(text for key in texts if (text := str(key).strip()))

    @field_validator("filter")
    @classmethod
    def _one_rule(cls, rule: Any) -> Mapping[str, Any]:
        return rule if isinstance(rule, Mapping) else {}


@component("ListOperations", ListOperationsParams, effect="pure")
def list_operations(params: ListOperationsParams, ctx: NodeContext) -> Finished:
    reference = str(params.query)
    items = ctx.lookup(reference)
    if not isinstance(items, list):
        raise NodeFailure(f"{reference} should be an array, but its type is {type(items).__name__}.")
    ctx.note_input(reference.strip("{} "), items)
    try:
        result = _OPERATIONS[params.operations](items, params)
    except RecursionError:
        raise NodeFailure(f"{reference} is nested too deeply to be compared.") from None
    ends = {"first": result[0], "last": result[-1]} if result else {"first": None, "last": None}
    return Finished(outputs={"result": result, **ends})


def _nth(items: list[Any], params: ListOperationsParams) -> list[Any]:
    """Return the item at position `n`, counted from 1, or from the end if negative."""
    index = params.n - 1 if params.n > 0 else len(items) + params.n
    if params.n and 0 <= index < len(items):
        return [items[index]]
    if params.strict:
        raise NodeFailure(f"nth: a list of {len(items)} has no item {params.n}.")
    return []


def _head(items: list[Any], params: ListOperationsParams) -> list[Any]:
    return items[: _count(items, params)]


def _tail(items: list[Any], params: ListOperationsParams) -> list[Any]:
    return items[len(items) - _count(items, params) :]


def _count(items: list[Any], params: ListOperationsParams) -> int:
    """Return how many items to select. With `strict` the list must have as many."""
    if params.strict and not 1 <= params.n <= len(items):
        raise NodeFailure(f"{params.operations}: a list of {len(items)} has no {params.n} items to select.")
    return min(max(params.n, 0), len(items))


def _filter(items: list[Any], params: ListOperationsParams) -> list[Any]:
    operator, text = params.filter.get("operator", "="), templates.plain_text(params.filter.get("value"))
    return [item for item in items if matches(item, operator, text)]


def _sort(items: list[Any], params: ListOperationsParams) -> list[Any]:
    """Sort the items, stable in both directions. Objects are compared by the keys in `sort_by`, else by all pairs."""
    if not items:
        return []
    by_object = isinstance(items[0], Mapping)
    stray = next((item for item in items if isinstance(item, Mapping) != by_object), None)
    if stray is not None:
        raise _not_comparable(items[0], stray)
    try:
        return sorted(
            items, key=_sort_key_by(params.sort_by) if by_object else None, reverse=params.sort_method == "desc"
        )
    except TypeError as error:
        raise NodeFailure(f"sort: the items cannot be compared: {error}.") from error


def _sort_key_by(keys: Sequence[str]) -> Callable[[Mapping[str, Any]], Any]:
    if keys:
        return lambda item: tuple(_sort_key(item.get(key)) for key in keys)
    return _sort_key


def _sort_key(value: Any) -> Any:
    """Return a value's sort key, in which an object is a tuple of its pairs, sorted by key."""
    match value:
        case Mapping():
            return tuple((key, _sort_key(value[key])) for key in sorted(value))
        case list() | tuple():
            return tuple(_sort_key(item) for item in value)
        case _:
            return value


def _drop_duplicates(items: list[Any], params: ListOperationsParams) -> list[Any]:
    first: dict[Any, Any] = {}
    for item in items:
        first.setdefault(_identity(item), item)
    return list(first.values())


def _identity(value: Any) -> Any:
    """Return a hashable value that is the same for equal values only; 1, 1.0 and true are equal."""
    match value:
        case Mapping():
            return "object", frozenset((key, _identity(item)) for key, item in value.items())
        case list() | tuple():
            return "list", tuple(_identity(item) for item in value)
        case _:
            return value


def _not_comparable(one: Any, other: Any) -> NodeFailure:
    return NodeFailure(f"sort: a {type(one).__name__} cannot be compared with a {type(other).__name__}.")


_OPERATIONS: Mapping[str, Callable[[list[Any], ListOperationsParams], list[Any]]] = {
    "nth": _nth,
    "head": _head,
    "tail": _tail,
    "filter": _filter,
    "sort": _sort,
    "drop_duplicates": _drop_duplicates,
}
