"""ExeSQL's sessions on a real MariaDB, if `mariadbd` is installed."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest

from canvas.errors import ToolError
from providers.address_policy import Guard
from providers.databases.databases import DatabaseServers
from providers.interfaces import BoundStatement, Rows

DEADLINE_S = 60.0
PASSWORD = "reader-p4ss"
BY_ROOT = ["--user=root"] if os.geteuid() == 0 else []


def find_program(name: str) -> Path | None:
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(path) if path else None


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a server for this module; return the socket on which its root user connects."""
    server, install = find_program("mariadbd"), find_program("mariadb-install-db")
    if server is None or install is None:
        pytest.skip("mariadbd and mariadb-install-db are not installed here")
    folder = tmp_path_factory.mktemp("mariadb")
    base = [f"--basedir={server.parent.parent}", f"--datadir={folder / 'data'}", *BY_ROOT]
    subprocess.run(
        [install, "--no-defaults", *base, "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True, capture_output=True, timeout=DEADLINE_S,
    )  # fmt: skip
    address = folder / "s"
    process = subprocess.Popen(
        [
            server, "--no-defaults", *base, f"--socket={address}", f"--pid-file={folder / 'pid'}",
            "--bind-address=127.0.0.1", f"--port={free_port()}", "--innodb-buffer-pool-size=16M",
            f"--lc-messages-dir={server.parent.parent / 'share' / 'mysql'}",
        ],
        stdout=subprocess.DEVNULL, stderr=(folder / "log").open("wb"),
    )  # fmt: skip
    try:
        yield address
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def params(socket_path: Path) -> Mapping[str, Any]:
    """Return connection parameters of a database with three rows, for a user with all rights in it."""
    deadline = time.monotonic() + DEADLINE_S
    root = None
    while root is None and time.monotonic() < deadline:
        with suppress(pymysql.err.OperationalError):
            root = pymysql.connect(unix_socket=str(socket_path), user="root", autocommit=True)
        time.sleep(0.1)
    assert root is not None, "the server does not answer"
    with root, root.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.kept (n INT, price DECIMAL(5,1), at DATETIME, name VARCHAR(20))")
        cursor.execute(
            "INSERT INTO shop.kept VALUES (1, 10.5, '2026-01-02 03:04:05', 'é'),"
            " (2, NULL, NULL, 'b'), (3, 0, NULL, NULL)"
        )
        cursor.execute("CREATE SEQUENCE shop.numbers")
        cursor.execute(f"CREATE USER reader@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        cursor.execute("GRANT ALL ON shop.* TO reader@'127.0.0.1'")
        cursor.execute("SELECT @@port")
        (port,) = cursor.fetchone() or (0,)
    return {
        "db_type": "mariadb", "host": "127.0.0.1", "port": port, "database": "shop", "username": "reader",
        "password": PASSWORD, "timeout": 3.0,
    }  # fmt: skip


async def execute_all(
    params: Mapping[str, Any], *statements: str | BoundStatement, most_rows: int = 10
) -> list[Rows | str]:
    results: list[Rows | str] = []
    async with DatabaseServers(Guard(allow_any=True)).connect(params) as session:
        for statement in statements:
            try:
                results.append(await session.execute(statement, most_rows))
            except ToolError as error:
                results.append(error.message)
    return results


def test_values_have_python_types(params: Mapping[str, Any]):
    [rows] = asyncio.run(execute_all(params, "SELECT n, price, at, name FROM kept ORDER BY n", most_rows=2))

    assert rows == Rows(
        ["n", "price", "at", "name"],
        [(1, Decimal("10.5"), datetime(2026, 1, 2, 3, 4, 5), "é"), (2, None, None, "b")],
    )


def test_bound_values_are_not_parsed_as_sql(params: Mapping[str, Any]):
    unusual_texts = ("' OR 1=1 -- ", "\\' OR 1=1 -- ", "\\", "%s", "%", '"', "a\nb", "\u02bc OR 1=1")

    results = asyncio.run(
        execute_all(params, *(BoundStatement(("SELECT ", " AS x, '100%' AS y"), (text,)) for text in unusual_texts))
    )

    assert results == [Rows(["x", "y"], [(text, "100%")]) for text in unusual_texts]


def test_statement_error_has_the_servers_text_and_the_session_continues(params: Mapping[str, Any]):
    results = asyncio.run(execute_all(params, "SELECT * FROM nope", "SELECT 1 AS n", "SHOW TABLES", "DESCRIBE kept"))

    assert results[:2] == ["Table 'shop.nope' doesn't exist", Rows(["n"], [(1,)])]
    assert all(isinstance(each, Rows) for each in results[2:])


@pytest.mark.parametrize(
    "statements",
    [
        ["DELETE FROM kept"],
        ["SELECT 1; DELETE FROM kept"],
        ["INSERT INTO kept (n) VALUES (9)", "COMMIT"],
        ["COMMIT", "DELETE FROM kept"],
        ["REPLACE INTO kept (n) VALUES (9)"],
        ["CREATE TABLE more AS SELECT * FROM kept", "INSERT INTO kept (n) SELECT n FROM kept"],
        ["DROP TABLE kept"],
        ["TRUNCATE TABLE kept"],
        ["SELECT * FROM kept INTO OUTFILE '/tmp/easel-was-here'"],
        ["PREPARE p FROM 'DELETE FROM kept'", "EXECUTE p"],
        ["EXECUTE IMMEDIATE 'DELETE FROM kept'"],
        ["BEGIN NOT ATOMIC DELETE FROM kept; END"],
        ["LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE kept"],
        ["ANALYZE DELETE FROM kept"],
    ],
)
def test_session_refuses_writes(params: Mapping[str, Any], statements: list[str]):
    *_, count = asyncio.run(execute_all(params, *statements, "SELECT count(*) AS n FROM kept"))

    assert count == Rows(["n"], [(3,)])


def test_statement_times_out_with_its_node(params: Mapping[str, Any]):
    started = time.monotonic()

    [result] = asyncio.run(
        execute_all({**params, "timeout": 0.5}, "SELECT count(*) FROM seq_1_to_1000000000 a, seq_1_to_1000 b")
    )

    assert "max_statement_time" in str(result)
    assert time.monotonic() - started < DEADLINE_S / 4


def test_error_for_a_wrong_password_does_not_contain_it(params: Mapping[str, Any]):
    with pytest.raises(ToolError, match=r"^Database Connection Failed! \n") as failed:
        asyncio.run(execute_all({**params, "password": "wr0ng-password"}, "SELECT 1"))

    assert "wr0ng-password" not in str(failed.value)
