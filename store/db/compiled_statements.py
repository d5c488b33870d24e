"""SQLAlchemy statements, compiled to SQL text with numbered placeholders once each, and writes combined into one
statement.

A statement is compiled once for each set of parameter names that it is called with, and adapted once for each week
whose partitions it names (`store.db.pruning`). A call only puts its values in order. The writes of a transaction may be
sent as one statement (`combine_writes`), which is combined once for each sequence of writes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import JSON, Executable
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql.elements import BindParameter, ClauseElement
from sqlalchemy.types import TypeEngine

from canvas.ids import RunId
from store.db import pruning
from store.primitives.json_codec import encode

# statements; more than the product has, so only statements that were built for a single call are evicted
MAX_CACHED = 1024

_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")
_FROM_CALLER = object()

_PLACEHOLDER = re.compile(rb"\$(\d+)")

Converter = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledStatement:
    """A statement's text and its parameters in the order of `$1`, `$2`, ...

    A parameter is a name, a constant (`_FROM_CALLER` if the caller gives the value) and the conversion that the value
    needs, if any. `names_partitioned_table`: the statement names a partitioned table. `is_used_once`: the text is never
    sent again, so it is not worth preparing.
    """

    sql: bytes
    parameters: Sequence[tuple[str, Any, Converter | None]]
    names_partitioned_table: bool = False
    is_used_once: bool = False

    def values(self, arguments: Mapping[str, Any]) -> list[Any]:
        """Return the values in order, converted for the driver. Raises KeyError if one is missing."""
        return [
            constant if constant is not _FROM_CALLER else put(arguments[name]) if put else arguments[name]
            for name, constant, put in self.parameters
        ]


def compile_statement(
    statement: Executable, arguments: Mapping[str, Any], partition: str = pruning.PARENT
) -> CompiledStatement:
    """Compile a statement for the parameter names that it is called with. An INSERT writes the columns that are named.

    `partition`: the suffix of the week's partitions that the statement names in place of the tables (`p2026w47`).
    """
    return _compile_cached(statement, tuple(arguments), partition)


def pin_to_run(made: CompiledStatement, run_id: RunId) -> CompiledStatement:
    """Return a statement with its run's id as a literal, so that even a generic plan covers one partition only."""
    if not made.names_partitioned_table:
        return made
    numbers = {number for number, (name, _, _) in enumerate(made.parameters, start=1) if name in pruning.RUN_ID_NAMES}
    literal = f"cast('{run_id}' as uuid)".encode()
    sql = _PLACEHOLDER.sub(lambda place: literal if int(place[1]) in numbers else place[0], made.sql)
    return CompiledStatement(sql, made.parameters, names_partitioned_table=True, is_used_once=True)


@dataclass(frozen=True, slots=True)
class Write:
    """An INSERT, UPDATE or DELETE whose result the caller does not read.

    `check`: an SQL expression over the rows that the write returns, one for each row it changed
    (`store.db.guards.expect_rows`). If the number of rows is not the expected one, evaluating it is an error, and the
    server refuses the statement and skips everything behind it.
    """

    statement: Executable
    values: Mapping[str, Any]
    check: str = ""


@dataclass(frozen=True, slots=True)
class CombinedStatement:
    """Several writes as one statement."""

    sql: bytes
    parts: Sequence[CompiledStatement]
    is_used_once: bool = False

    def values(self, writes: Sequence[Write]) -> list[Any]:
        """Return the values of all parts in order, converted for the driver."""
        return [value for part, write in zip(self.parts, writes, strict=True) for value in part.values(write.values)]


def combine_writes(writes: Sequence[Write], parts: Sequence[CompiledStatement] | None = None) -> CombinedStatement:
    """Combine writes into one statement: `with w0 as (...), w1 as (...) select check0, check1`.

    Each write sees the rows as they were before all of them, so no two of them may change the same row. PostgreSQL
    evaluates the checks in their order, and before it executes the writes that have none; so if the first check fails,
    no other write was tried, and no lock was waited for. A test holds PostgreSQL to that
    (`tests/integration/store/test_pipeline.py`). `parts`: the compiled writes, where they name partitions instead of
    tables.
    """
    parts = parts if parts is not None else [compile_statement(write.statement, write.values) for write in writes]
    checked = tuple((part, write.check) for part, write in zip(parts, writes, strict=True))
    if any(part.is_used_once for part in parts):
        return _combine(checked)
    return _combine_cached(checked)


@lru_cache(maxsize=MAX_CACHED)
def _combine_cached(writes: tuple[tuple[CompiledStatement, str], ...]) -> CombinedStatement:
    return _combine(writes)


def _combine(writes: tuple[tuple[CompiledStatement, str], ...]) -> CombinedStatement:
    parts = [part for part, _ in writes]
    is_used_once = any(part.is_used_once for part in parts)
    if len(parts) == 1 and not writes[0][1]:
        return CombinedStatement(parts[0].sql, parts, is_used_once)
    texts: list[bytes] = []
    before = 0
    for number, part in enumerate(parts):
        texts.append(b"w%d as (%s)" % (number, _PLACEHOLDER.sub(partial(_shift_placeholder, by=before), part.sql)))
        before += len(part.parameters)
    checks = [f"(select {check} from w{number})" for number, (_, check) in enumerate(writes) if check]  # noqa: S608 (constants)
    return CombinedStatement(
        b"with %s select %s" % (b", ".join(texts), ", ".join(checks or ["1"]).encode()), parts, is_used_once
    )


def _shift_placeholder(place: re.Match[bytes], by: int) -> bytes:
    return b"$%d" % (int(place[1]) + by)


@lru_cache(maxsize=MAX_CACHED)
def _compile_cached(statement: Executable, names: tuple[str, ...], partition: str) -> CompiledStatement:
    if partition:
        made = _compile_cached(statement, names, pruning.PARENT)
        return replace(made, sql=pruning.name_partitions(made.sql, partition)) if made.names_partitioned_table else made
    assert isinstance(statement, ClauseElement)
    made: Any = statement.compile(dialect=_DIALECT, column_keys=list(names))
    assert not made.post_compile_params, "in_() is not supported: compare with any() and pass a list"
    unknown = set(names) - set(made.binds)
    assert not unknown, f"the statement has no parameters named {sorted(unknown)}"
    parameters = {name: parameter for parameter, name in made.bind_names.items()}
    places = [_parameter_of(name, parameters[name], name in names) for name in made.positiontup or ()]
    sql = made.string.encode()
    return CompiledStatement(sql, places, names_partitioned_table=pruning.names_partitioned_table(sql))


def _parameter_of(name: str, parameter: BindParameter[Any], is_from_caller: bool) -> tuple[str, Any, Converter | None]:
    put = _converter_of(parameter.type)
    if is_from_caller or parameter.required:
        return name, _FROM_CALLER, put
    constant = parameter.effective_value
    return name, put(constant) if put else constant, None


def _converter_of(kind: TypeEngine[Any]) -> Converter | None:
    """Return the conversion that values of a type need before the driver takes them; None if they need none."""
    if isinstance(kind, JSON):
        return _encode_unless_none if kind.none_as_null else encode
    return kind.dialect_impl(_DIALECT).bind_processor(_DIALECT)


def _encode_unless_none(value: Any) -> str | None:
    return encode(value) if value is not None else None
