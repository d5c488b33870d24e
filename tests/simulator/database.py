"""The production's `Database` and `Transaction`, with the server of `tables.py` behind them and twins for statements.

A twin is a Python function that does what one production statement does; it is found by the statement's identity. A
statement without a twin is an error that names it: write the twin, and the differential test holds it to the truth.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Executable
from sqlalchemy.exc import OperationalError

from store.db.compiled_statements import Write
from store.db.database import Database
from store.db.transaction import AfterCommitQuery, PendingResult, Transaction
from tests.simulator.tables import Server, Work, away

Twin = Callable[..., Any]
"""(work, **values) -> the number of rows that a write has hit, or rows as mappings."""

TWINS: dict[int, tuple[str, Twin, Executable]] = {}


def twin(statement: Executable) -> Callable[[Twin], Twin]:
    """What is decorated does what the statement does."""

    def known(function: Twin) -> Twin:
        TWINS[id(statement)] = (function.__name__, function, statement)
        return function

    return known


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


class Found(PendingResult):
    """What a twin has found."""

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
    """One open transaction. `alone`: each statement is one, and commits at once.

    What is sent for later is carried out at once, as a server may that answers late.
    """

    def __init__(self, server: Server, *, alone: bool = False) -> None:  # no connection behind it
        self.server = server
        self._alone = alone
        self._work: Work | None = None
        self._writes: list[Write] = []
        self._after_commit: list[AfterCommitQuery] = []

    def send(self, statement: Executable, **values: Any) -> PendingResult:
        self._send_writes()
        return Found(self._carry_out(statement, values))

    def _send_writes(self, *, as_one: bool = False) -> None:
        """In one statement of all of them what is checked comes first."""
        writes, self._writes = self._writes, []
        for write in sorted(writes, key=lambda write: as_one and not write.check):
            self._carry_out(write.statement, write.values, is_told=bool(write.check))  # others have real times in them

    def wait(self) -> None:
        """Nothing is on its way but writes."""
        self._send_writes()

    def commit_asynchronously(self) -> None:
        work = self._at_work("commit without waiting")
        work.waits_for_disk = False
        self._heard(work)

    def _carry_out(self, statement: Executable, values: Mapping[str, Any], *, is_told: bool = True) -> Any:
        name, function, _ = _twin_of(statement)
        work = self._at_work(name, values if is_told else None)
        try:
            found = function(work, **values)
        except BaseException:
            if self._alone:
                self.roll_back()
            raise
        finally:
            self._heard(work)
        if self._alone:
            self._commit_alone(work)
        return found

    def _at_work(self, name: str, values: Mapping[str, Any] | None = None) -> Work:
        world, server = self.server.world, self.server
        world.step(name)
        if world.told is not None:
            world.tell(f"{name} {_shown(values)}")
        if not server.is_up:
            if self._work is not None:
                self._work.ended = self._work.ended or "server closed the connection unexpectedly"
            raise away("the database is away")
        if self._work is None:
            self._work = server.begin(world.current)
        if self._work.ended is not None:
            raise server.refusal(self._work)
        self._work.is_at_work = True
        return self._work

    def _heard(self, work: Work) -> None:
        work.is_at_work = False
        work.last_heard = self.server.world.now

    def _commit_alone(self, work: Work) -> None:
        if work.touched:
            self.server.world.step("commit")  # others may run into its locks
        self._work = None
        written = list(work.touched)
        self.server.commit(work)
        try:
            _answered(self.server)
        except OperationalError:
            self.server.unheard |= {row.committed["lease_id"] for row in written if "lease_id" in (row.committed or ())}  # pyright: ignore[reportOptionalSubscript]
            raise

    def commit(self) -> None:
        """Commit what was begun, then send what was to go behind."""
        self._must_begin = self._work is None
        self._send_writes(as_one=self._can_be_one_statement())
        self._commit()
        for behind in self._after_commit:
            alone = SimulatedTransaction(self.server, alone=True)
            behind.result = alone.send(behind.statement, **behind.values)

    def _commit(self) -> None:
        if self._work is None:
            return
        work = self._work
        self.server.world.step("commit")
        if self.server.world.told is not None:
            self.server.world.tell("commit" if work.touched else "end")
        has_written = bool(work.touched)
        self.server.commit(work)
        if has_written:
            _answered(self.server)

    def roll_back(self) -> None:
        """Roll back what was begun."""
        self._writes.clear()
        if self._work is not None:
            work = self._work
            self._work = None
            self.server.roll_back(work)


class SimulatedDatabase(Database):
    """A process's way to the server."""

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
        tx = SimulatedTransaction(self.server, alone=True)
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


def _answered(server: Server) -> None:
    """The answer to a commit gets lost now and then."""
    world = server.world
    if server.loses_answers and world.current is not None and world.chance(server.loses_answers):
        world.count("answer to a commit lost")
        raise away("connection lost at commit")


def _shown(values: Mapping[str, Any] | None) -> str:
    if not values:
        return ""
    return " ".join(f"{name}={str(value)[-40:]}" for name, value in values.items())[:200]
