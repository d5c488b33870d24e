"""Which errors of the database are outages, and the texts that describe them to users.

An outage is not the fault of the request: the same request may succeed later.
"""

import re

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from store.db.poolers import StatementsMixed, advice_for

_TRANSIENT = ("40001", "40P01", "55P03")  # serialization failure, deadlock, lock timeout
_UNAVAILABLE = (
    "08",
    "53",
    "57",
    "58",
)  # connection; disk, memory or connections exhausted; operator action; system error
READ_ONLY = "25006"
QUERY_CANCELED = "57014"
_TRANSACTION_TIMEOUTS = (
    "25P03",
    "25P04",
)  # idle-in-transaction and transaction timeouts; the server closes the connection
_UNDEFINED_TABLE = "42P01"
_CHECK_VIOLATION = "23514"
_WEEK = re.compile(r"\w_p\d{4}w\d{2}\b")
_OF_DEFAULT = re.compile(r'_default" violates partition constraint')
_FILES = re.compile(r"could not (extend|write|create|open|read|seek|truncate|fsync|fdatasync|stat)\b")


def is_outage(error: BaseException) -> bool:
    """Return whether the database was unreachable, full, read-only or too busy: the same request may succeed later.

    An error that stays (a value too large for an index, for example) is not an outage, whatever class the driver gives
    it.
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
    if names_dropped_week(error):
        return True
    return (
        state[:2] in _UNAVAILABLE
        or state in (*_TRANSIENT, *_TRANSACTION_TIMEOUTS, READ_ONLY)
        or _is_file_system_error(error)
    )


def outage_reason(error: BaseException) -> str:
    """Return what is wrong with the database, as words that follow "the database" and do not reveal where it is."""
    if isinstance(error, NoConnectionFree):
        return "has no connection free for this process"
    state, message = sqlstate(error) or "", _message_of(error)
    if isinstance(getattr(error, "orig", None), StatementsMixed):
        return "is behind a pooler that mixes prepared statements up"
    if advice_for(error):
        return "is behind a pooler that refuses our options"
    if state == "53100" or (_is_file_system_error(error) and re.search("too large|No space|quota", message)):
        return "has no room left on its disk"
    if state == READ_ONLY:
        return "is read-only"
    if state == "53200":
        return "has no memory left"
    if state == "53300" or "too many clients" in message or "connection slots are reserved" in message:
        return "takes no more connections"
    if state in ("57P01", "57P02", "57P03") or "the database system is" in message:
        return "is starting or shutting down"
    if state[:2] == "58" or _is_file_system_error(error):
        return "cannot read or write its files"
    if names_dropped_week(error):
        return "has just dropped a week of old runs"
    if state == "57014" or state in _TRANSIENT:
        return "is too busy"
    return "does not answer"


def sqlstate(error: BaseException) -> str | None:
    """Return PostgreSQL's five-character error code; None if the error did not come from the server."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def _is_file_system_error(error: BaseException) -> bool:
    """Return whether PostgreSQL's unnamed error (XX000) comes from its file system, such as a quota or a size limit."""
    return sqlstate(error) == "XX000" and _FILES.search(_message_of(error)) is not None


def _message_of(error: BaseException) -> str:
    """Return the database's own message, without the statement and its values."""
    return str(getattr(error, "orig", None) or error)


def is_time_limit_error(error: BaseException) -> bool:
    """Return whether the database ended a statement or a transaction because of a time limit."""
    return sqlstate(error) in (QUERY_CANCELED, *_TRANSACTION_TIMEOUTS)


def is_retryable(error: DBAPIError) -> bool:
    """Return whether a transaction that ended with this error may be repeated at once."""
    return (
        error.connection_invalidated
        or sqlstate(error) in _TRANSIENT
        or names_dropped_week(error)
        or _missed_new_week(error)
    )


def names_dropped_week(error: BaseException) -> bool:
    """Return whether a statement named a week's partition that retention has dropped (`store.db.pruning`).

    When it is repeated, the statement names the tables themselves and finds what is there.
    """
    return sqlstate(error) == _UNDEFINED_TABLE and _WEEK.search(_message_of(error)) is not None


def _missed_new_week(error: BaseException) -> bool:
    """Return whether a row went to a default partition while the partition of its week was being attached.

    PostgreSQL chooses the partition before it waits for the lock (`store.maintenance.partitions`). When it is repeated,
    the statement finds the week's partition.
    """
    return sqlstate(error) == _CHECK_VIOLATION and _OF_DEFAULT.search(_message_of(error)) is not None
