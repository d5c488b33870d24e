"""The production's `Database` and `Transaction`, with the server of `tables.py` behind them and twins for statements.

A twin is a Python function that does what one production statement does; it is found by the statement's identity. A
statement without a twin is an error that names it: write the twin; the differential test compares it
with PostgreSQL.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Executable
from sqlalchemy.exc import OperationalError

from store.db.compiled_statements import Write
from store.db.database import Database
from store.db.transaction import AfterCommitQuery, PendingResult, Transaction
from tests.simulator.tables import Server, ServerTransaction, connection_error

Twin = Callable[..., Any]
"""(tx, **values) -> the number of rows that a write has hit, or rows as mappings."""

TWINS: dict[int, tuple[str, Twin, Executable]] = {}


def twin(statement: Executable) -> Callable[[Twin], Twin]:
    """Register the decorated function as the twin of a statement."""

    def register(function: Twin) -> Twin:
        TWINS[id(statement)] = (function.__name__, function, statement)
        return function

    return register


class Fields(tuple[Any, ...]):
    """A row of a result: a tuple with attributes."""

    _fields: tuple[str, ...]
    _mapping: Mapping[str, Any]

    def __new__(cls, data: Mapping[str, Any]) -> "Fields":
        made = super().__new__(cls, data.values())
        made._mapping, made._fields = data, tuple(data)
        return made

    def _asdict(self) -> dict[str, Any]:
        return dict(self._mapping)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._mapping[name]
        except KeyError:
            raise AttributeError(name) from None


class TwinResult(PendingResult):
    """The result of a twin, available at once."""

    __slots__ = ("_found",)

    def __init__(self, found: Any) -> None:
        self._found = found

    @property
    def is_received(self) -> bool:
        return True

    def rows(self) -> Sequence[Any]:
        return [Fields(row) for row in self._found]

    def one_or_none(self) -> Mapping[str, Any] | None:
        assert len(self._found) <= 1, "several rows where one was meant"
        return self._found[0] if self._found else None

    def scalar(self) -> Any:
        return next(iter(self._found[0].values())) if self._found else None

    def count(self) -> int:
        return self._found if isinstance(self._found, int) else len(self._found)


class SimulatedTransaction(Transaction):
    """One open transaction. `autocommit`: each statement commits at once.

    Statements that are sent without waiting are executed at once.
    """

    def __init__(self, server: Server, *, autocommit: bool = False) -> None:  # no connection behind it
        self.server = server
        self._autocommit = autocommit
        self._server_tx: ServerTransaction | None = None
        self._writes: list[Write] = []
        self._writes_at_end: list[Write] = []
        self._after_commit: list[AfterCommitQuery] = []

    def send(self, statement: Executable, **values: Any) -> PendingResult:
        self._send_writes()
        return TwinResult(self._run_twin(statement, values))

    def _send_writes(self, *, as_one: bool = False) -> None:
        """Execute the buffered writes. Combined into one statement, checked writes come first."""
        writes, self._writes = self._writes, []
        for write in sorted(writes, key=lambda write: as_one and not write.check):
            self._run_twin(
                write.statement, write.values, is_traced=bool(write.check)
            )  # the values of other writes contain real times

    def wait(self) -> None:
        """Send the buffered writes; nothing else is pending."""
        self._send_writes()

    def commit_asynchronously(self) -> None:
        tx = self._begin_statement("commit without waiting")
        tx.is_synchronous = False
        self._end_statement(tx)

    def _run_twin(self, statement: Executable, values: Mapping[str, Any], *, is_traced: bool = True) -> Any:
        name, function, _ = _twin_of(statement)
        tx = self._begin_statement(name, values if is_traced else None)
        try:
            found = function(tx, **values)
        except BaseException:
            if self._autocommit:
                self.roll_back()
            raise
        finally:
            self._end_statement(tx)
        if self._autocommit:
            self._commit_at_once(tx)
        return found

    def _begin_statement(self, name: str, values: Mapping[str, Any] | None = None) -> ServerTransaction:
        simulation, server = self.server.simulation, self.server
        simulation.step(name)
        if simulation.trace_lines is not None:
            simulation.trace(f"{name} {_format_values(values)}")
        if not server.is_up:
            if self._server_tx is not None:
                self._server_tx.end_reason = self._server_tx.end_reason or "server closed the connection unexpectedly"
            raise connection_error("the database is away")
        if self._server_tx is None:
            self._server_tx = server.begin(simulation.current)
        if self._server_tx.end_reason is not None:
            raise server.refusal(self._server_tx)
        self._server_tx.is_in_statement = True
        return self._server_tx

    def _end_statement(self, tx: ServerTransaction) -> None:
        tx.is_in_statement = False
        tx.last_active_at = self.server.simulation.now

    def _commit_at_once(self, tx: ServerTransaction) -> None:
        if tx.touched:
            self.server.simulation.step("commit")  # other transactions may wait for its locks
        self._server_tx = None
        _commit_on(self.server, tx)

    def commit(self) -> None:
        """Commit, then execute the queries that follow the commit."""
        self._must_begin = self._server_tx is None
        self._writes += self._writes_at_end
        self._writes_at_end = []
        self._send_writes(as_one=self._can_be_one_statement())
        self._commit()
        for behind in self._after_commit:
            follow_up = SimulatedTransaction(self.server, autocommit=True)
            behind.result = follow_up.send(behind.statement, **behind.values)

    def _commit(self) -> None:
        if self._server_tx is None:
            return
        tx = self._server_tx
        self.server.simulation.step("commit")
        if self.server.simulation.trace_lines is not None:
            self.server.simulation.trace("commit" if tx.touched else "end")
        if tx.touched:
            _commit_on(self.server, tx)
        else:
            self.server.commit(tx)

    def roll_back(self) -> None:
        """Roll back the open transaction."""
        self._writes.clear()
        self._writes_at_end.clear()
        if self._server_tx is not None:
            tx = self._server_tx
            self._server_tx = None
            self.server.roll_back(tx)


class SimulatedDatabase(Database):
    """A process's connections to the server."""

    def __init__(self, server: Server) -> None:  # no engine behind it
        self.url = "simulated"
        self.pool_size = 8
        self.server = server

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        tx = SimulatedTransaction(self.server)
        try:
            yield tx
        except BaseException:
            tx.roll_back()
            raise
        try:
            tx.commit()
        except BaseException:
            tx.roll_back()
            raise

    @contextmanager
    def statements(self) -> Generator[Transaction]:
        tx = SimulatedTransaction(self.server, autocommit=True)
        try:
            yield tx
        finally:
            tx.roll_back()

    def close(self) -> None:
        """There is nothing to close."""


def _twin_of(statement: Executable) -> tuple[str, Twin, Executable]:
    try:
        return TWINS[id(statement)]
    except KeyError:
        raise NotImplementedError(f"no twin for this statement (tests/simulator/twins_*.py):\n{statement}") from None


def _commit_on(server: Server, tx: ServerTransaction) -> None:
    """Commit, and perhaps lose the answer: then nobody knows of the leases that were written, and they may expire."""
    written = list(tx.touched)
    server.commit(tx)
    try:
        _maybe_lose_answer(server)
    except OperationalError:
        data = [row.committed or {} for row in written]
        server.unconfirmed_leases |= {each["lease_id"] for each in data if "lease_id" in each}
        raise


def _maybe_lose_answer(server: Server) -> None:
    """Lose the answer to a commit with the probability of the server."""
    simulation = server.simulation
    if (
        server.lost_answer_probability
        and simulation.current is not None
        and simulation.chance(server.lost_answer_probability)
    ):
        simulation.count("answer to a commit lost")
        raise connection_error("connection lost at commit")


def _format_values(values: Mapping[str, Any] | None) -> str:
    if not values:
        return ""
    return " ".join(f"{name}={str(value)[-40:]}" for name, value in values.items())[:200]
