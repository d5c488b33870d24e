"""Time limits of transactions: how long a hanging process can hold its locks."""

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from store.db import database
from store.db.database import Database
from store.db.db_errors import is_outage

LOCK = "select pg_advisory_xact_lock(4711)"
IS_FREE = text("select pg_try_advisory_xact_lock(4711)")
SHORT = timedelta(milliseconds=400)


@pytest.fixture
def short_limit_database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database with a short limit for transactions."""
    monkeypatch.setattr(database, "MAX_TRANSACTION_TIME", SHORT)
    short_limit_database = Database(database_url)
    with short_limit_database.transaction() as tx:
        version = tx.scalar(text("show server_version_num"))
    if int(version) < database.TRANSACTION_TIMEOUT_SINCE:
        pytest.skip("this server has no transaction_timeout")
    yield short_limit_database
    short_limit_database.close()


def test_process_that_hangs_inside_a_pipeline_loses_its_locks(short_limit_database: Database):
    with suppress(DBAPIError), short_limit_database.transaction() as tx:
        tx.scalar(text("select 1"))  # begins the transaction
        wire = tx.connection.pgconn
        wire.send_query_params(LOCK.encode(), None)
        wire.send_flush_request()
        wire.flush()

        deadline = time.monotonic() + 20
        while is_free(short_limit_database):
            assert time.monotonic() < deadline, "the lock was not acquired"
        while not is_free(short_limit_database):
            assert time.monotonic() < deadline, "the lock was not released"
        tx.connection.close()  # the connection cannot be used again


def test_a_transaction_that_takes_too_long_counts_as_an_outage(short_limit_database: Database):
    with pytest.raises(DBAPIError) as ended, short_limit_database.transaction() as tx:
        tx.rows(text("select pg_sleep(5)"))

    assert is_outage(ended.value)


def is_free(other: Database) -> bool:
    """Return whether the lock is free."""
    with other.transaction() as tx:
        return tx.scalar(IS_FREE)
