"""Migrations under traffic: no transaction waits for long, and applied revisions stay applied."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from canvas.errors import ExecutorError
from embedded import EmbeddedServers
from store.db.database import Database
from store.maintenance import migrate
from store.primitives.ids import new_id
from tests import services as test_services
from tests.upgrade.recording import connected, make_tables

OLD = "0012"
LATER = [f"{number:04}" for number in range(13, int(migrate.newest_revision()) + 1)]
WITHIN = 60.0  # seconds; a deadline, not an expectation

WRITE_VARIABLE = """
    insert into variables (run_id, activation_id, name, place, region, value) values (%s, %s, 'x', 'a', 'a', '1')
"""
THIS_DATABASE = "(select oid from pg_database where datname = current_database())"
WAITS_FOR = f"""
    select count(*) from pg_locks where relation = to_regclass(%s) and not granted and database = {THIS_DATABASE}
"""
END_LOCK_HOLDER = f"""
    select pg_terminate_backend(pid) from pg_locks
    where locktype = 'advisory' and granted and database = {THIS_DATABASE}
"""
DUPLICATE_INDEXES = """
    select indrelid::regclass::text from pg_index
    group by indrelid, indkey::text, indexprs::text, indpred::text having count(*) > 1
"""


@pytest.fixture
def old_url(services: EmbeddedServers) -> Iterator[str]:
    """A database with the tables of an earlier release, and a partition for a week."""
    with test_services.fresh_database(services.database_url) as url:
        make_tables(url, OLD)
        with connected(url) as connection:
            for table in ("runs", "activations", "node_values", "variables"):
                connection.execute(f"create table {table}_p2000w01 (like {table} including all)")  # pyright: ignore[reportArgumentType, reportCallIssue]
                connection.execute(
                    f"alter table {table} attach partition {table}_p2000w01 for values"  # pyright: ignore[reportArgumentType, reportCallIssue]
                    " from ('00dc6acf-0000-7000-8000-000000000000') to ('00dc8edb-0000-7000-8000-000000000000')"
                )
        yield url


@pytest.fixture
def short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let migrations give up on a lock after 0.2 s."""
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", 0.2)
    monkeypatch.setattr(migrate, "PAUSES", (0.01,))


@contextmanager
def read_lock(url: str, table: str) -> Generator["psycopg.Connection[Any]"]:
    """Hold a read lock on a table in an open transaction."""
    with connected(url) as connection:
        connection.execute("set application_name = 'a long report'")
        connection.commit()
        connection.execute(f"lock table {table} in access share mode")  # pyright: ignore[reportArgumentType, reportCallIssue]
        yield connection
        connection.rollback()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def a_transaction_waits_for(url: str, table: str) -> bool:
    with connected(url) as connection:
        row = connection.execute(WAITS_FOR, [table]).fetchone()
    return row is not None and row[0] > 0


def has_lasted_a_second(transaction: "psycopg.Connection[Any]") -> bool:
    """Return whether the transaction is old enough to be named in the error."""
    return transaction.execute("select clock_timestamp() > now() + interval '1.1 s'").fetchall() == [(True,)]


def missing(url: str) -> list[str]:
    database = Database(url, pool_size=1)
    try:
        return migrate.missing_revisions(database)
    finally:
        database.close()


def duplicate_indexes(url: str) -> list[str]:
    with connected(url) as connection:
        return [name for (name,) in connection.execute(DUPLICATE_INDEXES).fetchall()]


def test_writers_are_not_blocked_while_a_migration_waits_for_the_lock_of_another_table(old_url: str):
    with ThreadPoolExecutor(1) as beside:
        with read_lock(old_url, "versions"):  # which revision 0014 changes, behind the variables of 0013
            migration = beside.submit(migrate.upgrade, old_url)
            wait_until(lambda: a_transaction_waits_for(old_url, "versions"))

            with connected(old_url) as writer:
                writer.execute("set lock_timeout = '1s'")
                written = writer.execute(WRITE_VARIABLE, [new_id(), new_id()]).rowcount

        assert migration.result(WITHIN) == LATER
    assert written == 1


def test_transactions_wait_only_briefly_behind_a_migration_that_waits_for_a_lock(old_url: str):
    with ThreadPoolExecutor(1) as beside:
        with read_lock(old_url, "versions"), connected(old_url) as reader:
            migration = beside.submit(migrate.upgrade, old_url)
            wait_until(lambda: a_transaction_waits_for(old_url, "versions"))

            reader.execute("set lock_timeout = '10s'")  # as long as the product's statements may wait
            read = reader.execute("select count(*) from versions").fetchall()

        assert migration.result(WITHIN) == LATER
    assert read == [(0,)]


@pytest.mark.usefixtures("short_lock_timeout")
def test_migration_without_its_lock_fails_and_names_revision_and_open_transactions(old_url: str):
    with read_lock(old_url, "versions") as holder:
        wait_until(lambda: has_lasted_a_second(holder))
        with pytest.raises(ExecutorError) as failed:
            migrate.upgrade(old_url)

    assert failed.value.message.startswith("Revision 0014 did not get a lock in 2 tries of 0.2 s: ")
    assert "alter table versions add column" in failed.value.message.lower()
    assert "(a long report, " in failed.value.message
    assert "Run `easel migrate` again" in failed.value.message
    assert missing(old_url) == LATER[1:]
    assert migrate.upgrade(old_url) == LATER[1:]


def test_revision_is_repeated_when_its_lock_was_not_free_at_first(old_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", 0.2)
    pauses: list[float] = []
    with read_lock(old_url, "versions") as holder:

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            holder.rollback()

        monkeypatch.setattr(migrate.time, "sleep", sleep)
        applied = migrate.upgrade(old_url)

    assert applied == LATER
    assert pauses == [1.0]


@pytest.mark.usefixtures("short_lock_timeout")
def test_migration_that_failed_after_its_preparation_is_repeated_without_duplicate_indexes(old_url: str):
    with read_lock(old_url, "variables"), pytest.raises(ExecutorError, match="Revision 0013 did not get a lock"):
        migrate.upgrade(old_url)

    assert missing(old_url) == LATER
    assert migrate.upgrade(old_url) == LATER
    assert duplicate_indexes(old_url) == []


def test_indexes_of_weeks_are_built_before_the_table_is_locked(old_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", 0.2)
    monkeypatch.setattr(migrate, "PAUSES", ())
    with read_lock(old_url, "runs"), pytest.raises(ExecutorError, match="Revision 0015"):
        migrate.upgrade(old_url)

    with connected(old_url) as connection:
        built = connection.execute("select to_regclass('ix_runs_p2000w01_newest') is not null").fetchall()
    assert built == [(True,)]


def test_concurrent_writers_lose_no_rows_during_a_migration(old_url: str):
    with connected(old_url) as connection:
        connection.execute(
            "insert into variables (run_id, activation_id, name, place, region, value)"
            " select gen_random_uuid(), gen_random_uuid(), 'x', 'a', 'a', '1' from generate_series(1, 20000)"
        )
    database, ending, written = Database(old_url, pool_size=2), threading.Event(), [0, 0]
    count = text("select count(*) from variables")
    insert = text("""
        insert into variables (run_id, activation_id, name, place, region, value)
        values (:run_id, :activation_id, 'x', 'a', 'a', '1')
    """)

    def write(at: int) -> None:
        while not ending.is_set():
            database.run_with_retry(lambda tx: tx.execute(insert, run_id=new_id(), activation_id=new_id()))
            written[at] += 1

    with ThreadPoolExecutor(2) as writers:
        writing = [writers.submit(write, at) for at in range(2)]
        try:
            wait_until(lambda: all(written))
            applied = migrate.upgrade(old_url)
            so_far = list(written)
            wait_until(lambda: any(each.done() for each in writing) or all(map(int.__gt__, written, so_far)))
        finally:
            ending.set()
        for each in writing:
            each.result(WITHIN)  # raises the error of a writer
    with database.transaction() as tx:
        rows = tx.scalar(count)
    database.close()

    assert applied == LATER
    assert rows == 20_000 + sum(written)


def test_second_migration_reports_that_it_waits_and_then_applies_nothing(old_url: str):
    waits = threading.Event()
    with ThreadPoolExecutor(2) as both:
        with read_lock(old_url, "versions"):
            first = both.submit(migrate.upgrade, old_url)
            wait_until(lambda: a_transaction_waits_for(old_url, "versions"))
            second = both.submit(migrate.upgrade, old_url, on_wait=waits.set)
            assert waits.wait(WITHIN)

        assert first.result(WITHIN) == LATER
        assert second.result(WITHIN) == []


def test_migration_that_has_lost_the_advisory_lock_stops(old_url: str):
    def lose_lock(_revision: str) -> None:
        with connected(old_url) as connection:
            assert connection.execute(END_LOCK_HOLDER).fetchall() == [(True,)]

    with pytest.raises(OperationalError, match="terminating connection"):
        migrate.upgrade(old_url, on_applied=lose_lock)

    assert missing(old_url) == LATER[1:]


def test_time_limits_of_a_role_do_not_end_a_migration(old_url: str):
    """docs/operations.md sets such limits where a pooler drops the settings of processes."""
    limit = "idle_in_transaction_session_timeout = '100ms'"
    with connected(old_url) as connection:
        connection.execute(f"alter database {connection.info.dbname} set {limit}")  # pyright: ignore[reportArgumentType, reportCallIssue]

    applied = migrate.upgrade(old_url, on_applied=lambda _revision: time.sleep(0.2))

    assert applied == LATER
