"""The pipeline of one connection: statements are sent as they come, their replies are received together.

This is libpq's pipeline mode: a statement is sent without waiting for the reply of the one before, and a wait ends with
a sync message, after which the server has answered everything. After a failed statement the server skips all others up
to the sync.

psycopg connects, converts values and wraps libpq. Its cursors are not used: for eight statements in a pipeline they
take 260 us of processor time, and this module takes 75 us (docs/decisions/0016-statements-are-pipelined.md).
"""

from collections import deque, namedtuple
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import capabilities, generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

Connection = psycopg.Connection[Any]

PREPARE_AFTER_USES = 2  # uses of a statement on one connection; a statement used twice is mostly used all the time
MAX_PREPARED = 100  # prepared statements per connection; each uses memory of the server
MAX_COUNTED = 1000  # statements per connection whose uses are counted

CAN_CLOSE_PREPARED = capabilities.has_send_close_prepared()
"""Whether libpq (17 or later) can close a prepared statement by a message. PgBouncer translates the names in messages,
but not those in a DEALLOCATE statement.
"""

_FAILED, _SKIPPED = ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED
StatementKey = tuple[bytes, tuple[int, ...]]


class StatementReply:
    """The reply to one statement. `result` stays None until it is received, or if the statement fails or is skipped."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: PGresult | None = None


class PreparedStatements:
    """The prepared statements of a connection: their names, by statement text and types of values.

    The server keeps a prepared statement until the connection ends, even if the transaction that prepared it fails. So
    a name is forgotten only when the server cannot have it: its own preparation failed or was skipped.
    """

    def __init__(self) -> None:
        self.names: dict[StatementKey, bytes] = {}  # the least recently used first
        self.uses: dict[StatementKey, int] = {}
        self.last_number = 0
        # names to deallocate: the server has them, and no statement uses them any more
        self.to_deallocate: list[bytes] = []
        self.missing: set[bytes] = set()  # names whose preparation failed although their deallocation was sent already

    def name_of(self, key: StatementKey) -> bytes | None:
        """Return the name of a prepared statement and mark it as the most recently used; None if it is not prepared."""
        name = self.names.pop(key, None)
        if name is not None:
            self.names[key] = name
        return name

    def count_use(self, key: StatementKey) -> int:
        """Count one use of a statement that is not prepared; return how often it was used so far."""
        if len(self.uses) >= MAX_COUNTED:
            self.uses.clear()
        uses = self.uses[key] = self.uses.get(key, 0) + 1
        return uses

    def add(self, key: StatementKey) -> bytes:
        """Add a statement and return its new name. Above MAX_PREPARED the least recently used statement is dropped."""
        while len(self.names) >= MAX_PREPARED:
            oldest = next(iter(self.names))
            self.to_deallocate.append(self.names.pop(oldest))
            self.uses.pop(oldest, None)
        self.last_number += 1
        name = self.names[key] = b"easel_%d" % self.last_number
        return name


@dataclass(frozen=True, slots=True)
class Preparation:
    """A request to prepare a statement under a name, sent and not yet answered."""

    key: StatementKey
    name: bytes


@dataclass(frozen=True, slots=True)
class Deallocation:
    """A request to deallocate a prepared statement, sent and not yet answered."""

    name: bytes


class Pipeline:
    """The pipeline of a connection that nothing else uses meanwhile. Not for use by two threads at once."""

    def __init__(self, connection: Connection, prepared: PreparedStatements) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepared = prepared
        self._transformer = Transformer(connection)
        self._sent: deque[StatementReply | Preparation | Deallocation] = deque()

    @property
    def is_idle(self) -> bool:
        """Return whether no transaction is open on the server."""
        return self._pgconn.transaction_status == TransactionStatus.IDLE

    def send(
        self, sql: bytes, values: Sequence[Any], *, result_format: int = 0, is_used_once: bool = False
    ) -> StatementReply:
        """Send a statement with placeholders `$1`, `$2`, ... and its values, at the latest with the next `wait`.

        A statement that is used often on this connection is prepared, unless `is_used_once`. With `result_format` 1 the
        server sends rows in binary, in which bytea values have half the size of their text form.
        """
        if not self._pgconn.pipeline_status:
            self._pgconn.enter_pipeline_mode()
        adapt = self._transformer
        dumped = adapt.dump_sequence(values, [PyFormat.AUTO] * len(values))
        key = sql, adapt.types or ()
        may_prepare = values and not is_used_once
        name = (self._prepared.name_of(key) or self._prepare_if_frequent(key)) if may_prepare else None
        if name is not None:
            self._pgconn.send_query_prepared(name, dumped, param_formats=adapt.formats, result_format=result_format)
        else:
            self._pgconn.send_query_params(
                sql, dumped, param_types=adapt.types, param_formats=adapt.formats, result_format=result_format
            )
        reply = StatementReply()
        self._sent.append(reply)
        return reply

    def wait(self) -> None:
        """Wait for all replies. Raises the error of the first statement that failed."""
        if not self._sent:
            return
        self._pgconn.pipeline_sync()
        failed = self._connection.wait(self._receive_replies())
        if failed is not None:
            raise error_from_result(failed, encoding="utf-8")

    def rows(self, result: PGresult) -> list[Any]:
        """Return the rows of a reply; each is a tuple with attributes."""
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(
            0, result.ntuples, _row_factory(*(result.fname(at) for at in range(result.nfields)))
        )

    def exit(self) -> None:
        """Wait for all replies and leave pipeline mode, so that the connection can be used in other ways."""
        self.wait()
        if self._pgconn.pipeline_status:
            self._pgconn.exit_pipeline_mode()

    def _prepare_if_frequent(self, key: StatementKey) -> bytes | None:
        prepared = self._prepared
        if prepared.count_use(key) < PREPARE_AFTER_USES:
            return None
        name = prepared.add(key)
        while prepared.to_deallocate:
            self._deallocate(prepared.to_deallocate.pop())
        self._pgconn.send_prepare(name, *key)
        self._sent.append(Preparation(key, name))
        return name

    def _deallocate(self, name: bytes) -> None:
        if CAN_CLOSE_PREPARED:
            self._pgconn.send_close_prepared(name)
        else:
            self._pgconn.send_query_params(b"deallocate " + name, None)
        self._sent.append(Deallocation(name))

    def _receive_replies(self) -> Generator[Any, Any, PGresult | None]:
        failed = None
        yield from generators.send(self._pgconn)
        while self._sent:
            results = yield from generators.fetch_many(self._pgconn)
            sent, result = self._sent.popleft(), results[0]
            if result.status == _FAILED:
                failed = result if failed is None else failed
            if result.status in (_FAILED, _SKIPPED):
                self._correct_bookkeeping(sent)
            elif isinstance(sent, StatementReply):
                sent.result = result
        yield from generators.fetch_many(self._pgconn)  # the reply to the sync
        return failed

    def _correct_bookkeeping(self, sent: StatementReply | Preparation | Deallocation) -> None:
        """Correct the bookkeeping after the server refused or skipped a request."""
        match sent:
            case Preparation(key, name):
                if self._prepared.names.get(key) == name:
                    del self._prepared.names[key]
                else:
                    self._prepared.missing.add(name)
            case Deallocation(name):
                if name in self._prepared.missing:
                    self._prepared.missing.remove(name)
                else:
                    self._prepared.to_deallocate.append(name)
            case StatementReply():
                pass


@lru_cache(maxsize=512)
def _row_factory(*names: bytes) -> Callable[[Sequence[Any]], Any]:
    return namedtuple("Row", [name.decode() for name in names], rename=True)._make  # pyright: ignore[reportUntypedNamedTuple, reportUnknownMemberType, reportUnknownVariableType]
