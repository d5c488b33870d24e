"""ExeSQL's sessions on a real MariaDB, where `mariadbd` is installed: what they read, and what they hold alone."""

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
from providers.databases.databases import DatabaseServers
from providers.http.address_policy import Guard
from providers.interfaces import BoundStatement, Rows

PATIENCE = 60.0
PASSWORD = "reader-p4ss"
BY_ROOT = ["--user=root"] if os.geteuid() == 0 else []


def found(name: str) -> Path | None:
    place = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(place) if place else None


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server of this module's own, by the socket on which its root comes in."""
    server, install = found("mariadbd"), found("mariadb-install-db")
    if server is None or install is None:
        pytest.skip("mariadbd and mariadb-install-db are not installed here")
    place = tmp_path_factory.mktemp("mariadb")
    base = [f"--basedir={server.parent.parent}", f"--datadir={place / 'data'}", *BY_ROOT]
    subprocess.run(
        [install, "--no-defaults", *base, "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    address = place / "s"
    process = subprocess.Popen(
        [
            server, "--no-defaults", *base, f"--socket={address}", f"--pid-file={place / 'pid'}",
            "--bind-address=127.0.0.1", f"--port={free_port()}", "--innodb-buffer-pool-size=16M",
            f"--lc-messages-dir={server.parent.parent / 'share' / 'mysql'}",
        ],
        stdout=subprocess.DEVNULL, stderr=(place / "log").open("wb"),
    )  # fmt: skip
    try:
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def params(socket_path: Path) -> Mapping[str, Any]:
    """Connection parameters of a database with three rows, for one who may do anything in it."""
    deadline = time.monotonic() + PATIENCE
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


async def ask(params: Mapping[str, Any], *statements: str | BoundStatement, most_rows: int = 10) -> list[Rows | str]:
    told: list[Rows | str] = []
    async with DatabaseServers(Guard(allow_any=True)).connect(params) as session:
        for statement in statements:
            try:
                told.append(await session.execute(statement, most_rows))
            except ToolError as error:
                told.append(error.message)
    return told


def test_values_come_as_python_has_them(params: Mapping[str, Any]):
    [rows] = asyncio.run(ask(params, "SELECT n, price, at, name FROM kept ORDER BY n", most_rows=2))

    assert rows == Rows(
        ["n", "price", "at", "name"],
        [(1, Decimal("10.5"), datetime(2026, 1, 2, 3, 4, 5), "é"), (2, None, None, "b")],
    )


def test_what_is_bound_is_a_value_to_the_server(params: Mapping[str, Any]):
    strange = ("' OR 1=1 -- ", "\\' OR 1=1 -- ", "\\", "%s", "%", '"', "a\nb", "\u02bc OR 1=1")

    told = asyncio.run(ask(params, *(BoundStatement(("SELECT ", " AS x, '100%' AS y"), (text,)) for text in strange)))

    assert told == [Rows(["x", "y"], [(text, "100%")]) for text in strange]


def test_a_mistake_is_told_in_the_servers_words_and_the_session_goes_on(params: Mapping[str, Any]):
    told = asyncio.run(ask(params, "SELECT * FROM nope", "SELECT 1 AS n", "SHOW TABLES", "DESCRIBE kept"))

    assert told[:2] == ["Table 'shop.nope' doesn't exist", Rows(["n"], [(1,)])]
    assert all(isinstance(each, Rows) for each in told[2:])


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
def test_the_session_itself_lets_no_write_through(params: Mapping[str, Any], statements: list[str]):
    *_, count = asyncio.run(ask(params, *statements, "SELECT count(*) AS n FROM kept"))

    assert count == Rows(["n"], [(3,)])


def test_a_statement_has_no_more_time_than_its_node(params: Mapping[str, Any]):
    started = time.monotonic()

    [told] = asyncio.run(ask({**params, "timeout": 0.5}, "SELECT count(*) FROM seq_1_to_1000000000 a, seq_1_to_1000 b"))

    assert "max_statement_time" in str(told)
    assert time.monotonic() - started < PATIENCE / 4


def test_a_wrong_password_is_told_without_it(params: Mapping[str, Any]):
    with pytest.raises(ToolError, match=r"^Database Connection Failed! \n") as failed:
        asyncio.run(ask({**params, "password": "wr0ng-password"}, "SELECT 1"))

    assert "wr0ng-password" not in str(failed.value)
