"""ExeSQL's sessions on a real PostgreSQL: what they read, and everything that they do not let through."""

import asyncio
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from canvas.errors import ToolError
from providers.databases.databases import DatabaseServers
from providers.http.address_policy import Guard
from providers.interfaces import BoundStatement, Rows


@pytest.fixture(scope="module")
def params(module_database_url: str) -> Mapping[str, Any]:
    """Connection parameters of a database with a table of three items, as a node has them."""
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


async def ask(params: Mapping[str, Any], *statements: str | BoundStatement, most_rows: int = 10) -> list[Rows | str]:
    """What each statement gives in one session: its rows, or the text of its error."""
    told: list[Rows | str] = []
    async with DatabaseServers(Guard(allow_any=True)).connect(params) as session:
        for statement in statements:
            try:
                told.append(await session.execute(statement, most_rows))
            except ToolError as error:
                told.append(error.message)
    return told


def test_values_come_as_python_has_them(params: Mapping[str, Any]):
    [rows] = asyncio.run(ask(params, "SELECT name, price, made FROM items ORDER BY name", most_rows=2))

    assert rows == Rows(
        ["name", "price", "made"], [("apple", Decimal("1.5"), date(2026, 1, 2)), ("pear", Decimal("2"), None)]
    )


def test_moments_that_python_does_not_know_come_as_text(params: Mapping[str, Any]):
    asked = "SELECT 'infinity'::timestamp, '-infinity'::timestamptz, '0044-03-15 BC'::date, '2026-01-02'::date"

    [rows] = asyncio.run(ask(params, asked))

    assert isinstance(rows, Rows)
    assert rows.rows == [("infinity", "-infinity", "0044-03-15 BC", date(2026, 1, 2))]


def test_plans_and_settings_can_be_asked_for(params: Mapping[str, Any]):
    plan, setting = asyncio.run(ask(params, "EXPLAIN SELECT 1", "SHOW transaction_read_only"))

    assert isinstance(plan, Rows)
    assert plan.columns == ["QUERY PLAN"]
    assert setting == Rows(["transaction_read_only"], [("on",)])


def test_a_mistake_is_told_in_the_servers_words_and_the_session_goes_on(params: Mapping[str, Any]):
    told = asyncio.run(ask(params, "SELECT * FROM nope", "SELECT 1 AS n", "SELECT 'a%b' AS percent"))

    assert told == ['relation "nope" does not exist', Rows(["n"], [(1,)]), Rows(["percent"], [("a%b",)])]


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
def test_the_session_itself_lets_no_write_through(params: Mapping[str, Any], statement: str):
    failed, count = asyncio.run(ask(params, statement, "SELECT count(*) AS n FROM items"))

    assert isinstance(failed, str)
    assert count == Rows(["n"], [(3,)])


def test_a_statement_has_no_more_time_than_its_node(params: Mapping[str, Any]):
    [told] = asyncio.run(ask({**params, "timeout": 0.1}, "SELECT count(*) FROM generate_series(1, 1000000000)"))

    assert told == "canceling statement due to statement timeout"


def test_a_wrong_password_is_told_without_it(params: Mapping[str, Any]):
    with pytest.raises(ToolError, match=r"^Database Connection Failed! \n") as failed:
        asyncio.run(ask({**params, "password": "wr0ng-password"}, "SELECT 1"))

    assert "wr0ng-password" not in str(failed.value)


STRANGE = (
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


def test_what_is_bound_is_a_value_to_the_server(params: Mapping[str, Any]):
    statements = [BoundStatement(("SELECT ", "::text AS x, '100%' AS y"), (text,)) for text in STRANGE]

    told = asyncio.run(ask(params, *statements))

    assert told == [Rows(["x", "y"], [(text, "100%")]) for text in STRANGE]


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
def test_values_are_compared_with_columns_of_any_kind(
    params: Mapping[str, Any], statement: BoundStatement, rows: list[Any]
):
    [told] = asyncio.run(ask(params, statement))

    assert isinstance(told, Rows), told
    assert told.rows == rows


def test_a_plan_can_be_asked_for_with_values(params: Mapping[str, Any]):
    [told] = asyncio.run(ask(params, BoundStatement(("EXPLAIN SELECT * FROM items WHERE name = ", ""), ("apple",))))

    assert isinstance(told, Rows), told
