"""Which errors of the database are outages, and how people are told.

An outage is no fault of what was asked: the same may work later.
"""

import re

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from store.db.poolers import StatementsMixed, advice_of

_PASSING = ("40001", "40P01", "55P03")  # serialization, deadlock, a lock that did not come in time
_AWAY = ("08", "53", "57", "58")  # connection; disk, memory or connections used up; an operator's doing; its files
READ_ONLY = "25006"
QUERY_CANCELED = "57014"
_TOO_LONG = ("25P03", "25P04")  # a transaction that idled, or lasted; its connection is gone
_NO_TABLE = "42P01"
_CHECK = "23514"
_WEEK = re.compile(r"\w_p\d{4}w\d{2}\b")
_OF_DEFAULT = re.compile(r'_default" violates partition constraint')
_FILES = re.compile(r"could not (extend|write|create|open|read|seek|truncate|fsync|fdatasync|stat)\b")


def is_outage(error: BaseException) -> bool:
    """Whether the database was away, full, read-only or too busy, rather than wrongly asked: the same may work later.

    What is wrong for good (a value too large for an index, say) is none, whatever the driver files it under.
    """
    if isinstance(error, NoConnectionFree):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    state = sqlstate(error)
    if state is None:
        return isinstance(error, OperationalError | InterfaceError)
    if names_a_week_that_is_gone(error):
        return True
    return state[:2] in _AWAY or state in (*_PASSING, *_TOO_LONG, READ_ONLY) or _is_of_files(error)


def outage_reason(error: BaseException) -> str:
    """What keeps the database from its work, in words that follow "the database" and tell nothing of where it is."""
    if isinstance(error, NoConnectionFree):
        return "has no connection free for this process"
    state, said = sqlstate(error) or "", _said(error)
    if isinstance(getattr(error, "orig", None), StatementsMixed):
        return "is behind a pooler that mixes prepared statements up"
    if advice_of(error):
        return "is behind a pooler that refuses our options"
    if state == "53100" or (_is_of_files(error) and re.search("too large|No space|quota", said)):
        return "has no room left on its disk"
    if state == READ_ONLY:
        return "is read-only"
    if state == "53200":
        return "has no memory left"
    if state == "53300" or "too many clients" in said or "connection slots are reserved" in said:
        return "takes no more connections"
    if state in ("57P01", "57P02", "57P03") or "the database system is" in said:
        return "is starting or shutting down"
    if state[:2] == "58" or _is_of_files(error):
        return "cannot read or write its files"
    if names_a_week_that_is_gone(error):
        return "has just dropped a week of old runs"
    if state == "57014" or state in _PASSING:
        return "is too busy"
    return "does not answer"


def sqlstate(error: BaseException) -> str | None:
    """The five characters by which PostgreSQL names an error; None if it did not come that far."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def _is_of_files(error: BaseException) -> bool:
    """Whether an error that PostgreSQL has no name for comes from its file system: a quota, a limit on sizes."""
    return sqlstate(error) == "XX000" and _FILES.search(_said(error)) is not None


def _said(error: BaseException) -> str:
    """What the database itself said, without the statement and its values."""
    return str(getattr(error, "orig", None) or error)


def took_too_long(error: BaseException) -> bool:
    """Whether the database has ended a statement or a transaction for the time it took."""
    return sqlstate(error) in (QUERY_CANCELED, *_TOO_LONG)


def is_retryable(error: DBAPIError) -> bool:
    """Whether a transaction that ended with this error may begin again at once."""
    return (
        error.connection_invalidated
        or sqlstate(error) in _PASSING
        or names_a_week_that_is_gone(error)
        or _missed_a_week_that_was_made(error)
    )


def names_a_week_that_is_gone(error: BaseException) -> bool:
    """Whether a statement named a week's partition that retention has dropped since (`store.db.pruning`).

    Repeated, the statement names the tables as they are, and finds what there is.
    """
    return sqlstate(error) == _NO_TABLE and _WEEK.search(_said(error)) is not None


def _missed_a_week_that_was_made(error: BaseException) -> bool:
    """Whether a row went to a default partition while the partition of its week was attached
    (`store.maintenance.partitions`).

    PostgreSQL chooses the partition before it waits for the lock. Repeated, the statement finds the week.
    """
    return sqlstate(error) == _CHECK and _OF_DEFAULT.search(_said(error)) is not None
