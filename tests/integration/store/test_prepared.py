"""Prepared statements of a connection: how many the server keeps, whatever fails."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from store.db import pipeline
from store.db.database import Database

PREPARED = text("select count(*) from pg_prepared_statements")
READ_ONLY = text("set default_transaction_read_only = on")
WRITABLE = text("set default_transaction_read_only = off")
MARK = text("update runs set error = :error where id = '00000000-0000-0000-0000-000000000000'")
DIVIDE = text("select 1 / cast(:n as int)")
TRIES = 50


@pytest.fixture
def one_connection(module_database_url: str) -> Iterator[Database]:
    database = Database(module_database_url, pool_size=1)
    yield database
    database.close()


def prepared(database: Database) -> int:
    """How many prepared statements the server keeps for the connection."""
    with database.statements() as tx:
        return tx.scalar(PREPARED)


def test_writes_that_a_read_only_database_refuses_leave_one_prepared_statement(one_connection: Database):
    with one_connection.statements() as tx:
        tx.execute(READ_ONLY)

    for _ in range(TRIES):
        with pytest.raises(DBAPIError, match="read-only"), one_connection.transaction() as tx:
            tx.execute(MARK, error="cancel")

    assert prepared(one_connection) <= 1
    with one_connection.statements() as tx:
        tx.execute(WRITABLE)
    with one_connection.transaction() as tx:
        assert tx.execute(MARK, error="cancel") == 0
    assert prepared(one_connection) <= 1


def test_statements_before_and_behind_one_that_fails_leave_one_prepared_statement_each(one_connection: Database):
    kinds = [text(f"select cast(:n as int) + {number}") for number in range(5)]

    for _ in range(TRIES):
        with suppress(DBAPIError), one_connection.transaction() as tx:
            for kind in kinds[:3]:
                tx.send(kind, n=1)
            tx.send(DIVIDE, n=0)
            for kind in kinds[3:]:
                tx.send(kind, n=1)

    assert prepared(one_connection) <= len(kinds) + 1
    with one_connection.transaction() as tx:
        assert [tx.scalar(kind, n=1) for kind in kinds] == [1, 2, 3, 4, 5]


def test_statement_whose_preparation_failed_is_prepared_once_its_table_exists(one_connection: Database):
    put = text("insert into later_table (n) values (:n)")
    for n in range(4):
        with suppress(DBAPIError), one_connection.transaction() as tx:
            tx.execute(put, n=n)

    with one_connection.transaction() as tx:
        tx.execute(text("create table later_table (n int)"))
    for n in range(4):
        with one_connection.transaction() as tx:
            tx.execute(put, n=n)

    with one_connection.transaction() as tx:
        assert tx.scalar(text("select count(*) from later_table")) == 4
        tx.execute(text("drop table later_table"))
    assert prepared(one_connection) <= 1


def test_least_recently_used_statement_is_deallocated_for_a_new_one(
    one_connection: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pipeline, "MAX_PREPARED", 4)
    kinds = [text(f"select cast(:n as int) * {number}") for number in range(12)]
    used_always = kinds[0]

    for kind in kinds:
        for _ in range(3):
            with one_connection.statements() as tx:
                tx.execute(kind, n=1)
                tx.execute(used_always, n=1)

    assert prepared(one_connection) <= 4
    with one_connection.statements() as tx:
        held = [row[0] for row in tx.rows(text("select statement from pg_prepared_statements"))]
    assert any("* 0" in statement for statement in held)
    assert any("* 11" in statement for statement in held)


def test_deallocated_statements_of_a_failed_pipeline_do_not_leak(
    one_connection: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pipeline, "MAX_PREPARED", 3)
    kinds = [text(f"select cast(:n as int) - {number}") for number in range(10)]

    for attempt in range(TRIES):
        with suppress(DBAPIError), one_connection.transaction() as tx:
            for kind in kinds[: attempt % 10]:
                tx.send(kind, n=1)
            tx.send(DIVIDE, n=0)
            for kind in kinds[attempt % 10 :]:
                tx.send(kind, n=1)
    with one_connection.transaction() as tx:
        assert [tx.scalar(kind, n=10) for kind in kinds] == list(range(10, 0, -1))

    assert prepared(one_connection) <= 3


def test_statement_is_deallocated_by_a_message_that_poolers_understand(
    one_connection: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(pipeline, "MAX_PREPARED", 2)
    trace = tmp_path / "trace"
    with trace.open("wb") as out, one_connection.statements() as tx:
        tx.connection.pgconn.trace(out.fileno())
        for number in range(4):
            for _ in range(2):
                tx.scalar(text(f"select {number} + cast(:one as int)"), one=1)
        tx.connection.pgconn.untrace()

    traced = trace.read_text().lower()
    assert "close" in traced
    assert "deallocate" not in traced
