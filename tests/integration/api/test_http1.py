"""Connections that are slow on purpose, and requests that two servers would read differently."""

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


class Quick(GuardedProtocol):
    """The same with less patience, for tests."""

    head_seconds = 0.5
    body_seconds = 0.7


left = threading.Event()  # a client has gone while its body was read


async def echo(request: Request) -> Response:
    try:
        return PlainTextResponse(f"<{(await request.body()).decode()}>")
    except ClientDisconnect:
        left.set()
        raise


async def slow(request: Request) -> Response:
    """Read nothing for longer than a body may stand still."""
    await asyncio.sleep(1.5)
    return PlainTextResponse(str(len(await request.body())))


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    app = Starlette(routes=[Route("/echo", echo, methods=["GET", "POST"]), Route("/slow", slow, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=Quick, ws="none", log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    yield server.servers[0].sockets[0].getsockname()
    server.should_exit = True
    thread.join(timeout=10)


def connected(address: tuple[str, int], data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(address, timeout=60)
    connection.sendall(data)
    return connection


def answer(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    with connection:
        found = b""
        while part := connection.recv(65536):
            found += part
        return found


def asked(address: tuple[str, int], data: bytes) -> bytes:
    return answer(connected(address, data))


def test_heads_that_never_end_are_closed_in_time_however_many_there_are(address: tuple[str, int]) -> None:
    connections = [connected(address, GET + b"X: y") for _ in range(100)]
    silent = connected(address)

    answers = {answer(connection).partition(b"\r\n")[0] for connection in connections}

    assert answers == {b"HTTP/1.1 408 Request Timeout"}
    assert answer(silent) == b""


def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_others(address: tuple[str, int]) -> None:
    connection = connected(address)
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


def test_the_second_head_of_a_connection_has_the_same_limit(address: tuple[str, int]) -> None:
    connection = connected(address, GET + b"\r\n")
    first = b""
    while not first.endswith(b"<>"):
        first += connection.recv(65536)
    connection.sendall(GET + b"X: y")

    assert answer(connection).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_stops_coming_ends_its_request(address: tuple[str, int]) -> None:
    left.clear()

    assert asked(address, POST + b"Content-Length: 100\r\n\r\nabc") == b""
    assert left.wait(30)


def test_a_body_is_not_late_while_the_application_does_not_read(address: tuple[str, int]) -> None:
    size = 8 * 1024 * 1024
    connection = connected(address, b"POST /slow HTTP/1.1\r\nHost: h\r\nConnection: close\r\n")
    connection.sendall(f"Content-Length: {size}\r\n\r\n".encode())
    connection.sendall(b"x" * size)

    assert answer(connection).endswith(f"\r\n\r\n{size}".encode())


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
def test_a_request_that_two_servers_would_read_differently_is_refused(
    address: tuple[str, int], request_: bytes
) -> None:
    told = asked(address, request_)

    assert told.startswith(b"HTTP/1.1 400 ")
    assert told.count(b"HTTP/1.1") == 1


def test_an_ambiguous_request_behind_another_one_is_refused_too(address: tuple[str, int]) -> None:
    told = asked(address, GET + b"\r\n" + POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")

    assert told.startswith(b"HTTP/1.1 200 ")
    assert told.count(b"HTTP/1.1 400 ") == 1


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (GET + b"Connection: close\r\n\r\n", b"<>"),
        (POST + b"Connection: close\r\nContent-Length: 4\r\n\r\na\n b", b"<a\n b>"),
        (POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\n", b"<a\nb>"),
    ],
)
def test_plain_requests_are_taken(address: tuple[str, int], request_: bytes, body: bytes) -> None:
    told = asked(address, request_)

    assert told.startswith(b"HTTP/1.1 200 ")
    assert told.endswith(body)


def test_a_request_is_the_same_however_it_is_cut(address: tuple[str, int]) -> None:
    connection = connected(address)

    for byte in POST + b"Connection: close\r\nContent-Length: 2\r\n\r\nab":
        connection.sendall(bytes([byte]))

    assert answer(connection).endswith(b"<ab>")
