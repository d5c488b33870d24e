"""Guards: their SQL, and how the error of the server is recognised."""

from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from store.db import pruning
from store.db.guards import RowGuard, expect_rows, failed_guard


class ServerError(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("refused")
        self.sqlstate = sqlstate


def error(sqlstate: str | None) -> DBAPIError:
    orig: Any = ServerError(sqlstate)
    return DBAPIError("update", {}, orig)


@pytest.mark.parametrize("guard", RowGuard)
def test_guard_is_recognised_by_its_sqlstate(guard: RowGuard):
    assert failed_guard(error(guard.value)) is guard


@pytest.mark.parametrize("sqlstate", ["22012", "2201E", "40001", "RG999", None])
def test_other_errors_of_the_server_are_not_failed_guards(sqlstate: str | None):
    assert failed_guard(error(sqlstate)) is None
    assert failed_guard(ValueError("refused")) is None


@pytest.mark.parametrize("guard", RowGuard)
def test_sql_of_a_guard_is_the_same_in_statements_of_one_week(guard: RowGuard):
    sql = expect_rows(guard).encode()

    assert pruning.name_partitions(sql, "p2026w47") == sql
    assert "'" not in guard.problem
