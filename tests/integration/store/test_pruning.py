"""Statements about a run name the partition of its week: they find the same rows, and lock one week."""

import importlib
import json
import pkgutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import Executable, make_url, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.elements import ClauseElement

import store
from embedded import EmbeddedServers
from store.db import database as database_module
from store.db import db_errors, pruning, transaction
from store.db.compiled_statements import compile_statement, pin_to_run
from store.db.database import Database
from store.db.transaction import Transaction
from store.maintenance import partitions
from store.monitoring import server_info
from store.primitives.ids import first_id_at, new_id
from store.primitives.weeks import Week
from store.runs import activations, reports, scopes, values
from store.runs import run_rows as run_store
from store.tables.runs import PARTITIONED, WITH_OWN_RETENTION, metadata
from store.tables.runs import runs as run_rows
from tests.integration.engine import Bench, bench_on
from tests.integration.store.rows import add_run
from tests.services import fresh_database

WEEKS = 104
MAX_LOCKS = 150
TENANT = new_id()
LONG_AGO = datetime(2021, 3, 3, 12, tzinfo=UTC)  # Wednesday of week 9
LOCKS = text("select count(*) from pg_locks where pid = pg_backend_pid()")
WITHOUT_LIMITS = text("""
    select set_config(name, '0', true) from pg_settings
    where name in ('transaction_timeout', 'idle_in_transaction_session_timeout')
""")
CONNECTIONS = 40
LONG = timedelta(minutes=5)
PARTS = ("begin -> a", "a -> b, c", "b -> d", "c -> d", "d -> e", "e -> say")


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database for one test alone, since partitions belong to no run."""
    with patient_database(database_url, monkeypatch) as database:
        yield database


@contextmanager
def patient_database(url: str, monkeypatch: pytest.MonkeyPatch) -> Generator[Database]:
    """A database whose plans are those of a worker, and whose transactions may take minutes.

    A busy machine needs more than the usual ten seconds to make partitions, and the server then closes the connection
    without a reason that the client sees.
    """
    monkeypatch.setattr(database_module, "MAX_TRANSACTION_TIME", LONG)
    for limit in ("idle_in_transaction_session_timeout", "statement_timeout"):
        monkeypatch.setitem(database_module._SERVER_LIMITS, limit, str(int(LONG.total_seconds() * 1000)))
    database = Database(url, generic_plans=True)
    yield database
    database.close()


@pytest.fixture(scope="module")
def template_of_many_weeks(services: EmbeddedServers, template: str) -> Iterator[str]:
    """The name of a database that has two years of weeks, for the tests of this module to clone."""
    with pytest.MonkeyPatch.context() as patch, fresh_database(services.database_url, template) as url:
        with patient_database(url, patch) as database:
            make_weeks(database, datetime.now(UTC) - timedelta(weeks=WEEKS - 1), weeks=WEEKS - 1)
        name = make_url(url).database
        assert name is not None
        yield name


def make_weeks(database: Database, moment: datetime, weeks: int = 0) -> None:
    """Make the partitions of a week and of some weeks behind it, a few at a time: the server ends long transactions."""
    for table in PARTITIONED:
        for week in range(weeks + 1):
            with database.transaction() as tx:
                partitions.ensure(tx, moment + timedelta(weeks=week), weeks=0, tables=[table])
    database.pruning.invalidate()


# -- every statement of the product ----------------------------------------------------------------------------------
def statements_about_a_run() -> dict[str, Executable]:
    """The statements of `store` that are given one run's id and name a partitioned table."""
    found: dict[str, Executable] = {}
    for module in pkgutil.walk_packages(store.__path__, "store."):
        members: Mapping[str, Any] = vars(importlib.import_module(module.name))
        for name, member in members.items():
            for at, one in enumerate(member if isinstance(member, list) else [member]):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                if isinstance(one, Executable) and isinstance(one, ClauseElement) and is_about_a_run(one):
                    found[f"{module.name}.{name}{at or ''}"] = one
    return found


def is_about_a_run(statement: Executable) -> bool:
    names = names_given_to(statement)
    return (
        any(name in pruning.RUN_ID_NAMES for name in names)
        and compile_statement(statement, names).names_partitioned_table
    )


def names_given_to(statement: Executable) -> dict[str, None]:
    assert isinstance(statement, ClauseElement)
    columns: list[str] | None = None
    if isinstance(statement, Insert) and not statement._multi_values:  # pyright: ignore[reportPrivateUsage]
        columns = [column.name for column in statement.table.columns]
    return dict.fromkeys(statement.compile(column_keys=columns).params or ())


def relations_of(plan: Any) -> set[str]:
    """The names of all tables in a plan."""
    match plan:
        case Mapping():
            here = {plan["Relation Name"]} if "Relation Name" in plan else set[str]()
            return here.union(*(relations_of(part) for part in plan.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case list():
            return set[str]().union(*(relations_of(part) for part in plan))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return set()


@pytest.fixture(scope="module")
def planned(module_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database with some weeks."""
    database = Database(module_database_url)
    make_weeks(database, LONG_AGO, weeks=3)
    database.close()
    url = module_database_url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("name", sorted(statements_about_a_run()))
def test_statement_on_a_week_reads_the_partitions_that_postgresql_would_choose(
    planned: psycopg.Connection[Any], name: str
):
    """With the run's id as a literal, PostgreSQL itself finds the partitions that can have rows."""
    statement = statements_about_a_run()[name]
    names = names_given_to(statement)
    week = Week.of(LONG_AGO)

    def tables(sql: bytes) -> set[str]:
        explained = planned.execute(b"explain (generic_plan, format json) " + sql).fetchone()
        assert explained is not None
        plan = explained[0] if isinstance(explained[0], list) else json.loads(explained[0])
        read = {table for table in relations_of(plan) if table in PARTITIONED or partitions.is_partition(table)}
        return {table for table in read if not table.startswith(WITH_OWN_RETENTION)}  # they keep their names

    of_tables = tables(pin_to_run(compile_statement(statement, names), first_id_at(LONG_AGO)).sql)
    of_week = tables(compile_statement(statement, names, f"p{week.name}").sql)

    assert of_tables | of_week <= {*PARTITIONED, *(week.partition(table) for table in PARTITIONED)}
    assert {week.partition(table) if table in PARTITIONED else table for table in of_tables} == of_week
    assert not of_week & set(PARTITIONED)


def test_no_column_has_the_name_of_a_partitioned_table():
    """Statements are rewritten by these words."""
    columns = {column.name for table in metadata.tables.values() for column in table.columns}

    assert not columns & set(PARTITIONED)


# -- locks -----------------------------------------------------------------------------------------------------------
@contextmanager
def locks_counted(monkeypatch: pytest.MonkeyPatch) -> Generator[list[int]]:
    """Count the locks of each transaction before its commit; a transaction of one statement gets a commit here."""
    counted: list[int] = []
    commit = Transaction.commit

    def count_and_commit(self: Transaction) -> None:
        if self._must_begin and self._writes:  # pyright: ignore[reportPrivateUsage]
            writes, self._writes = self._writes, []  # pyright: ignore[reportPrivateUsage]
            self._send_begin()  # pyright: ignore[reportPrivateUsage]
            different = {write.statement for write in writes}
            for some in [writes] if len(different) == len(writes) else [[write] for write in writes]:
                self._send_combined(some)  # pyright: ignore[reportPrivateUsage]
        counted.append(self.scalar(LOCKS))
        commit(self)

    with monkeypatch.context() as patched:
        patched.setattr(transaction.Transaction, "commit", count_and_commit)
        yield counted


@pytest.fixture
def many_weeks(
    services: EmbeddedServers, template_of_many_weeks: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    """A bench on two years of weeks whose statements are prepared already."""
    with (
        fresh_database(services.database_url, template_of_many_weeks) as url,
        patient_database(url, monkeypatch) as database,
        bench_on(database, redis_url, monkeypatch) as bench,
    ):
        for _ in range(4):
            assert play_run(bench) == "succeeded"
        yield bench


def play_run(bench: Bench) -> str:
    run = bench.start(*PARTS)
    bench.play()
    return run.status


def test_advance_locks_few_tables_however_many_weeks_exist(many_weeks: Bench, monkeypatch: pytest.MonkeyPatch):
    with locks_counted(monkeypatch) as counted:
        status = play_run(many_weeks)

    assert status == "succeeded"
    assert len(counted) > len(PARTS)
    assert max(counted) <= MAX_LOCKS


def test_advances_of_forty_connections_fit_into_the_lock_table(many_weeks: Bench):
    """Each connection holds the locks of a worker's advance, with cached plans, until all of them do."""
    run = many_weeks.start(*PARTS)
    many_weeks.play()
    (row, *_) = run.activations

    with ExitStack() as stack:
        one = Database(many_weeks.database.url, pool_size=CONNECTIONS, generic_plans=True)
        stack.callback(one.close)
        for _ in range(CONNECTIONS):
            tx = stack.enter_context(one.transaction())
            tx.rows(WITHOUT_LIMITS)
            for _ in range(3):  # the first uses are not prepared
                activations.find_cancelled(tx, [(run.id, row.id, uuid4())])
                activations.renew(tx, [(run.id, row.id, uuid4())], timedelta(seconds=10))
                tx.rows(run_store.READ, of_run=run.id)
                tx.rows(reports.UNAPPLIED, of_run=run.id)
                tx.rows(scopes.SCOPES, of_run=run.id)
                values.load_final(tx, run.id)
        with many_weeks.database.statements() as tx:
            held_by = tx.scalar(text("select count(distinct pid) from pg_locks where locktype = 'relation'"))

    assert held_by >= CONNECTIONS


def test_leases_of_two_weeks_are_renewed_and_each_statement_names_its_week(
    many_weeks: Bench, sent_statements: list[bytes], monkeypatch: pytest.MonkeyPatch
):
    last_week = first_id_at(datetime.now(UTC) - timedelta(weeks=1))
    older, newer = many_weeks.start(*PARTS, run_id=last_week), many_weeks.start(*PARTS)
    claims = [many_weeks.claim(run, "begin") for run in (newer, older)]
    sent_statements.clear()

    with locks_counted(monkeypatch) as counted, many_weeks.database.transaction() as tx:
        held = activations.renew(
            tx, [(claim.run_id, claim.id, claim.lease_id) for claim in claims], timedelta(seconds=30)
        )

    assert held == {claim.lease_id for claim in claims}
    assert [sql for sql in sent_statements if b"update activations " in sql] == []
    assert max(counted) <= MAX_LOCKS


# -- weeks that are created and dropped ------------------------------------------------------------------------------
def test_a_run_of_a_week_without_partition_is_found_before_and_after_the_week_is_made(
    database: Database, sent_statements: list[bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pruning, "MIN_READ_INTERVAL", 0.0)
    with database.transaction() as tx:
        run_id = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO))
    before = read(database, run_id)
    assert b"FROM runs " in last(sent_statements, b"FROM runs")

    other = Database(database.url)
    make_weeks(other, LONG_AGO)
    other.close()
    after = [read(database, run_id) for _ in range(3)]

    assert before is not None
    assert after == [before] * 3
    assert b"FROM runs_p2021w09 " in last(sent_statements, b"FROM runs")


def test_run_in_the_default_partition_locks_one_partition_of_each_table_too(
    many_weeks: Bench, monkeypatch: pytest.MonkeyPatch
):
    with many_weeks.database.transaction() as tx:
        run_id = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO))

    with locks_counted(monkeypatch) as counted:
        for _ in range(4):
            with many_weeks.database.transaction() as tx:
                assert run_store.read(tx, TENANT, run_id) is not None
                values.load_final(tx, run_id)

    assert max(counted) <= MAX_LOCKS


def test_statements_stop_naming_a_week_after_it_was_dropped(database: Database):
    make_weeks(database, LONG_AGO)
    run_id = first_id_at(LONG_AGO)
    with database.transaction() as tx:
        add_run(tx, TENANT, run_id=run_id)
    for _ in range(4):
        assert read(database, run_id) is not None  # by a prepared statement
    for table in PARTITIONED:
        with database.transaction() as tx:
            assert partitions.drop(tx, table, Week.of(LONG_AGO))

    with pytest.raises(DBAPIError) as raised:
        read(database, run_id)

    assert db_errors.is_outage(raised.value)
    assert db_errors.is_retryable(raised.value)
    assert "dropped a week" in db_errors.outage_reason(raised.value)
    assert [read(database, run_id) for _ in range(3)] == [None] * 3


def test_transaction_that_named_a_dropped_week_is_repeated(database: Database):
    make_weeks(database, LONG_AGO)
    run_id = first_id_at(LONG_AGO)
    read(database, run_id)
    for table in PARTITIONED:
        with database.transaction() as tx:
            assert partitions.drop(tx, table, Week.of(LONG_AGO))

    made = database.run_with_retry(lambda tx: run_store.read(tx, TENANT, run_id))

    assert made is None


def test_week_is_not_dropped_while_a_run_starts_in_it(database: Database):
    make_weeks(database, LONG_AGO)
    run_id = first_id_at(LONG_AGO)
    other = Database(database.url)
    with database.transaction() as tx:
        add_run(tx, TENANT, run_id=run_id, status="running")
        tx.wait()
        with suppress(DBAPIError), other.transaction() as dropping:
            partitions.drop(dropping, "runs", Week.of(LONG_AGO))
    other.close()

    assert read(database, run_id) is not None
    with database.transaction() as tx:
        assert partitions.drop(tx, "runs", Week.of(LONG_AGO)) is None


def test_missing_table_that_is_not_a_week_is_not_an_outage(database: Database):
    with pytest.raises(DBAPIError) as raised, database.transaction() as tx:
        tx.execute(text("select from runs_of_somebody"))

    assert not db_errors.is_outage(raised.value)
    assert not db_errors.is_retryable(raised.value)


def read(database: Database, run_id: UUID) -> Mapping[str, Any] | None:
    with database.transaction() as tx:
        return run_store.read(tx, TENANT, run_id)


def last(sent: Sequence[bytes], what: bytes) -> bytes:
    return [b" ".join(sql.split()) + b" " for sql in sent if what in b" ".join(sql.split())][-1]


def test_locks_of_statements_over_all_weeks_are_counted_from_the_catalogue(many_weeks: Bench):
    with many_weeks.database.transaction() as tx:
        found = server_info.lock_use(tx)
        tx.rows(select(run_rows.c.id).where(run_rows.c.tenant_id == TENANT))
        held = tx.scalar(text("select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'relation'"))

    assert found.weeks >= WEEKS
    assert found.of_runs >= found.weeks * len(run_rows.indexes)
    assert found.of_runs <= found.of_all
    assert found.of_runs <= held < found.of_runs + 30  # the table itself, its indexes, the catalogue
