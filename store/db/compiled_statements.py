"""Statements as the wire takes them: SQLAlchemy writes them, once each.

A statement is compiled once for the names that are given to it, with the order of its values and what becomes of each,
and once for each week whose partitions it names (`store.db.pruning`). Writes that leave together are put into one
statement, once for each such row of neighbours.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, Executable
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql.elements import BindParameter, ClauseElement
from sqlalchemy.types import TypeEngine

from store.db import pruning
from store.primitives.json_codec import encode

KEPT = 1024  # compiled statements; more than the product has, so only those that were built for one call make room

_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")
_GIVEN = object()

_PLACE = re.compile(rb"\$(\d+)")

Put = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A statement's text, and for `$1`, `$2`, ...: the value's name, its constant if it brings one, how it is put.

    `is_about_runs`: it names a partitioned table. `is_used_once`: no other execution has this text.
    """

    sql: bytes
    places: Sequence[tuple[str, Any, Put | None]]
    is_about_runs: bool = False
    is_used_once: bool = False

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """The values in order, as the driver takes them. Raises KeyError for one that is missing."""
        return [
            constant if constant is not _GIVEN else put(given[name]) if put else given[name]
            for name, constant, put in self.places
        ]


def compiled(statement: Executable, given: Mapping[str, Any], partition: str = pruning.PARENT) -> Compiled:
    """A statement for the names that are given to it; of a table's columns an insert writes those that are named.

    `partition`: the name of the week whose partitions the statement names in place of the tables (`p2026w47`).
    """
    return _compiled(statement, tuple(given), partition)


def pinned(made: Compiled, run_id: UUID) -> Compiled:
    """Return a statement with its run's id as a literal, so that even a plan for any values is for one partition."""
    if not made.is_about_runs:
        return made
    numbers = {number for number, (name, _, _) in enumerate(made.places, start=1) if name in pruning.RUN}
    literal = f"cast('{run_id}' as uuid)".encode()
    sql = _PLACE.sub(lambda place: literal if int(place[1]) in numbers else place[0], made.sql)
    return Compiled(sql, made.places, is_about_runs=True, is_used_once=True)


@dataclass(frozen=True, slots=True)
class Write:
    """An insert, update or delete whose rows nobody asks for.

    `check`: an expression over the rows that it returns, one for each that it has hit (`store.db.guards.expect_rows`).
    If there are not as many as its writer expects, the server refuses the statement and all that is sent behind it.
    """

    statement: Executable
    values: Mapping[str, Any]
    check: str = ""


@dataclass(frozen=True, slots=True)
class CombinedStatement:
    """Several writes as one statement."""

    sql: bytes
    parts: Sequence[Compiled]
    is_used_once: bool = False

    def values(self, writes: Sequence[Write]) -> list[Any]:
        """The values of all of them in order, as the driver takes them."""
        return [value for part, write in zip(self.parts, writes, strict=True) for value in part.values(write.values)]


def combine_writes(writes: Sequence[Write], parts: Sequence[Compiled] | None = None) -> CombinedStatement:
    """Writes as one statement, in which each sees the rows as they were before all of them.

    So no two of them may hit the same row. Checks are worked out before any write that has none. `parts`: the writes
    compiled, where they do not name the tables as they are.
    """
    parts = parts if parts is not None else [compiled(write.statement, write.values) for write in writes]
    checked = tuple((part, write.check) for part, write in zip(parts, writes, strict=True))
    if any(part.is_used_once for part in parts):
        return _joined(checked)
    return _together(checked)


@lru_cache(maxsize=KEPT)
def _together(writes: tuple[tuple[Compiled, str], ...]) -> CombinedStatement:
    return _joined(writes)


def _joined(writes: tuple[tuple[Compiled, str], ...]) -> CombinedStatement:
    parts = [part for part, _ in writes]
    is_used_once = any(part.is_used_once for part in parts)
    if len(parts) == 1 and not writes[0][1]:
        return CombinedStatement(parts[0].sql, parts, is_used_once)
    texts: list[bytes] = []
    before = 0
    for number, part in enumerate(parts):
        texts.append(b"w%d as (%s)" % (number, _PLACE.sub(partial(_moved, by=before), part.sql)))
        before += len(part.places)
    checks = [f"(select {check} from w{number})" for number, (_, check) in enumerate(writes) if check]  # noqa: S608 (constants)
    return CombinedStatement(
        b"with %s select %s" % (b", ".join(texts), ", ".join(checks or ["1"]).encode()), parts, is_used_once
    )


def _moved(place: re.Match[bytes], by: int) -> bytes:
    return b"$%d" % (int(place[1]) + by)


@lru_cache(maxsize=KEPT)
def _compiled(statement: Executable, names: tuple[str, ...], partition: str) -> Compiled:
    if partition:
        made = _compiled(statement, names, pruning.PARENT)
        return replace(made, sql=pruning.for_week(made.sql, partition)) if made.is_about_runs else made
    assert isinstance(statement, ClauseElement)
    made: Any = statement.compile(dialect=_DIALECT, column_keys=list(names))
    assert not made.post_compile_params, "lists are given to any(), not to in_()"
    unknown = set(names) - set(made.binds)
    assert not unknown, f"the statement knows no {sorted(unknown)}"
    parameters = {name: parameter for parameter, name in made.bind_names.items()}
    places = [_place(name, parameters[name], name in names) for name in made.positiontup or ()]
    sql = made.string.encode()
    return Compiled(sql, places, is_about_runs=pruning.is_about_runs(sql))


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
