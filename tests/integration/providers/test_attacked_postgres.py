"""Attacks on ExeSQL's session on a real PostgreSQL, without the check of statements that precedes it."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
from psycopg import sql

from canvas.errors import ToolError
from providers.address_policy import Guard
from providers.databases.databases import DatabaseServers
from providers.interfaces import Rows

READER, PASSWORD = "attacked_reader", "reader-p4ss"


@pytest.fixture(scope="module", params=["owner", "reader"])
def params(request: pytest.FixtureRequest, module_database_url: str) -> Mapping[str, Any]:
    """Return connection parameters of a database with a table, for its owner and for a user with all other rights."""
    url = urlsplit(module_database_url)
    owner = unquote(url.username or ""), unquote(url.password or "")
    with psycopg.connect(module_database_url.replace("+psycopg", "", 1), autocommit=True) as connection:
        connection.execute("drop table if exists kept")
        connection.execute("create table kept (n int)")
        connection.execute("insert into kept values (1), (2), (3)")
        connection.execute("create sequence if not exists numbers")
        if connection.execute("select 1 from pg_roles where rolname = %s", (READER,)).fetchone() is None:
            create_role = "create role {} login password {}"
            connection.execute(sql.SQL(create_role).format(sql.Identifier(READER), sql.Literal(PASSWORD)))
        connection.execute(f"grant all on kept to {READER}")
        connection.execute(f"grant all on sequence numbers to {READER}")
    username, password = owner if request.param == "owner" else (READER, PASSWORD)
    return {
        "db_type": "postgres",
        "host": url.hostname,
        "port": url.port,
        "database": url.path.lstrip("/"),
        "username": username,
        "password": password,
        "timeout": 5.0,
    }


async def execute_all(params: Mapping[str, Any], *statements: str) -> list[Rows | str]:
    """Execute statements in one session; return the rows or the error text of each."""
    results: list[Rows | str] = []
    async with DatabaseServers(Guard(allow_any=True)).connect(params) as session:
        for statement in statements:
            try:
                results.append(await session.execute(statement, 10))
            except ToolError as error:
                results.append(error.message)
    return results


ATTACKS = {
    "a plain write": ["DELETE FROM kept"],
    "a write in a query": ["WITH gone AS (DELETE FROM kept RETURNING *) SELECT * FROM gone"],
    "a write that is explained": ["EXPLAIN ANALYZE DELETE FROM kept"],
    "the transaction is ended first": ["SELECT 1; COMMIT; DELETE FROM kept"],
    "the transaction is ended, and then": ["COMMIT", "DELETE FROM kept"],
    "another one is begun": ["COMMIT; BEGIN READ WRITE; DELETE FROM kept; COMMIT"],
    "a chain": ["COMMIT AND CHAIN", "DELETE FROM kept"],
    "the transaction is set to read write": ["SET TRANSACTION READ WRITE", "DELETE FROM kept"],
    "the session is set to read write": [
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", "SET default_transaction_read_only = off",
        "SELECT set_config('default_transaction_read_only', 'off', false)", "DELETE FROM kept",
    ],
    "by a function": ["SELECT set_config('transaction_read_only', 'off', false)", "DELETE FROM kept"],
    "by a function in the same breath": [
        "WITH a AS (SELECT set_config('transaction_read_only', 'off', true)), b AS (DELETE FROM kept) SELECT * FROM a"
    ],
    "a block": ["DO $$ BEGIN DELETE FROM kept; END $$"],
    "a block that opens the transaction": [
        "DO $$ BEGIN SET TRANSACTION READ WRITE; DELETE FROM kept; END $$",
        "DO $$ BEGIN PERFORM set_config('transaction_read_only', 'off', true); DELETE FROM kept; END $$",
        "DO $$ BEGIN COMMIT; SET TRANSACTION READ WRITE; DELETE FROM kept; END $$",
    ],
    "a text that is carried out": ["DO $$ BEGIN EXECUTE 'DELETE ' || 'FROM kept'; END $$"],
    "what is prepared now and carried out later": ["PREPARE p AS DELETE FROM kept", "EXECUTE p"],
    "a savepoint": ["SAVEPOINT a", "DELETE FROM kept", "RELEASE a", "COMMIT"],
    "a cursor": ["DECLARE c CURSOR FOR SELECT 1; DELETE FROM kept"],
    "a cursor that is closed": ["SELECT 1; CLOSE easel; DELETE FROM kept; SELECT 1"],
    "a comment that ends late": ["SELECT 1 /* ; */; DELETE FROM kept --"],
    "a copy": ["COPY kept FROM PROGRAM 'echo 4'"],
    "a lock": ["LOCK TABLE kept IN ACCESS EXCLUSIVE MODE", "SELECT * FROM kept FOR UPDATE"],
    "a table": ["CREATE TABLE more AS SELECT * FROM kept", "SELECT * INTO more FROM kept", "DROP TABLE kept"],
    "a function of its own": [
        "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'DELETE FROM kept'", "SELECT f()",
        "CREATE FUNCTION pg_temp.f() RETURNS void LANGUAGE sql AS 'DELETE FROM kept'", "SELECT pg_temp.f()",
    ],
    "XML": ["SELECT query_to_xml('DELETE FROM kept RETURNING n', true, true, '')"],
    "another role": ["RESET ROLE", "RESET ALL", "DISCARD ALL", "DELETE FROM kept"],
}  # fmt: skip


@pytest.mark.parametrize("statements", ATTACKS.values(), ids=ATTACKS)
def test_no_attack_changes_a_row(params: Mapping[str, Any], statements: list[str]):
    asyncio.run(execute_all(params, *statements))

    [count] = asyncio.run(execute_all(params, "SELECT count(*) AS n FROM kept"))
    assert count == Rows(["n"], [(3,)])


def test_sequences_do_not_advance(params: Mapping[str, Any]):
    results = asyncio.run(execute_all(params, "SELECT nextval('numbers')", "SELECT setval('numbers', 99)"))

    assert all("read-only transaction" in str(each) for each in results)


def test_unprivileged_role_cannot_read_files_or_run_programs_of_the_server(params: Mapping[str, Any]):
    if params["username"] != READER:
        pytest.skip("the owner of the server may read its files; only the check of statements prevents that")

    results = asyncio.run(
        execute_all(
            params,
            "SELECT pg_read_file('/etc/passwd')",
            "SELECT pg_ls_dir('/')",
            "SELECT lo_import('/etc/passwd')",
            "COPY kept TO PROGRAM 'id'",
            "COPY kept TO '/tmp/x'",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename <> current_user",
        )
    )

    assert all(isinstance(each, str) or each.rows in ([], [(None,)]) for each in results), results


def test_statement_timeout_holds_after_the_session_removes_it(params: Mapping[str, Any]):
    short_timeout = {**params, "timeout": 0.3}

    results = asyncio.run(
        execute_all(
            short_timeout,
            "SET statement_timeout = 0",
            "SELECT set_config('statement_timeout', '0', false)",
            "SELECT pg_sleep(60)",
        )
    )

    assert results[-1] == "canceling statement due to statement timeout"
