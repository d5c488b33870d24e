"""Statements as the wire takes them: SQLAlchemy writes them, once each.

A statement is compiled once for the names that are given to it, with the order of its values and what becomes of each.
Writes that leave together are put into one statement, once for each such row of neighbours.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import JSON, Executable
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql.elements import BindParameter, ClauseElement
from sqlalchemy.types import TypeEngine

from store.encoding import encode

KEPT = 1024  # compiled statements; more than the product has, so only those that were built for one call make room

_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")
_GIVEN = object()

_PLACE = re.compile(rb"\$(\d+)")

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


@dataclass(frozen=True, slots=True)
class Write:
    """An insert, update or delete whose rows nobody asks for.

    `check`: an expression over the rows that it returns, one for each that it has hit (`1 / count(*)`). Where they are
    not as many as its writer expects the server cannot work it out, and refuses the statement and all that is behind.
    """

    statement: Executable
    values: Mapping[str, Any]
    check: str = ""


@dataclass(frozen=True, slots=True)
class Together:
    """Several writes as one statement."""

    sql: bytes
    parts: Sequence[Compiled]

    def values(self, writes: Sequence[Write]) -> list[Any]:
        """The values of all of them in order, as the driver takes them."""
        return [value for part, write in zip(self.parts, writes, strict=True) for value in part.values(write.values)]


def together(writes: Sequence[Write]) -> Together:
    """Writes as one statement, in which each sees the rows as they were before all of them.

    So no two of them may hit the same row. Checks are worked out before any write that has none.
    """
    return _together(tuple((write.statement, tuple(write.values), write.check) for write in writes))


@lru_cache(maxsize=KEPT)
def _together(writes: tuple[tuple[Executable, tuple[str, ...], str], ...]) -> Together:
    parts = [_compiled(statement, names) for statement, names, _ in writes]
    if len(parts) == 1 and not writes[0][2]:
        return Together(parts[0].sql, parts)
    texts: list[bytes] = []
    before = 0
    for number, part in enumerate(parts):
        texts.append(b"w%d as (%s)" % (number, _PLACE.sub(partial(_moved, by=before), part.sql)))
        before += len(part.places)
    checks = [f"(select {check} from w{number})" for number, (_, _, check) in enumerate(writes) if check]  # noqa: S608 (constants)
    return Together(b"with %s select %s" % (b", ".join(texts), ", ".join(checks or ["1"]).encode()), parts)


def _moved(place: re.Match[bytes], by: int) -> bytes:
    return b"$%d" % (int(place[1]) + by)


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
