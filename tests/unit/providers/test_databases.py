"""Sessions over a driver made of a SQLite database in memory. Real servers: tests/integration/providers."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from canvas.errors import AddressRefused, ToolError
from providers.addresses import Guard
from providers.databases import Servers
from providers.drivers import Driver, Target
from providers.services import Rows

PARAMS = {
    "db_type": "postgres", "host": "db.example.com", "port": 5432, "database": "shop", "username": "u",
    "password": "p", "timeout": 3.0,
}  # fmt: skip


async def two_public_addresses(host: str, port: int) -> Sequence[str]:
    return ["8.8.4.4", "8.8.8.8"]


def sqlite(target: Target) -> Any:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("CREATE TABLE t(n INTEGER)")
    database.executemany("INSERT INTO t VALUES (?)", [(1,), (2,), (3,)])
    database.commit()
    return database


def servers(connect: Callable[[Target], Any] = sqlite, guard: Guard | None = None, **given: Any) -> Servers:
    driver = Driver(connect, call_off=lambda connection: connection.interrupt())
    return Servers(guard or Guard(), resolve=two_public_addresses, known={"postgres": driver}, **given)


async def asked(given: Servers, sql: str, most_rows: int = 10, **params: Any) -> Rows:
    async with given.connect({**PARAMS, **params}) as session:
        return await session.execute(sql, most_rows)


def test_a_statement_gives_columns_and_as_many_rows_as_are_wanted():
    rows = asyncio.run(asked(servers(), "SELECT n, n * 2 AS twice FROM t ORDER BY n", most_rows=2))

    assert rows == Rows(["n", "twice"], [(1, 2), (2, 4)])


def test_rows_that_nobody_could_hold_are_not_fetched_to_their_end():
    many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n, zeroblob(1000000) FROM c"

    with pytest.raises(ToolError, match="Ask for less"):
        asyncio.run(asked(servers(), many, most_rows=10**9))


def test_many_small_rows_are_fetched_to_the_last_that_is_wanted():
    many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c"

    rows = asyncio.run(asked(servers(), many, most_rows=5000))

    assert rows.rows == [(n,) for n in range(1, 5001)]


def test_a_statement_that_fails_is_told_and_the_session_goes_on():
    async def both() -> Rows:
        async with servers().connect(PARAMS) as session:
            with pytest.raises(ToolError, match=r"^no such table: nope$"):
                await session.execute("SELECT * FROM nope", 1)
            return await session.execute("SELECT 1 AS n", 1)

    assert asyncio.run(both()).rows == [(1,)]


def test_the_connection_goes_to_an_address_that_was_checked():
    tried: list[Target] = []

    def connect(target: Target) -> Any:
        tried.append(target)
        if target.address == "8.8.4.4":
            raise OSError("connection refused")
        return sqlite(target)

    asyncio.run(asked(servers(connect), "SELECT 1", port="6000"))

    assert [(target.host, target.address, target.port) for target in tried] == [
        ("db.example.com", "8.8.4.4", 6000),
        ("db.example.com", "8.8.8.8", 6000),
    ]
    assert "password" not in repr(tried[0])


def test_a_host_that_may_not_be_reached_is_refused_in_the_usual_words():
    with pytest.raises(AddressRefused, match=r"^Database host '10\.0\.0\.1' is not allowed: Host resolves to"):
        asyncio.run(asked(servers(), "SELECT 1", host="10.0.0.1"))


@pytest.mark.parametrize("host", ["DB.example.com", "db.example.com.", "alias.example.com", "8.8.8.8"])
def test_easels_own_database_is_not_for_nodes_whatever_they_call_it(host: str):
    with pytest.raises(ToolError, match=r"^For the security reason, it does not support database named shop"):
        asyncio.run(asked(servers(own=("db.example.com", 5432, "shop")), "SELECT 1", host=host))


def test_other_databases_of_easels_server_may_be_asked():
    given = servers(own=("db.example.com", 5432, "easel"))

    assert asyncio.run(asked(given, "SELECT 1 AS n")).rows == [(1,)]


def test_a_server_that_cannot_be_reached_is_told_in_the_drivers_words():
    def connect(target: Target) -> Any:
        raise OSError("connection refused")

    with pytest.raises(ToolError) as failed:
        asyncio.run(asked(servers(connect), "SELECT 1"))

    assert str(failed.value) == "Database Connection Failed! \nconnection refused"
    assert failed.value.retryable


def test_a_kind_of_database_that_nobody_knows_is_refused():
    with pytest.raises(ToolError, match="Database type oracle is not supported"):
        asyncio.run(asked(servers(), "SELECT 1", db_type="oracle"))


def test_whoever_stops_waiting_calls_the_statement_off_and_the_connection_is_closed():
    closed = threading.Event()

    class Noticed(sqlite3.Connection):
        def close(self) -> None:
            super().close()
            closed.set()

    def connect(target: Target) -> Any:
        return sqlite3.connect(":memory:", check_same_thread=False, factory=Noticed)

    endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c"

    async def impatient() -> None:
        async with asyncio.timeout(0.05):
            await asked(servers(connect), endless)

    with pytest.raises(TimeoutError):
        asyncio.run(impatient())
    assert closed.wait(10)
