"""Database servers that send endless data: the memory of the worker and its sessions stays limited.

The servers implement just enough of a protocol for its driver to continue reading.
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
from providers.address_policy import Guard
from providers.databases import sessions
from providers.databases.databases import DatabaseServers
from providers.databases.session_process import MAX_MEMORY, MIB
from providers.interfaces import Rows

DEADLINE_S = 60.0
READ_SECONDS = 2.0  # seconds for which a session reads before its node is cancelled
MAX_GROWTH = MAX_MEMORY + 80 * MIB  # of a worker and one session together, beyond what the worker had before
TOO_LARGE = r"^The rows have more than 33,554,432 characters\. Select fewer or shorter rows\.$"
PARAMS = {"host": "127.0.0.1", "database": "shop", "username": "u", "password": "p", "timeout": 30.0}
BLOCK = b"x" * MIB


@dataclass
class RogueServer:
    """A server for one connection after the other, each of which `talk` serves."""

    talk: Callable[["RogueServer", socket.socket], None]
    sent: int = 0
    has_disconnected: threading.Event = field(default_factory=threading.Event)
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
                self.has_disconnected.set()

    def send(self, client: socket.socket, data: bytes) -> None:
        client.sendall(data)
        self.sent += len(data)


@pytest.fixture
def rogue() -> Iterator[Callable[..., RogueServer]]:
    started: list[RogueServer] = []

    def start(talk: Callable[[RogueServer, socket.socket], None]) -> RogueServer:
        started.append(RogueServer(talk))
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
    """Decline encryption, accept any login, and wait for the first statement."""
    while True:
        (size,) = struct.unpack(">I", read(client, 4))
        body = read(client, size - 4)
        if body[:4] == struct.pack(">I", 196_608):  # the protocol's version: it is a start-up message
            break
        client.sendall(b"N")
    settings = {b"server_version": b"16.0", b"client_encoding": b"UTF8", b"standard_conforming_strings": b"on"}
    parameters = b"".join(message(b"S", name + b"\0" + value + b"\0") for name, value in settings.items())
    client.sendall(message(b"R", struct.pack(">I", 0)) + parameters + message(b"Z", b"I"))
    read(client, 5)


DESCRIPTION = message(b"T", struct.pack(">H", 1) + b"x\0" + struct.pack(">IHIHIH", 0, 0, 25, 65_535, 0xFFFFFFFF, 0))


def rows_without_end(rogue: RogueServer, client: socket.socket) -> None:
    greet_as_postgres(client)
    rogue.send(client, DESCRIPTION)
    while True:
        rogue.send(client, message(b"D", struct.pack(">HI", 1, len(BLOCK)) + BLOCK))


def small_rows_without_end(rogue: RogueServer, client: socket.socket) -> None:
    """Send rows of null: 8 bytes on the wire, many times as much in a driver."""
    greet_as_postgres(client)
    rogue.send(client, DESCRIPTION)
    rows = message(b"D", struct.pack(">Hi", 1, -1)) * 50_000
    while True:
        rogue.send(client, rows)


def one_message_without_end(rogue: RogueServer, client: socket.socket) -> None:
    greet_as_postgres(client)
    rogue.send(client, DESCRIPTION + b"D" + struct.pack(">IHI", 0x7FFFFFF0, 1, 0x7FFFFFE0))
    while True:
        rogue.send(client, BLOCK)


def notices_without_end(rogue: RogueServer, client: socket.socket) -> None:
    """Send parameter notices, which take time to read and no memory."""
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
    """Accept any login and all settings, and answer the first SELECT with the header of its rows."""
    client.sendall(packet(0, GREETING))
    read(client, struct.unpack("<I", read(client, 4)[:3] + b"\0")[0])
    client.sendall(packet(2, OK))
    while True:
        command = read(client, struct.unpack("<I", read(client, 4)[:3] + b"\0")[0])
        if command[1:7] == b"SELECT":
            client.sendall(packet(1, b"\x01") + packet(2, COLUMN) + packet(3, b"\xfe\0\0\x02\0"))
            return
        client.sendall(packet(1, OK))


def one_value_without_end(rogue: RogueServer, client: socket.socket) -> None:
    greet_as_mysql(client)
    number, body = 4, b"\xfe" + struct.pack("<Q", 1 << 40) + b"x" * (0xFFFFFF - 9)
    while True:
        rogue.send(client, packet(number, body))
        number, body = number + 1, b"x" * 0xFFFFFF


def mysql_rows_without_end(rogue: RogueServer, client: socket.socket) -> None:
    greet_as_mysql(client)
    rows = b"".join(packet(4 + number, b"\xfb") for number in range(256 * 200))
    while True:
        rogue.send(client, rows)


def slow_row_without_end(rogue: RogueServer, client: socket.socket) -> None:
    """Send an endless row, one byte at a time."""
    greet_as_mysql(client)
    rogue.send(client, struct.pack("<I", 0xFFFFFF)[:3] + b"\x04\xfe" + struct.pack("<Q", 1 << 40))
    while True:
        rogue.send(client, b"x")
        time.sleep(0.01)


# -- memory -----------------------------------------------------------------------------------------------------------
def memory_of(process: int) -> int:
    """Return the proportional set size of a process in bytes."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def process_tree(process: int) -> Iterator[int]:
    yield process
    with suppress(OSError):
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            with suppress(OSError):
                for child in children.read_text().split():
                    yield from process_tree(int(child))


@contextmanager
def memory_within(max_bytes: int) -> Iterator[None]:
    """Fail if this process and its sessions came to hold more than `most` bytes beyond what they held before."""

    def total_memory() -> int:
        servers = [server._process.pid for server in sessions._running]  # pyright: ignore[reportPrivateUsage]
        return memory_of(os.getpid()) + sum(
            memory_of(process) for server in servers for process in process_tree(server)
        )

    def sample() -> None:
        while not done.wait(0.02):
            samples.append(total_memory())

    before, samples, done = total_memory(), list[int](), threading.Event()
    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield
    finally:
        done.set()
        sampler.join()
    grown = max([0, *samples]) - before
    print(f"grown by {grown / MIB:.0f} MiB")  # noqa: T201
    assert grown <= max_bytes, f"grown by {grown / MIB:.0f} MiB"


async def execute(db_type: str, port: int, sql: str = "SELECT x FROM t", most_rows: int = 1000, **more: Any) -> Rows:
    async with DatabaseServers(Guard(allow_any=True)).connect(
        {**PARAMS, "db_type": db_type, "port": port, **more}
    ) as session:
        return await session.execute(sql, most_rows)


def server_of(url: str) -> dict[str, Any]:
    """Return the connection parameters of a real server for `execute`."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname, "port": parts.port, "database": parts.path.lstrip("/"),
        "username": unquote(parts.username or ""), "password": unquote(parts.password or ""),
    }  # fmt: skip


ENDLESS_MESSAGES: Mapping[str, tuple[str, Callable[[RogueServer, socket.socket], None]]] = {
    "PostgreSQL, one message": ("postgres", one_message_without_end),
    "MySQL, one value": ("mysql", one_value_without_end),
    "MariaDB, one value": ("mariadb", one_value_without_end),
    "OceanBase, one value": ("oceanbase", one_value_without_end),
}


@pytest.mark.parametrize(("db_type", "talk"), ENDLESS_MESSAGES.values(), ids=ENDLESS_MESSAGES)
def test_endless_message_is_cut_off_within_the_memory_limit(
    rogue: Callable[..., RogueServer], db_type: str, talk: Callable[[RogueServer, socket.socket], None]
):
    server = rogue(talk)

    with memory_within(MAX_GROWTH), pytest.raises(ToolError):
        asyncio.run(asyncio.wait_for(execute(db_type, server.port), DEADLINE_S))

    assert server.has_disconnected.wait(DEADLINE_S)
    assert server.sent < 2 * MAX_MEMORY


ENDLESS_STREAMS: Mapping[str, tuple[str, Callable[[RogueServer, socket.socket], None]]] = {
    "PostgreSQL, large rows": ("postgres", rows_without_end),  # its driver continues to read and discards the rows
    "PostgreSQL, small rows": ("postgres", small_rows_without_end),
    "PostgreSQL, nothing but settings": ("postgres", notices_without_end),
    "MySQL, a slow row": ("mysql", slow_row_without_end),
    "MySQL, rows of null": ("mysql", mysql_rows_without_end),
}


@pytest.mark.parametrize(("db_type", "talk"), ENDLESS_STREAMS.values(), ids=ENDLESS_STREAMS)
def test_connection_is_closed_when_the_node_is_cancelled(
    rogue: Callable[..., RogueServer], db_type: str, talk: Callable[[RogueServer, socket.socket], None]
):
    server = rogue(talk)

    async def cancel_while_reading() -> None:
        executing = asyncio.create_task(execute(db_type, server.port, most_rows=10**9))
        async with asyncio.timeout(DEADLINE_S):
            while not server.sent and not executing.done():
                await asyncio.sleep(0.01)
        await asyncio.sleep(READ_SECONDS)
        assert not server.has_disconnected.is_set()
        executing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await executing

    with memory_within(MAX_GROWTH):
        asyncio.run(cancel_while_reading())

    assert server.has_disconnected.wait(DEADLINE_S)


def test_values_beyond_the_size_limit_are_refused(module_database_url: str):
    large = "SELECT repeat('x', 120000000) FROM generate_series(1, 4)"

    with memory_within(MAX_GROWTH), pytest.raises(ToolError, match=TOO_LARGE):
        asyncio.run(execute("postgres", sql=large, **server_of(module_database_url)))


LARGE_RESULTS = {
    "a few large values": ("SELECT repeat('x', 8000000) AS x FROM generate_series(1, 4)", 4, 8_000_000),
    "one value": ("SELECT repeat('x', 32000000) AS x", 1, 32_000_000),
    "many values": ("SELECT repeat('x', 100) AS x FROM generate_series(1, 250000)", 250_000, 100),
    "values of several bytes for each character": ("SELECT repeat('\u00e9', 8000000) AS x", 1, 8_000_000),
}


@pytest.mark.parametrize(("sql", "rows", "size"), LARGE_RESULTS.values(), ids=LARGE_RESULTS)
def test_rows_just_within_the_size_limit_are_returned(module_database_url: str, sql: str, rows: int, size: int):
    result = asyncio.run(execute("postgres", sql=sql, most_rows=10**6, **server_of(module_database_url)))

    assert (len(result.rows), {len(row[0]) for row in result.rows}) == (rows, {size})


def test_compressed_trino_answer_beyond_the_size_limit_is_refused(httpserver: HTTPServer):
    pytest.importorskip("trino")
    bomb = gzip.compress(b'{"id": "q1", "stats": {"state": "QUEUED"}, "x": "' + b"x" * 1_000_000_000 + b'"}', 1)
    httpserver.expect_request("/v1/statement").respond_with_data(
        bomb, content_type="application/json", headers={"Content-Encoding": "gzip"}
    )

    with memory_within(MAX_GROWTH), pytest.raises(ToolError, match=TOO_LARGE):
        asyncio.run(execute("trino", httpserver.port, database="hive.sales", password=""))
