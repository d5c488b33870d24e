"""Database sessions in separate processes, over SQLite in memory. Real servers: tests/integration/providers."""

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from canvas.errors import AddressRefused, ToolError
from providers.address_policy import Guard
from providers.databases import sessions
from providers.databases.databases import DatabaseServers
from providers.databases.drivers import Target
from providers.databases.sessions import ProcessSession
from providers.interfaces import BoundStatement, Rows

DEADLINE = 30.0
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c"
PARAMS = {
    "db_type": "postgres", "host": "db.example.com", "port": 5432, "database": "shop", "username": "u",
    "password": "p", "timeout": 3.0,
}  # fmt: skip


async def two_public_addresses(host: str, port: int) -> Sequence[str]:
    return ["8.8.4.4", "8.8.8.8"]


async def open_sqlite_session(kind: str, targets: Sequence[Target]) -> ProcessSession:
    return await sessions.open_session(kind, targets, drivers="tests.sqlite_drivers:DRIVERS")


def servers(guard: Guard | None = None, **options: Any) -> DatabaseServers:
    return DatabaseServers(guard or Guard(), resolve=two_public_addresses, open_session=open_sqlite_session, **options)


async def query(databases: DatabaseServers, sql: str | BoundStatement, most_rows: int = 10, **params: Any) -> Rows:
    async with databases.connect({**PARAMS, **params}) as session:
        return await session.execute(sql, most_rows)


def has_ended(process: int) -> bool:
    """Return whether a process ended and was reaped within the deadline."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_statement_returns_columns_and_at_most_the_requested_rows():
    rows = asyncio.run(query(servers(), "SELECT n, n * 2 AS twice FROM t ORDER BY n", most_rows=2))

    assert rows == Rows(["n", "twice"], [(1, 2), (2, 4)])


def test_bound_values_of_a_statement_keep_their_types():
    rows = asyncio.run(
        query(servers(), BoundStatement(("SELECT ", " AS a, ", " AS b, ", " AS c"), ("it's", 2.5, None)))
    )

    assert rows == Rows(["a", "b", "c"], [("it's", 2.5, None)])


def test_fetching_stops_at_the_size_limit():
    many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n, zeroblob(1000000) FROM c"

    with pytest.raises(ToolError, match="Select fewer"):
        asyncio.run(query(servers(), many, most_rows=10**9))


def test_value_larger_than_the_session_memory_is_refused_and_the_session_stays_usable():
    async def both() -> Rows:
        async with servers().connect(PARAMS) as session:
            with pytest.raises(ToolError, match="Select fewer"):
                await session.execute("SELECT zeroblob(900000000)", 1)
            return await session.execute("SELECT 1 AS n", 1)

    assert asyncio.run(both()).rows == [(1,)]


def test_many_small_rows_are_fetched_up_to_the_requested_count():
    many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c"

    rows = asyncio.run(query(servers(), many, most_rows=5000))

    assert rows.rows == [(n,) for n in range(1, 5001)]


def test_failed_statement_is_reported_and_the_session_stays_usable():
    async def both() -> Rows:
        async with servers().connect(PARAMS) as session:
            with pytest.raises(ToolError, match=r"^no such table: nope$"):
                await session.execute("SELECT * FROM nope", 1)
            return await session.execute("SELECT 1 AS n", 1)

    assert asyncio.run(both()).rows == [(1,)]


def test_the_connection_goes_to_the_first_checked_address_that_answers():
    rows = asyncio.run(query(servers(), "SELECT * FROM target", port="6000"))

    assert rows == Rows(["host", "address", "port"], [("db.example.com", "8.8.8.8", 6000)])


def test_database_host_with_a_private_address_is_refused():
    with pytest.raises(AddressRefused, match=r"^Database host '10\.0\.0\.1' is not allowed: Host resolves to"):
        asyncio.run(query(servers(), "SELECT 1", host="10.0.0.1"))


@pytest.mark.parametrize("host", ["DB.example.com", "db.example.com.", "alias.example.com", "8.8.8.8"])
def test_easels_own_database_is_refused_under_any_host_name(host: str):
    with pytest.raises(ToolError, match=r"^For the security reason, it does not support database named shop"):
        asyncio.run(query(servers(own=("db.example.com", 5432, "shop")), "SELECT 1", host=host))


def test_other_databases_of_easels_server_can_be_queried():
    databases = servers(own=("db.example.com", 5432, "easel"))

    assert asyncio.run(query(databases, "SELECT 1 AS n")).rows == [(1,)]


def test_unreachable_server_is_reported_with_the_drivers_message():
    with pytest.raises(ToolError) as failed:
        asyncio.run(query(servers(), "SELECT 1", username="nobody"))

    assert str(failed.value) == "Database Connection Failed! \nconnection refused"
    assert failed.value.retryable


def test_unknown_database_type_is_refused():
    with pytest.raises(ToolError, match="Database type oracle is not supported"):
        asyncio.run(query(servers(), "SELECT 1", db_type="oracle"))


def test_trino_uses_tls_if_the_deployment_enables_it():
    opened: list[Target] = []

    async def record_targets(kind: str, targets: Sequence[Target]) -> ProcessSession:
        opened.extend(targets)
        raise ToolError("noted")

    for db_type in ("trino", "postgres"):
        databases = DatabaseServers(
            Guard(), resolve=two_public_addresses, open_session=record_targets, trino_use_tls=True
        )
        with pytest.raises(ToolError, match="noted"):
            asyncio.run(query(databases, "SELECT 1", db_type=db_type))

    assert [target.tls for target in opened] == [True, True, False, False]


@pytest.mark.parametrize("db_type", ["postgres", "mysql"])
def test_session_process_ends_when_its_node_times_out_during_a_statement(db_type: str):
    processes: list[int] = []

    async def time_out() -> None:
        async with servers().connect({**PARAMS, "db_type": db_type}) as session:
            processes.append((await session.execute("SELECT process_id()", 1)).rows[0][0])
            async with asyncio.timeout(0.05):
                await session.execute(ENDLESS, 1)

    with pytest.raises(TimeoutError):
        asyncio.run(time_out())
    assert has_ended(processes[0])


def test_session_process_ends_after_its_session_is_closed():
    rows = asyncio.run(query(servers(), "SELECT process_id()"))

    assert rows.rows[0][0] != os.getpid()
    assert has_ended(rows.rows[0][0])


def test_a_driver_that_crashes_ends_its_own_session_and_no_other():
    async def both() -> Rows:
        async with servers().connect(PARAMS) as one, servers().connect(PARAMS) as other:
            with pytest.raises(ToolError, match="process of the database session ended"):
                await one.execute("SELECT crash()", 1)
            return await other.execute("SELECT 1 AS n", 1)

    assert asyncio.run(both()).rows == [(1,)]


def test_a_fork_server_that_was_killed_is_started_again():
    asyncio.run(query(servers(), "SELECT 1"))
    [running] = sessions._running  # pyright: ignore[reportPrivateUsage]
    running._process.kill()  # pyright: ignore[reportPrivateUsage]
    running._process.wait(DEADLINE)  # pyright: ignore[reportPrivateUsage]

    assert asyncio.run(query(servers(), "SELECT 1 AS n")).rows == [(1,)]


def test_sessions_of_many_threads_do_not_disturb_each_other():
    results: list[Rows] = []

    def run_query(number: int) -> None:
        results.append(asyncio.run(query(servers(), f"SELECT {number} AS n")))

    threads = [threading.Thread(target=run_query, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)

    assert sorted(rows.rows[0][0] for rows in results) == list(range(8))


def test_the_workers_keys_are_not_in_a_sessions_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EASEL_SECRET_KEY", "s3cret")
    monkeypatch.setenv("PGPASSWORD", "s3cret")

    assert "s3cret" not in sessions._environment().values()  # pyright: ignore[reportPrivateUsage]
