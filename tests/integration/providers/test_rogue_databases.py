"""Servers that send without end, as databases of nodes: neither the worker nor its sessions hold what they send.

The servers speak just enough of a protocol for its driver to read on.
"""

import asyncio
import gzip
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pytest_httpserver import HTTPServer

from canvas.errors import ToolError
from providers.databases import sessions
from providers.databases.databases import DatabaseServers
from providers.databases.session_process import MAX_MEMORY, MIB
from providers.http.address_policy import Guard
from providers.interfaces import Rows

DEADLINE = 60.0
READING = 2.0  # seconds for which a session reads before its node ends
MOST_MEMORY = MAX_MEMORY + 80 * MIB  # of a worker and one session together, beyond what the worker had before
TOO_LARGE = r"^The rows have more than 33,554,432 characters\. Select fewer or shorter rows\.$"
PARAMS = {"host": "127.0.0.1", "database": "shop", "username": "u", "password": "p", "timeout": 30.0}
PIECE = b"x" * MIB


@dataclass
class Rogue:
    """A server for one connection after the other; `talk` is what it does with each."""

    talk: Callable[["Rogue", socket.socket], None]
    sent: int = 0
    hung_up: threading.Event = field(default_factory=threading.Event)
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    def __post_init__(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                with client, suppress(OSError):
                    self.talk(self, client)
                self.hung_up.set()

    def send(self, client: socket.socket, data: bytes) -> None:
        client.sendall(data)
        self.sent += len(data)


@pytest.fixture
def rogue() -> Iterator[Callable[..., Rogue]]:
    started: list[Rogue] = []

    def start(talk: Callable[[Rogue, socket.socket], None]) -> Rogue:
        started.append(Rogue(talk))
        return started[-1]

    yield start
    for each in started:
        each.listener.close()


def read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data


# -- PostgreSQL -------------------------------------------------------------------------------------------------------
def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def greet_as_postgres(client: socket.socket) -> None:
    """Decline encryption, let everybody in, and wait for the first statement."""
    while True:
        (size,) = struct.unpack(">I", read(client, 4))
        body = read(client, size - 4)
        if body[:4] == struct.pack(">I", 196_608):  # the protocol's version: it is a start-up message
            break
        client.sendall(b"N")
    settings = {b"server_version": b"16.0", b"client_encoding": b"UTF8", b"standard_conforming_strings": b"on"}
    told = b"".join(message(b"S", name + b"\0" + value + b"\0") for name, value in settings.items())
    client.sendall(message(b"R", struct.pack(">I", 0)) + told + message(b"Z", b"I"))
    read(client, 5)


DESCRIPTION = message(b"T", struct.pack(">H", 1) + b"x\0" + struct.pack(">IHIHIH", 0, 0, 25, 65_535, 0xFFFFFFFF, 0))


def rows_without_end(rogue: Rogue, client: socket.socket) -> None:
    greet_as_postgres(client)
    rogue.send(client, DESCRIPTION)
    while True:
        rogue.send(client, message(b"D", struct.pack(">HI", 1, len(PIECE)) + PIECE))


def small_rows_without_end(rogue: Rogue, client: socket.socket) -> None:
    """Rows of nothing but null: 8 bytes on the wire, many times as much in a driver."""
    greet_as_postgres(client)
    rogue.send(client, DESCRIPTION)
    rows = message(b"D", struct.pack(">Hi", 1, -1)) * 50_000
    while True:
        rogue.send(client, rows)


def one_message_without_end(rogue: Rogue, client: socket.socket) -> None:
    greet_as_postgres(client)
    rogue.send(client, DESCRIPTION + b"D" + struct.pack(">IHI", 0x7FFFFFF0, 1, 0x7FFFFFE0))
    while True:
        rogue.send(client, PIECE)


def notices_without_end(rogue: Rogue, client: socket.socket) -> None:
    """Nothing that is kept, only work."""
    greet_as_postgres(client)
    notices = message(b"S", b"application_name\0" + b"x" * 1000 + b"\0") * 1000
    while True:
        rogue.send(client, notices)


# -- MySQL ------------------------------------------------------------------------------------------------------------
def packet(number: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number % 256]) + body


GREETING = (
    b"\x0a8.0.0\0" + struct.pack("<I", 1) + b"12345678\0" + struct.pack("<H", 0xF7FF) + b"\x2d" + struct.pack("<H", 2)
    + struct.pack("<H", 0x00FF) + b"\x15" + b"\0" * 10 + b"123456789012\0" + b"mysql_native_password\0"
)  # fmt: skip
OK = b"\0\0\0\x02\0\0\0"
COLUMN = b"\x03def\0\0\0\x01x\x01x\x0c\x2d\0\xff\xff\xff\xff\xfb\0\0\0\0\0"


def greet_as_mysql(client: socket.socket) -> None:
    """Let everybody in, agree to all settings, and answer the first SELECT with the head of its rows."""
    client.sendall(packet(0, GREETING))
    read(client, struct.unpack("<I", read(client, 4)[:3] + b"\0")[0])
    client.sendall(packet(2, OK))
    while True:
        asked = read(client, struct.unpack("<I", read(client, 4)[:3] + b"\0")[0])
        if asked[1:7] == b"SELECT":
            client.sendall(packet(1, b"\x01") + packet(2, COLUMN) + packet(3, b"\xfe\0\0\x02\0"))
            return
        client.sendall(packet(1, OK))


def one_value_without_end(rogue: Rogue, client: socket.socket) -> None:
    greet_as_mysql(client)
    number, body = 4, b"\xfe" + struct.pack("<Q", 1 << 40) + b"x" * (0xFFFFFF - 9)
    while True:
        rogue.send(client, packet(number, body))
        number, body = number + 1, b"x" * 0xFFFFFF


def mysql_rows_without_end(rogue: Rogue, client: socket.socket) -> None:
    greet_as_mysql(client)
    rows = b"".join(packet(4 + number, b"\xfb") for number in range(256 * 200))
    while True:
        rogue.send(client, rows)


def a_drip(rogue: Rogue, client: socket.socket) -> None:
    """A row that goes on, a little at a time."""
    greet_as_mysql(client)
    rogue.send(client, struct.pack("<I", 0xFFFFFF)[:3] + b"\x04\xfe" + struct.pack("<Q", 1 << 40))
    while True:
        rogue.send(client, b"x")
        time.sleep(0.01)


# -- memory -----------------------------------------------------------------------------------------------------------
def resident(process: int) -> int:
    """Bytes that a process holds in memory; of several processes with the same pages each its share."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def family(process: int) -> Iterator[int]:
    yield process
    with suppress(OSError):
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            with suppress(OSError):
                for child in children.read_text().split():
                    yield from family(int(child))


@contextmanager
def memory_within(most: int) -> Iterator[None]:
    """Fail if this process and its sessions came to hold more than `most` bytes beyond what they held before."""

    def together() -> int:
        servers = [server._process.pid for server in sessions._running]  # pyright: ignore[reportPrivateUsage]
        return resident(os.getpid()) + sum(resident(process) for server in servers for process in family(server))

    def look() -> None:
        while not done.wait(0.02):
            seen.append(together())

    before, seen, done = together(), list[int](), threading.Event()
    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        done.set()
        looking.join()
    grown = max([0, *seen]) - before
    print(f"grown by {grown / MIB:.0f} MiB")  # noqa: T201
    assert grown <= most, f"grown by {grown / MIB:.0f} MiB"


async def ask(db_type: str, port: int, sql: str = "SELECT x FROM t", most_rows: int = 1000, **more: Any) -> Rows:
    async with DatabaseServers(Guard(allow_any=True)).connect(
        {**PARAMS, "db_type": db_type, "port": port, **more}
    ) as session:
        return await session.execute(sql, most_rows)


def server_of(url: str) -> dict[str, Any]:
    """How `ask` reaches a real server."""
    place = urlsplit(url)
    return {
        "host": place.hostname, "port": place.port, "database": place.path.lstrip("/"),
        "username": unquote(place.username or ""), "password": unquote(place.password or ""),
    }  # fmt: skip


FLOODS: Mapping[str, tuple[str, Callable[[Rogue, socket.socket], None]]] = {
    "PostgreSQL, one message": ("postgres", one_message_without_end),
    "MySQL, one value": ("mysql", one_value_without_end),
    "MariaDB, one value": ("mariadb", one_value_without_end),
    "OceanBase, one value": ("oceanbase", one_value_without_end),
}


@pytest.mark.parametrize(("db_type", "talk"), FLOODS.values(), ids=FLOODS)
def test_a_server_that_sends_without_end_is_cut_off_while_little_is_held(
    rogue: Callable[..., Rogue], db_type: str, talk: Callable[[Rogue, socket.socket], None]
):
    server = rogue(talk)

    with memory_within(MOST_MEMORY), pytest.raises(ToolError):
        asyncio.run(asyncio.wait_for(ask(db_type, server.port), DEADLINE))

    assert server.hung_up.wait(DEADLINE)
    assert server.sent < 2 * MAX_MEMORY


ENDLESS: Mapping[str, tuple[str, Callable[[Rogue, socket.socket], None]]] = {
    "PostgreSQL, large rows": ("postgres", rows_without_end),  # its driver reads on, and keeps nothing more
    "PostgreSQL, small rows": ("postgres", small_rows_without_end),
    "PostgreSQL, nothing but settings": ("postgres", notices_without_end),
    "MySQL, a drip": ("mysql", a_drip),
    "MySQL, rows of null": ("mysql", mysql_rows_without_end),
}


@pytest.mark.parametrize(("db_type", "talk"), ENDLESS.values(), ids=ENDLESS)
def test_nothing_is_read_any_more_when_the_node_has_ended(
    rogue: Callable[..., Rogue], db_type: str, talk: Callable[[Rogue, socket.socket], None]
):
    server = rogue(talk)

    async def cancelled_while_it_reads() -> None:
        asking = asyncio.create_task(ask(db_type, server.port, most_rows=10**9))
        async with asyncio.timeout(DEADLINE):
            while not server.sent and not asking.done():
                await asyncio.sleep(0.01)
        await asyncio.sleep(READING)
        assert not server.hung_up.is_set()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    with memory_within(MOST_MEMORY):
        asyncio.run(cancelled_while_it_reads())

    assert server.hung_up.wait(DEADLINE)


def test_values_of_a_real_server_that_nobody_could_hold_are_refused(module_database_url: str):
    large = "SELECT repeat('x', 120000000) FROM generate_series(1, 4)"

    with memory_within(MOST_MEMORY), pytest.raises(ToolError, match=TOO_LARGE):
        asyncio.run(ask("postgres", sql=large, **server_of(module_database_url)))


LARGE = {
    "a few large values": ("SELECT repeat('x', 8000000) AS x FROM generate_series(1, 4)", 4, 8_000_000),
    "one value": ("SELECT repeat('x', 32000000) AS x", 1, 32_000_000),
    "many values": ("SELECT repeat('x', 100) AS x FROM generate_series(1, 250000)", 250_000, 100),
    "values of several bytes for each character": ("SELECT repeat('\u00e9', 8000000) AS x", 1, 8_000_000),
}


@pytest.mark.parametrize(("sql", "rows", "size"), LARGE.values(), ids=LARGE)
def test_rows_that_are_just_within_the_limit_are_answered(module_database_url: str, sql: str, rows: int, size: int):
    found = asyncio.run(ask("postgres", sql=sql, most_rows=10**6, **server_of(module_database_url)))

    assert (len(found.rows), {len(row[0]) for row in found.rows}) == (rows, {size})


def test_trinos_answer_that_unpacks_to_a_thousand_times_its_size_is_refused(httpserver: HTTPServer):
    pytest.importorskip("trino")
    bomb = gzip.compress(b'{"id": "q1", "stats": {"state": "QUEUED"}, "x": "' + b"x" * 1_000_000_000 + b'"}', 1)
    httpserver.expect_request("/v1/statement").respond_with_data(
        bomb, content_type="application/json", headers={"Content-Encoding": "gzip"}
    )

    with memory_within(MOST_MEMORY), pytest.raises(ToolError, match=TOO_LARGE):
        asyncio.run(ask("trino", httpserver.port, database="hive.sales", password=""))
