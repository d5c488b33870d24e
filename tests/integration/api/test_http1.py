"""Slow connections, and ambiguous requests that two servers would parse differently."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from api.http.http1_protocol import GuardedProtocol

GET = b"GET /echo HTTP/1.1\r\nHost: h\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: h\r\n"


class ShortTimeoutProtocol(GuardedProtocol):
    """The protocol with short timeouts, for tests."""

    head_seconds = 0.5
    body_seconds = 0.7


disconnected = threading.Event()  # set when a client disconnects while its body is read


async def echo(request: Request) -> Response:
    try:
        return PlainTextResponse(f"<{(await request.body()).decode()}>")
    except ClientDisconnect:
        disconnected.set()
        raise


async def slow(request: Request) -> Response:
    """Read nothing for longer than `body_seconds`."""
    await asyncio.sleep(1.5)
    return PlainTextResponse(str(len(await request.body())))


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    app = Starlette(routes=[Route("/echo", echo, methods=["GET", "POST"]), Route("/slow", slow, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=ShortTimeoutProtocol, ws="none", log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    yield server.servers[0].sockets[0].getsockname()
    server.should_exit = True
    thread.join(timeout=10)


def connect(address: tuple[str, int], data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(address, timeout=60)
    connection.sendall(data)
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    with connection:
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def exchange(address: tuple[str, int], data: bytes) -> bytes:
    return read_to_end(connect(address, data))


def test_many_request_heads_that_never_end_time_out_with_status_408(address: tuple[str, int]) -> None:
    connections = [connect(address, GET + b"X: y") for _ in range(100)]
    idle = connect(address)

    status_lines = {read_to_end(connection).partition(b"\r\n")[0] for connection in connections}

    assert status_lines == {b"HTTP/1.1 408 Request Timeout"}
    assert read_to_end(idle) == b""


def test_request_head_sent_byte_by_byte_has_the_same_timeout(address: tuple[str, int]) -> None:
    connection = connect(address)
    is_closed = False

    for byte in GET + b"X: " + b"y" * 10_000:
        try:
            connection.sendall(bytes([byte]))
        except OSError:
            is_closed = True
            break
        threading.Event().wait(0.01)

    connection.close()
    assert is_closed


def test_second_request_head_of_a_connection_has_the_same_timeout(address: tuple[str, int]) -> None:
    connection = connect(address, GET + b"\r\n")
    first = b""
    while not first.endswith(b"<>"):
        first += connection.recv(65536)
    connection.sendall(GET + b"X: y")

    assert read_to_end(connection).startswith(b"HTTP/1.1 408 ")


def test_stalled_body_ends_its_request(address: tuple[str, int]) -> None:
    disconnected.clear()

    assert exchange(address, POST + b"Content-Length: 100\r\n\r\nabc") == b""
    assert disconnected.wait(30)


def test_body_does_not_time_out_while_the_application_does_not_read(address: tuple[str, int]) -> None:
    size = 8 * 1024 * 1024
    connection = connect(address, b"POST /slow HTTP/1.1\r\nHost: h\r\nConnection: close\r\n")
    connection.sendall(f"Content-Length: {size}\r\n\r\n".encode())
    connection.sendall(b"x" * size)

    assert read_to_end(connection).endswith(f"\r\n\r\n{size}".encode())


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        POST + b"transfer-encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
        POST + b"Content-Length: 5, 5\r\n\r\nabcde",
        POST + b"Content-Length: +5\r\n\r\nabcde",
        POST + b"Content-Length: 0x5\r\n\r\nabcde",
        POST + b"Content-Length:\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /echo HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        GET.replace(b"\r\n", b"\n") + b"\n",
        GET + b"X: a\nY: b\r\n\r\n",
        GET + b"X: a\rY: b\r\n\r\n",
        GET + b"X: a\r\n b\r\n\r\n",
        GET + b"X: a\r\n\tb\r\n\r\n",
        b"\n" + GET + b"\r\n",
    ],
)
def test_ambiguous_request_is_refused(address: tuple[str, int], request_: bytes) -> None:
    reply = exchange(address, request_)

    assert reply.startswith(b"HTTP/1.1 400 ")
    assert reply.count(b"HTTP/1.1") == 1


def test_ambiguous_request_after_a_valid_one_is_refused(address: tuple[str, int]) -> None:
    reply = exchange(
        address, GET + b"\r\n" + POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )

    assert reply.startswith(b"HTTP/1.1 200 ")
    assert reply.count(b"HTTP/1.1 400 ") == 1


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (GET + b"Connection: close\r\n\r\n", b"<>"),
        (POST + b"Connection: close\r\nContent-Length: 4\r\n\r\na\n b", b"<a\n b>"),
        (POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\n", b"<a\nb>"),
    ],
)
def test_valid_requests_are_accepted(address: tuple[str, int], request_: bytes, body: bytes) -> None:
    reply = exchange(address, request_)

    assert reply.startswith(b"HTTP/1.1 200 ")
    assert reply.endswith(body)


def test_request_sent_byte_by_byte_is_parsed_as_one_request(address: tuple[str, int]) -> None:
    connection = connect(address)

    for byte in POST + b"Connection: close\r\nContent-Length: 2\r\n\r\nab":
        connection.sendall(bytes([byte]))

    assert read_to_end(connection).endswith(b"<ab>")
