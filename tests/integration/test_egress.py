"""The egress proxy of browsers, against servers on this machine."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from providers.address_policy import Guard
from providers.http.browser_proxy import BrowserProxy

T = TypeVar("T")
DEADLINE_S = 5.0  # seconds
LOOPBACK = Guard(allowed=("127.0.0.1",))

Answer = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run_within_deadline(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await work

    return asyncio.run(bounded())


@asynccontextmanager
async def server(answer: Answer) -> AsyncGenerator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield listening.sockets[0].getsockname()[1]
    listening.close()


async def ok(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer any request, and wait until the client closes the connection."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
    await writer.drain()
    await reader.read()


async def send_request(proxy: BrowserProxy, request: bytes, *, most: int = -1) -> bytes:
    """Send a request; return the whole response, or its first `most` bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    writer.write(request)
    await writer.drain()
    if most < 0:
        writer.write_eof()
    response = await reader.read(most)
    writer.close()
    return response


async def resolve_to_loopback(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def test_request_is_forwarded_and_answered():
    heads: list[bytes] = []

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head + await reader.readexactly(3))
        await ok(head, reader, writer)

    async def work() -> bytes:
        async with server(answer) as port, BrowserProxy(LOOPBACK) as proxy:
            return await send_request(
                proxy, f"POST http://127.0.0.1:{port}/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc".encode()
            )

    response = run_within_deadline(work())

    assert response == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    assert heads == [b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"]


def test_a_tunnel_carries_bytes_both_ways():
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head.upper())

    async def work() -> bytes:
        async with server(answer) as port, BrowserProxy(LOOPBACK) as proxy:
            return await send_request(proxy, f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nhello\r\n\r\n".encode())

    assert run_within_deadline(work()) == b"HTTP/1.1 200 Connection established\r\n\r\nHELLO\r\n\r\n"


@pytest.mark.parametrize("request_line", ["CONNECT {}:443 HTTP/1.1", "GET http://{}/ HTTP/1.1"])
@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "non-public address (127.0.0.1)"),
        ("0x7f.1", "non-public address (127.0.0.1)"),
        ("169.254.169.254", "non-public address (169.254.169.254)"),
        ("[::1]", "non-public address (::1)"),
        ("localhost", "'localhost', which is not allowed"),
        ("inside.example", "non-public address (127.0.0.1)"),
    ],
)
def test_forbidden_addresses_are_refused_with_the_reason(request_line: str, host: str, reason: str):
    async def work() -> tuple[bytes, dict[str, str]]:
        async with BrowserProxy(Guard(), resolve=resolve_to_loopback) as proxy:
            answer = await send_request(proxy, f"{request_line.format(host)}\r\n\r\n".encode())
            return answer, dict(proxy.connect_errors)

    answer, refused = run_within_deadline(work())

    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert reason in answer.decode()
    assert reason in refused[host.strip("[]")]


def test_the_connection_goes_to_the_address_that_was_checked():
    names: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        names.append(host)
        return ["127.0.0.1"] if len(names) == 1 else ["10.0.0.1"]

    async def work() -> bytes:
        async with server(ok) as port, BrowserProxy(LOOPBACK, resolve=resolve) as proxy:
            return await send_request(proxy, f"GET http://rebinding.example:{port}/ HTTP/1.1\r\n\r\n".encode())

    assert run_within_deadline(work()).endswith(b"\r\n\r\nok")
    assert names == ["rebinding.example"]


def test_connect_error_of_a_host_is_cleared_when_it_answers_again():
    async def work() -> tuple[list[str], list[str]]:
        async with BrowserProxy(LOOPBACK) as proxy:
            async with server(ok) as port:
                pass
            await send_request(proxy, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
            before = list(proxy.connect_errors)
            async with server(ok) as port:
                await send_request(proxy, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
            return before, list(proxy.connect_errors)

    assert run_within_deadline(work()) == (["127.0.0.1"], [])


@pytest.mark.parametrize(
    ("answer", "status"), [(b"SSH-2.0-server\r\n\r\n", b"502"), (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, b"502")]
)
def test_response_that_is_not_http_is_a_bad_gateway(answer: bytes, status: bytes):
    async def reply(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async def work() -> bytes:
        async with server(reply) as port, BrowserProxy(LOOPBACK) as proxy:
            return await send_request(proxy, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())

    assert run_within_deadline(work()).startswith(b"HTTP/1.1 " + status)


def test_invalid_request_is_refused_and_the_proxy_continues():
    async def work() -> tuple[bytes, bytes, bytes]:
        async with server(ok) as port, BrowserProxy(LOOPBACK) as proxy:
            nonsense = await send_request(proxy, b"\x16\x03\x01 hello\r\n\r\n")
            nothing = await send_request(proxy, b"")
            return (
                nonsense,
                nothing,
                await send_request(proxy, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode()),
            )

    nonsense, nothing, answer = run_within_deadline(work())

    assert nonsense.startswith(b"HTTP/1.1 400 ")
    assert nothing == b""
    assert answer.endswith(b"ok")


def test_download_size_of_a_browser_is_limited():
    async def flood(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    async def work() -> tuple[bytes, bytes]:
        async with server(flood) as port, BrowserProxy(LOOPBACK, max_bytes=50_000) as proxy:
            request = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode()
            return await send_request(proxy, request), await send_request(proxy, request)

    flooded, after = run_within_deadline(work())

    assert len(flooded) < 60_000
    assert after.startswith(b"HTTP/1.1 403 ")


def test_connections_are_closed_when_the_proxy_closes():
    has_disconnected = asyncio.Event()

    async def wait_for_disconnect(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"there")
        await reader.read()
        has_disconnected.set()

    async def work() -> None:
        async with server(wait_for_disconnect) as port:
            async with BrowserProxy(LOOPBACK) as proxy:
                reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
                writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nhi\r\n\r\n".encode())
                await reader.readuntil(b"there")
            await has_disconnected.wait()
            assert await reader.read() == b""
            writer.close()

    run_within_deadline(work())
