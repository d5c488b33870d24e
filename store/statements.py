"""Statements as the wire takes them: SQLAlchemy writes them, once each.

A statement is compiled once for the names that are given to it, with the order of its values and what becomes of each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import JSON, Executable
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql.elements import BindParameter, ClauseElement
from sqlalchemy.types import TypeEngine

from store.encoding import encode

KEPT = 1024  # compiled statements; more than the product has, so only those that were built for one call make room

_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")
_GIVEN = object()

Put = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement's text, and for `$1`, `$2`, ...: the value's name, its constant if it brings one, how it is put."""

    sql: bytes
    places: Sequence[tuple[str, Any, Put | None]]

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """The values in order, as the driver takes them. Raises KeyError for one that is missing."""
        return [
            constant if constant is not _GIVEN else put(given[name]) if put else given[name]
            for name, constant, put in self.places
        ]


def compiled(statement: Executable, given: Mapping[str, Any]) -> Compiled:
    """A statement for the names that are given to it; of a table's columns an insert writes those that are named."""
    return _compiled(statement, tuple(given))


@lru_cache(maxsize=KEPT)
def _compiled(statement: Executable, names: tuple[str, ...]) -> Compiled:
    assert isinstance(statement, ClauseElement)
    made: Any = statement.compile(dialect=_DIALECT, column_keys=list(names))
    assert not made.post_compile_params, "lists are given to any(), not to in_()"
    unknown = set(names) - set(made.binds)
    assert not unknown, f"the statement knows no {sorted(unknown)}"
    parameters = {name: parameter for parameter, name in made.bind_names.items()}
    places = [_place(name, parameters[name], name in names) for name in made.positiontup or ()]
    return Compiled(made.string.encode(), places)


def _place(name: str, parameter: BindParameter[Any], is_given: bool) -> tuple[str, Any, Put | None]:
    put = _put(parameter.type)
    if is_given or parameter.required:
        return name, _GIVEN, put
    constant = parameter.effective_value
    return name, put(constant) if put else constant, None


def _put(kind: TypeEngine[Any]) -> Put | None:
    """What becomes of a value of a type; None: nothing, the driver knows it."""
    if isinstance(kind, JSON):
        return _encode_if_any if kind.none_as_null else encode
    return kind.dialect_impl(_DIALECT).bind_processor(_DIALECT)


def _encode_if_any(value: Any) -> str | None:
    return encode(value) if value is not None else None
