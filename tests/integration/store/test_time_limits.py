"""What a process that stands still may keep, and for how long."""

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from store.db import database
from store.db.database import Database
from store.primitives.db_errors import is_outage

TAKE = "select pg_advisory_xact_lock(4711)"
IS_FREE = text("select pg_try_advisory_xact_lock(4711)")
SHORT = timedelta(milliseconds=400)


@pytest.fixture
def impatient(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database whose transactions must be quick."""
    monkeypatch.setattr(database, "MAX_TRANSACTION_TIME", SHORT)
    impatient = Database(database_url)
    with impatient.transaction() as tx:
        version = tx.scalar(text("show server_version_num"))
    if int(version) < database.TRANSACTION_TIMEOUT_SINCE:
        pytest.skip("this server has no transaction_timeout")
    yield impatient
    impatient.close()


def test_process_that_hangs_inside_a_pipeline_loses_its_locks(impatient: Database):
    with suppress(DBAPIError), impatient.transaction() as tx:
        tx.scalar(text("select 1"))  # so that it has begun
        wire = tx.connection.pgconn
        wire.send_query_params(TAKE.encode(), None)
        wire.send_flush_request()
        wire.flush()

        deadline = time.monotonic() + 20
        while is_free(impatient):
            assert time.monotonic() < deadline, "it has taken nothing"
        while not is_free(impatient):
            assert time.monotonic() < deadline, "it keeps what it has taken"
        tx.connection.close()  # it is in no state to be used again


def test_a_transaction_that_takes_too_long_counts_as_an_outage(impatient: Database):
    with pytest.raises(DBAPIError) as ended, impatient.transaction() as tx:
        tx.rows(text("select pg_sleep(5)"))

    assert is_outage(ended.value)


def is_free(somebody: Database) -> bool:
    """Whether another process could have the lock."""
    with somebody.transaction() as tx:
        return tx.scalar(IS_FREE)
