"""Statements on one connection's wire: sent as they come, waited for together (libpq's pipeline mode).

psycopg connects, adapts values and speaks to libpq. Its cursors are left out: for eight statements in a pipeline they
take 260 us of processor time, and this takes 75 (docs/decisions/0016).
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

PREPARE_AFTER_USES = 2  # uses of a statement on one connection; most that are used again are used all the time
MOST_PREPARED = 100  # statements of one connection; each costs the server memory
MOST_COUNTED = 1000  # statements of one connection whose uses are counted

CLOSES = capabilities.has_send_close_prepared()
"""Whether libpq (17 or later) has a message for it. PgBouncer translates names in messages, and none in DEALLOCATE."""

_FAILED, _SKIPPED = ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED
Key = tuple[bytes, tuple[int, ...]]


class Reply:
    """The reply to one statement; None before it was waited for, and for one behind a statement that has failed."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: PGresult | None = None


class Prepared:
    """What was prepared on a connection: names by statement and types of its values.

    The server keeps a prepared statement until the connection ends, also when the transaction that prepared it fails.
    So a name is forgotten only when the server does not have it: its own preparation failed, or was skipped.
    """

    def __init__(self) -> None:
        self.names: dict[Key, bytes] = {}  # the one that was used last comes last
        self.uses: dict[Key, int] = {}
        self.last = 0
        self.unused: list[bytes] = []  # names that the server still has and that no statement uses any more
        self.missing: set[bytes] = set()  # names whose preparation failed after their deallocation was sent

    def name_of(self, key: Key) -> bytes | None:
        """Return the name of a prepared statement and count a use of it; None if it is not prepared."""
        name = self.names.pop(key, None)
        if name is not None:
            self.names[key] = name
        return name

    def count(self, key: Key) -> int:
        """Count a use of a statement that is not prepared; return how often it was used."""
        if len(self.uses) >= MOST_COUNTED:
            self.uses.clear()
        uses = self.uses[key] = self.uses.get(key, 0) + 1
        return uses

    def add(self, key: Key) -> bytes:
        """Return a new name for a statement. Beyond MOST_PREPARED the statement whose last use is oldest makes room."""
        while len(self.names) >= MOST_PREPARED:
            oldest = next(iter(self.names))
            self.unused.append(self.names.pop(oldest))
            self.uses.pop(oldest, None)
        self.last += 1
        name = self.names[key] = b"easel_%d" % self.last
        return name


@dataclass(frozen=True, slots=True)
class Preparation:
    """A statement that is being prepared under a name."""

    key: Key
    name: bytes


@dataclass(frozen=True, slots=True)
class Deallocation:
    """A prepared statement that is being deallocated."""

    name: bytes


class Pipeline:
    """A connection on which nothing else speaks. Not for two threads at once."""

    def __init__(self, connection: Connection, prepared: Prepared) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepared = prepared
        self._adapt = Transformer(connection)
        self._sent: deque[Reply | Preparation | Deallocation] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return self._pgconn.transaction_status == TransactionStatus.IDLE

    def send(self, sql: bytes, values: Sequence[Any], *, result_format: int = 0, is_used_once: bool = False) -> Reply:
        """Send a statement with `$1`, `$2`, ... and its values; it leaves at the next wait at the latest.

        `is_used_once`: it is never worth preparing. `result_format` 1: rows come as the server keeps them and not as
        text, in which bytes are twice as many.
        """
        if not self._pgconn.pipeline_status:
            self._pgconn.enter_pipeline_mode()
        adapt = self._adapt
        dumped = adapt.dump_sequence(values, [PyFormat.AUTO] * len(values))
        key = sql, adapt.types or ()
        is_kept = values and not is_used_once
        name = (self._prepared.name_of(key) or self._prepare_if_it_pays(key)) if is_kept else None
        if name is not None:
            self._pgconn.send_query_prepared(name, dumped, param_formats=adapt.formats, result_format=result_format)
        else:
            self._pgconn.send_query_params(
                sql, dumped, param_types=adapt.types, param_formats=adapt.formats, result_format=result_format
            )
        reply = Reply()
        self._sent.append(reply)
        return reply

    def wait(self) -> None:
        """Wait for all replies. Raises the error of the first statement that has failed."""
        if not self._sent:
            return
        self._pgconn.pipeline_sync()
        failed = self._connection.wait(self._replies())
        if failed is not None:
            raise error_from_result(failed, encoding="utf-8")

    def rows(self, result: PGresult) -> list[Any]:
        """The rows of a reply, each a tuple with attributes."""
        self._adapt.set_pgresult(result)
        return self._adapt.load_rows(0, result.ntuples, _row_of(*(result.fname(at) for at in range(result.nfields))))

    def leave(self) -> None:
        """Wait, and leave the connection for others."""
        self.wait()
        if self._pgconn.pipeline_status:
            self._pgconn.exit_pipeline_mode()

    def _prepare_if_it_pays(self, key: Key) -> bytes | None:
        prepared = self._prepared
        if prepared.count(key) < PREPARE_AFTER_USES:
            return None
        name = prepared.add(key)
        while prepared.unused:
            self._deallocate(prepared.unused.pop())
        self._pgconn.send_prepare(name, *key)
        self._sent.append(Preparation(key, name))
        return name

    def _deallocate(self, name: bytes) -> None:
        if CLOSES:
            self._pgconn.send_close_prepared(name)
        else:
            self._pgconn.send_query_params(b"deallocate " + name, None)
        self._sent.append(Deallocation(name))

    def _replies(self) -> Generator[Any, Any, PGresult | None]:
        failed = None
        yield from generators.send(self._pgconn)
        while self._sent:
            results = yield from generators.fetch_many(self._pgconn)
            sent, result = self._sent.popleft(), results[0]
            if result.status == _FAILED:
                failed = result if failed is None else failed
            if result.status in (_FAILED, _SKIPPED):
                self._not_done(sent)
            elif isinstance(sent, Reply):
                sent.result = result
        yield from generators.fetch_many(self._pgconn)  # of the end of the pipeline
        return failed

    def _not_done(self, sent: Reply | Preparation | Deallocation) -> None:
        """Keep the books right about something that the server has refused or skipped."""
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
                    self._prepared.unused.append(name)
            case Reply():
                pass


@lru_cache(maxsize=512)
def _row_of(*names: bytes) -> Callable[[Sequence[Any]], Any]:
    return namedtuple("Row", [name.decode() for name in names], rename=True)._make  # pyright: ignore[reportUntypedNamedTuple, reportUnknownMemberType, reportUnknownVariableType]
