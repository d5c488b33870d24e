"""ExeSQL's sessions on a real PostgreSQL: the values they read, and the statements they refuse."""

import asyncio
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from canvas.errors import ToolError
from providers.address_policy import Guard
from providers.databases.databases import DatabaseServers
from providers.interfaces import BoundStatement, Rows


@pytest.fixture(scope="module")
def params(module_database_url: str) -> Mapping[str, Any]:
    """Return a node's connection parameters of a database with a table of three items."""
    url = urlsplit(module_database_url)
    with psycopg.connect(module_database_url.replace("+psycopg", "", 1), autocommit=True) as connection:
        connection.execute("create table items (name text, price numeric, made date)")
        connection.execute(
            "insert into items values ('apple', 1.5, '2026-01-02'), ('pear', 2, null), ('plum', null, null)"
        )
    return {
        "db_type": "postgres",
        "host": url.hostname,
        "port": url.port,
        "database": url.path.lstrip("/"),
        "username": unquote(url.username or ""),
        "password": unquote(url.password or ""),
        "timeout": 5.0,
    }


async def execute_all(
    params: Mapping[str, Any], *statements: str | BoundStatement, most_rows: int = 10
) -> list[Rows | str]:
    """Execute statements in one session; return the rows or the error text of each."""
    results: list[Rows | str] = []
    async with DatabaseServers(Guard(allow_any=True)).connect(params) as session:
        for statement in statements:
            try:
                results.append(await session.execute(statement, most_rows))
            except ToolError as error:
                results.append(error.message)
    return results


def test_values_have_python_types(params: Mapping[str, Any]):
    [rows] = asyncio.run(execute_all(params, "SELECT name, price, made FROM items ORDER BY name", most_rows=2))

    assert rows == Rows(
        ["name", "price", "made"], [("apple", Decimal("1.5"), date(2026, 1, 2)), ("pear", Decimal("2"), None)]
    )


def test_timestamps_beyond_pythons_range_are_text(params: Mapping[str, Any]):
    query = "SELECT 'infinity'::timestamp, '-infinity'::timestamptz, '0044-03-15 BC'::date, '2026-01-02'::date"

    [rows] = asyncio.run(execute_all(params, query))

    assert isinstance(rows, Rows)
    assert rows.rows == [("infinity", "-infinity", "0044-03-15 BC", date(2026, 1, 2))]


def test_plans_and_settings_can_be_queried(params: Mapping[str, Any]):
    plan, setting = asyncio.run(execute_all(params, "EXPLAIN SELECT 1", "SHOW transaction_read_only"))

    assert isinstance(plan, Rows)
    assert plan.columns == ["QUERY PLAN"]
    assert setting == Rows(["transaction_read_only"], [("on",)])


def test_statement_error_has_the_servers_text_and_the_session_continues(params: Mapping[str, Any]):
    results = asyncio.run(execute_all(params, "SELECT * FROM nope", "SELECT 1 AS n", "SELECT 'a%b' AS percent"))

    assert results == ['relation "nope" does not exist', Rows(["n"], [(1,)]), Rows(["percent"], [("a%b",)])]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO items VALUES ('x')",
        "WITH gone AS (DELETE FROM items RETURNING *) SELECT * FROM gone",
        "SELECT 1; DELETE FROM items",
        "SELECT * INTO copied FROM items",
        "SELECT name FROM items FOR UPDATE",
        "SHOW x; DELETE FROM items",
        "CREATE TABLE more (n int)",
    ],
)
def test_session_refuses_writes(params: Mapping[str, Any], statement: str):
    failed, count = asyncio.run(execute_all(params, statement, "SELECT count(*) AS n FROM items"))

    assert isinstance(failed, str)
    assert count == Rows(["n"], [(3,)])


def test_statement_times_out_with_its_node(params: Mapping[str, Any]):
    [result] = asyncio.run(
        execute_all({**params, "timeout": 0.1}, "SELECT count(*) FROM generate_series(1, 1000000000)")
    )

    assert result == "canceling statement due to statement timeout"


def test_error_for_a_wrong_password_does_not_contain_it(params: Mapping[str, Any]):
    with pytest.raises(ToolError, match=r"^Database Connection Failed! \n") as failed:
        asyncio.run(execute_all({**params, "password": "wr0ng-password"}, "SELECT 1"))

    assert "wr0ng-password" not in str(failed.value)


UNUSUAL_TEXTS = (
    "' OR 1=1 --",
    "\\'; DROP TABLE items; --",
    "%s",
    "%",
    "$1",
    "'';",
    "E'\\x27'",
    "$$",
    "\u02bc OR 1=1",
    "a\nb",
)


def test_bound_values_are_not_parsed_as_sql(params: Mapping[str, Any]):
    statements = [BoundStatement(("SELECT ", "::text AS x, '100%' AS y"), (text,)) for text in UNUSUAL_TEXTS]

    results = asyncio.run(execute_all(params, *statements))

    assert results == [Rows(["x", "y"], [(text, "100%")]) for text in UNUSUAL_TEXTS]


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        (BoundStatement(("SELECT name FROM items WHERE name = ", ""), ("apple",)), [("apple",)]),
        (BoundStatement(("SELECT name FROM items WHERE name LIKE ", ""), ("%ea%",)), [("pear",)]),
        (BoundStatement(("SELECT name FROM items WHERE price > ", " LIMIT ", ""), (1.75, 1)), [("pear",)]),
        (BoundStatement(("SELECT name FROM items WHERE made = ", ""), ("2026-01-02",)), [("apple",)]),
        (
            BoundStatement(("SELECT count(*) FROM items WHERE name IN (", ", ", ")"), ("apple", "x') OR ('1'='1")),
            [(1,)],
        ),
        (BoundStatement(("SELECT count(*) FROM items WHERE name IN (", ")"), (None,)), [(0,)]),
    ],
)
def test_bound_values_are_compared_with_columns_of_any_type(
    params: Mapping[str, Any], statement: BoundStatement, rows: list[Any]
):
    [result] = asyncio.run(execute_all(params, statement))

    assert isinstance(result, Rows), result
    assert result.rows == rows


def test_plan_can_be_queried_with_bound_values(params: Mapping[str, Any]):
    [result] = asyncio.run(
        execute_all(params, BoundStatement(("EXPLAIN SELECT * FROM items WHERE name = ", ""), ("apple",)))
    )

    assert isinstance(result, Rows), result
