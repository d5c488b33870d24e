"""Guards: conditions that the server checks itself, because a transaction does not wait for its writes.

The statements of an advance are sent together with their commit. A write that must hit certain rows is therefore
followed by `expect_rows(...)`, a function in the database (migrations/versions/0018_expect_rows.py). If the write hit
another number of rows, the function raises an error with an SQLSTATE of ours, and the server executes nothing that was
sent after it, the commit included.
"""

from enum import StrEnum

from store.db.db_errors import sqlstate


class RowGuard(StrEnum):
    """The conditions by the SQLSTATE that reports them. Class RG is free for applications in the SQL standard."""

    RUN_UNCHANGED = "RG001"
    ACTIVATIONS_UNCHANGED = "RG002"
    LEASE_HELD = "RG003"
    CACHE_FRESH = "RG004"
    VERSION_EXISTS = "RG005"

    @property
    def problem(self) -> str:
        """The error message if the condition does not hold."""
        return _PROBLEMS[self]


_PROBLEMS = {
    RowGuard.RUN_UNCHANGED: "A run changed under its lock",
    RowGuard.ACTIVATIONS_UNCHANGED: "An activation was not in the status that the decision saw",
    RowGuard.LEASE_HELD: "The lease of a reported attempt is gone",
    RowGuard.CACHE_FRESH: "A run is locked, or is not as the cache has it",
    RowGuard.VERSION_EXISTS: "A version or its canvas is gone",
}


def expect_rows(guard: RowGuard, expected: str = "1") -> str:
    """Return an SQL expression over the rows of a write that is an error unless there are `expected` of them."""
    return f"expect_rows(count(*), {expected}, '{guard.value}', '{guard.problem}')"


def failed_guard(error: BaseException) -> RowGuard | None:
    """Return the guard that refused a transaction; None if the error is another one."""
    state = sqlstate(error)
    return RowGuard(state) if state in set(RowGuard) else None
