"""Pipelined statements: what each of them sees, and what happens behind a failing one."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import JSON, Executable, bindparam, text
from sqlalchemy.exc import DatabaseError, DataError, IntegrityError, StatementError

from store.db import pipeline
from store.db.compiled_statements import Write
from store.db.database import Database
from store.db.db_errors import is_outage
from store.db.guards import RowGuard, expect_rows, failed_guard
from store.db.transaction import AfterCommitQuery

MAKE = text("create table numbers (n int primary key, label text)")
PUT = text("insert into numbers (n, label) values (:n, :label)")
ALL = text("select n, label from numbers order by n")
COUNT = text("select count(*) from numbers")
HALVE = text("select 1 / cast(:n as int) as half")
SET_LABEL = text("update numbers set label = :label where n = :n returning 1")
SET_LABEL_TOO = text("update numbers set label = :label where n = :n returning 1")
UPSERT = text("insert into numbers (n, label) values (:n, :label) on conflict (n) do update set label = excluded.label")
PUT_JSON = text("insert into numbers (n, label) values (:n, :label)").bindparams(bindparam("label", type_=JSON))
ONE, SOME = expect_rows(RowGuard.LEASE_HELD), expect_rows(RowGuard.CACHE_FRESH)


@pytest.fixture
def numbers(database: Database) -> Iterator[Database]:
    with database.transaction() as tx:
        tx.execute(MAKE)
    yield database
    with database.transaction() as tx:
        tx.execute(text("drop table numbers"))


def fail(numbers: Database, queries: list[AfterCommitQuery] | None = None) -> None:
    """A transaction whose second statement fails; there is another behind it, and one behind the commit."""
    with numbers.transaction() as tx:
        tx.send(PUT, n=98, label="before")
        tx.send(HALVE, n=0)
        tx.send(PUT, n=99, label="behind")
        (queries if queries is not None else []).append(tx.query_after_commit(COUNT))


def of(statement: Executable, n: int, check: str = "") -> Write:
    return Write(statement, {"n": n, "label": "written"}, check)


def write(numbers: Database, *writes: Write, behind: int | None = None) -> None:
    """A transaction of writes, and one statement behind them."""
    with numbers.transaction() as tx:
        for one in writes:
            tx.write(one.statement, one.check, **one.values)
        if behind is not None:
            tx.send(PUT, n=behind, label="behind")


def stored_rows(database: Database) -> list[tuple[int, str]]:
    with database.statements() as tx:
        return [tuple(row) for row in tx.rows(ALL)]


def test_each_statement_sees_those_before_it(numbers: Database):
    with numbers.transaction() as tx:
        counts: list[Any] = []
        for n in range(5):
            tx.send(PUT, n=n, label=str(n))
            counts.append(tx.send(COUNT))

        assert [count.scalar() for count in counts] == [1, 2, 3, 4, 5]


def test_rows_have_named_columns_and_a_write_returns_its_number_of_rows(numbers: Database):
    with numbers.transaction() as tx:
        stored = tx.send(PUT, n=1, label="one")
        (row,) = tx.rows(ALL)
        one = tx.one_or_none(text("select * from numbers where n = :n"), n=1)
        none = tx.one_or_none(text("select * from numbers where n = :n"), n=2)

    assert stored.count() == 1
    assert (row.n, row.label) == (1, "one")
    assert (one, none) == ({"n": 1, "label": "one"}, None)


def test_statements_behind_a_failed_one_are_skipped_and_its_error_is_raised(numbers: Database):
    with pytest.raises(DataError, match="division by zero"):
        fail(numbers)

    assert stored_rows(numbers) == []


@pytest.mark.parametrize("uses", range(1, pipeline.PREPARE_AFTER_USES + 2))
def test_statement_whose_preparation_was_skipped_is_prepared_at_its_next_use(numbers: Database, uses: int):
    for n in range(1, uses):
        with numbers.transaction() as tx:
            tx.execute(PUT, n=n, label="before")
    with pytest.raises(DataError):
        fail(numbers)

    for n in range(uses, uses + 4):
        with numbers.transaction() as tx:
            tx.execute(PUT, n=n, label="after")

    assert [n for n, _ in stored_rows(numbers)] == list(range(1, uses + 4))


def test_failed_savepoint_is_rolled_back_and_the_transaction_continues(numbers: Database):
    with numbers.transaction() as tx:
        tx.execute(PUT, n=1, label="kept")
        with suppress(IntegrityError), tx.savepoint():
            tx.execute(PUT, n=2, label="undone")
            tx.execute(PUT, n=1, label="twice")
        tx.execute(PUT, n=3, label="kept")

    assert stored_rows(numbers) == [(1, "kept"), (3, "kept")]


def test_query_after_commit_sees_the_commit_and_is_not_sent_without_one(numbers: Database):
    with numbers.transaction() as tx:
        tx.send(PUT, n=1, label="one")
        behind = tx.query_after_commit(COUNT)
    never: list[AfterCommitQuery] = []
    with pytest.raises(DataError):
        fail(numbers, never)

    assert (behind.scalar(), never[0].scalar()) == (1, None)


# -- writes that are sent together -----------------------------------------------------------------------------------
def test_a_transaction_of_nothing_but_writes_is_one_statement(numbers: Database, sent_statements: list[bytes]):
    with numbers.transaction() as tx:
        tx.write(PUT, n=1, label="one")
        tx.write(UPSERT, n=2, label="two")
        assert sent_statements == []

    assert [sql.split()[0] for sql in sent_statements] == [b"with"]
    assert stored_rows(numbers) == [(1, "one"), (2, "two")]


def test_queued_writes_are_seen_by_later_statements(numbers: Database, sent_statements: list[bytes]):
    with numbers.transaction() as tx:
        tx.write_many(PUT, [{"n": n, "label": "one of three"} for n in range(3)])
        count = tx.scalar(COUNT)
        tx.write(PUT, n=3, label="the last")

    assert count == 3
    assert [sql.split()[0] for sql in sent_statements] == [b"begin", *[b"insert"] * 3, b"select", b"insert", b"commit"]
    assert len(stored_rows(numbers)) == 4


def test_query_after_commit_sees_queued_writes(numbers: Database):
    with numbers.transaction() as tx:
        tx.write(PUT, n=1, label="one")
        behind = tx.query_after_commit(COUNT)

    assert behind.scalar() == 1


def test_queued_writes_of_a_rolled_back_transaction_are_never_sent(numbers: Database, sent_statements: list[bytes]):
    with suppress(LookupError), numbers.transaction() as tx:
        tx.write(PUT, n=1, label="one")
        raise LookupError

    assert sent_statements == []
    assert stored_rows(numbers) == []


def test_writes_without_a_transaction_commit_on_their_own(numbers: Database):
    with numbers.statements() as tx:
        tx.write(PUT, n=1, label="one")

    assert stored_rows(numbers) == [(1, "one")]


def test_the_same_write_twice_is_two_statements_of_a_transaction(numbers: Database, sent_statements: list[bytes]):
    with numbers.transaction() as tx:
        tx.write(PUT, n=1, label="one")
        tx.write(UPSERT, n=2, label="two")
        tx.write(PUT, n=3, label="three")

    assert [sql.split()[0] for sql in sent_statements] == [b"begin", *[b"insert"] * 3, b"commit"]
    assert len(stored_rows(numbers)) == 3

    with pytest.raises(IntegrityError):
        write(numbers, of(PUT, 20), of(PUT, 21), of(PUT, 1))
    assert len(stored_rows(numbers)) == 3


def test_failed_check_undoes_the_other_writes_and_skips_everything_behind(numbers: Database):
    with pytest.raises(DatabaseError, match=r"The lease .* \(rows expected: 1, found: 0\)") as refused:
        write(numbers, of(PUT, 1), of(SET_LABEL, 7, ONE), behind=2)

    assert failed_guard(refused.value) is RowGuard.LEASE_HELD
    assert not is_outage(refused.value)
    assert stored_rows(numbers) == []


def test_an_arithmetic_error_beside_a_check_is_not_a_failed_guard(numbers: Database):
    with pytest.raises(DataError) as failed:
        fail(numbers)

    assert failed_guard(failed.value) is None


def test_invalid_value_of_a_queued_write_raises_a_statement_error(numbers: Database):
    with pytest.raises(StatementError), numbers.transaction() as tx:
        tx.write(PUT_JSON, n=1, label=object())

    assert stored_rows(numbers) == []


def test_failed_check_is_raised_before_any_other_write_waits_for_a_lock(numbers: Database):
    """`store.runs.decisions` relies on this: PostgreSQL evaluates what is selected before the other writes."""
    with numbers.transaction() as tx:
        tx.write(PUT, n=1, label="is there")
    waits, is_refused = of(UPSERT, 1), of(PUT, 1)
    with numbers.transaction() as holder:
        holder.execute(SET_LABEL, n=1, label="held")
        for check, guard in ((ONE, RowGuard.LEASE_HELD), (SOME, RowGuard.CACHE_FRESH)):
            with pytest.raises(DatabaseError, match=guard.problem):
                write(numbers, waits, is_refused, of(SET_LABEL, 7, check))
        with pytest.raises(DatabaseError, match=RowGuard.LEASE_HELD.problem):
            write(numbers, waits, of(SET_LABEL, 7, ONE), is_refused, of(SET_LABEL_TOO, 8, SOME))

    assert stored_rows(numbers) == [(1, "held")]


def test_pipeline_larger_than_any_buffer_does_not_block(numbers: Database):
    long = "x" * 10_000
    with numbers.transaction() as tx:
        results = [tx.send(text("select cast(:label as text)"), label=long) for _ in range(2_000)]
        tx.write_many(PUT, [{"n": n, "label": long} for n in range(500)])

        assert tx.scalar(COUNT) == 500
        assert {len(result.scalar()) for result in results} == {len(long)}
