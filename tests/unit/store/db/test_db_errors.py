"""Which errors are an outage of the database, and how the outage is described."""

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from store.db.db_errors import is_outage, is_retryable, outage_reason


def database_error(original: BaseException) -> DBAPIError:
    """Wrap an error of the driver as SQLAlchemy does."""
    instance = DBAPIError.instance("select 'could not extend file'", {}, original, psycopg.Error)  # pyright: ignore
    assert isinstance(instance, DBAPIError)
    return instance


class Unnamed(psycopg.InternalError):
    """An error without a class of its own."""

    sqlstate = "XX000"


@pytest.mark.parametrize(
    ("original", "reason"),
    [
        (psycopg.errors.DiskFull('could not extend file "base/5/1": No space left'), "has no room left on its disk"),
        (Unnamed('could not extend file "base/5/1": File too large'), "has no room left on its disk"),
        (Unnamed('could not write to file "pg_wal/1": Disk quota exceeded'), "has no room left on its disk"),
        (psycopg.errors.IoError('could not read blocks: "base/5/1"'), "cannot read or write its files"),
        (Unnamed('could not open file "base/5/1": Permission denied'), "cannot read or write its files"),
        (psycopg.errors.ReadOnlySqlTransaction("cannot execute UPDATE"), "is read-only"),
        (psycopg.errors.OutOfMemory("out of memory"), "has no memory left"),
        (psycopg.errors.TooManyConnections("sorry"), "takes no more connections"),
        (psycopg.OperationalError("FATAL: sorry, too many clients already"), "takes no more connections"),
        (psycopg.errors.AdminShutdown("terminating connection"), "is starting or shutting down"),
        (psycopg.errors.CannotConnectNow("the database system is starting up"), "is starting or shutting down"),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), "is too busy"),
        (psycopg.errors.DeadlockDetected("deadlock detected"), "is too busy"),
        (psycopg.OperationalError("connection refused"), "does not answer"),
    ],
)
def test_transient_error_is_an_outage_and_is_described_by_its_cause(original: psycopg.Error, reason: str):
    error = database_error(original)

    assert is_outage(error)
    assert outage_reason(error) == reason


@pytest.mark.parametrize(
    "original",
    [
        psycopg.errors.ProgramLimitExceeded("index row size 3000 exceeds btree version 4 maximum 2704"),
        psycopg.errors.UniqueViolation("duplicate key value"),
        psycopg.errors.UndefinedTable('relation "runs" does not exist'),
        psycopg.errors.UntranslatableCharacter("unsupported Unicode escape sequence"),
        Unnamed("cache lookup failed for type 17"),
    ],
)
def test_permanent_error_is_not_an_outage(original: psycopg.Error):
    assert not is_outage(database_error(original))


def test_errors_without_sqlstate_are_classified_too():
    assert is_outage(NoConnectionFree("QueuePool limit"))
    assert outage_reason(NoConnectionFree("QueuePool limit")) == "has no connection free for this process"
    assert is_outage(OperationalError("select 1", {}, Exception("server closed the connection")))
    assert not is_outage(ValueError("no database at all"))
    assert outage_reason(TimeoutError("no answer in time")) == "does not answer"


@pytest.mark.parametrize(
    ("message", "retryable"),
    [
        ('new row for relation "variables_default" violates partition constraint', True),
        ('new row for relation "variables_default" violates check constraint "ck_of_somebody"', False),
    ],
)
def test_row_that_missed_the_partition_of_its_week_is_retryable(message: str, retryable: bool):
    assert is_retryable(database_error(psycopg.errors.CheckViolation(message))) is retryable
