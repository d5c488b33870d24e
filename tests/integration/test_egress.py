"""The egress of browsers against servers on this machine."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from providers.http.address_policy import Guard
from providers.http.browser_proxy import BrowserProxy

T = TypeVar("T")
PATIENCE = 5.0  # seconds
HERE = Guard(allowed=("127.0.0.1",))

Answer = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def carried_out(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
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
    """Answers and keeps the connection, whatever it was asked; ends when the client has gone."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
    await writer.drain()
    await reader.read()


async def asked(egress: BrowserProxy, request: bytes, *, most: int = -1) -> bytes:
    """All that comes back for a request; with `most`, the beginning of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(egress.url.rpartition(":")[2]))
    writer.write(request)
    await writer.drain()
    if most < 0:
        writer.write_eof()
    found = await reader.read(most)
    writer.close()
    return found


async def here(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def test_a_request_is_made_and_answered():
    heads: list[bytes] = []

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head + await reader.readexactly(3))
        await ok(head, reader, writer)

    async def work() -> bytes:
        async with server(answer) as port, BrowserProxy(HERE) as egress:
            return await asked(
                egress, f"POST http://127.0.0.1:{port}/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc".encode()
            )

    found = carried_out(work())

    assert found == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    assert heads == [b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"]


def test_a_tunnel_carries_bytes_both_ways():
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head.upper())

    async def work() -> bytes:
        async with server(answer) as port, BrowserProxy(HERE) as egress:
            return await asked(egress, f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nhello\r\n\r\n".encode())

    assert carried_out(work()) == b"HTTP/1.1 200 Connection established\r\n\r\nHELLO\r\n\r\n"


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
def test_addresses_that_may_not_be_reached_are_refused_with_the_reason(request_line: str, host: str, reason: str):
    async def work() -> tuple[bytes, dict[str, str]]:
        async with BrowserProxy(Guard(), resolve=here) as egress:
            answer = await asked(egress, f"{request_line.format(host)}\r\n\r\n".encode())
            return answer, dict(egress.connect_errors)

    answer, refused = carried_out(work())

    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert reason in answer.decode()
    assert reason in refused[host.strip("[]")]


def test_the_connection_goes_to_the_address_that_was_checked():
    names: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        names.append(host)
        return ["127.0.0.1"] if len(names) == 1 else ["10.0.0.1"]

    async def work() -> bytes:
        async with server(ok) as port, BrowserProxy(HERE, resolve=resolve) as egress:
            return await asked(egress, f"GET http://rebinding.example:{port}/ HTTP/1.1\r\n\r\n".encode())

    assert carried_out(work()).endswith(b"\r\n\r\nok")
    assert names == ["rebinding.example"]


def test_a_host_that_answers_again_is_no_longer_refused():
    async def work() -> tuple[list[str], list[str]]:
        async with BrowserProxy(HERE) as egress:
            async with server(ok) as port:
                pass
            await asked(egress, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
            before = list(egress.connect_errors)
            async with server(ok) as port:
                await asked(egress, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())
            return before, list(egress.connect_errors)

    assert carried_out(work()) == (["127.0.0.1"], [])


@pytest.mark.parametrize(
    ("answer", "status"), [(b"SSH-2.0-server\r\n\r\n", b"502"), (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, b"502")]
)
def test_a_server_that_speaks_no_http_is_refused(answer: bytes, status: bytes):
    async def reply(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async def work() -> bytes:
        async with server(reply) as port, BrowserProxy(HERE) as egress:
            return await asked(egress, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())

    assert carried_out(work()).startswith(b"HTTP/1.1 " + status)


def test_nonsense_is_refused_and_the_proxy_goes_on():
    async def work() -> tuple[bytes, bytes, bytes]:
        async with server(ok) as port, BrowserProxy(HERE) as egress:
            nonsense = await asked(egress, b"\x16\x03\x01 hello\r\n\r\n")
            nothing = await asked(egress, b"")
            return nonsense, nothing, await asked(egress, f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode())

    nonsense, nothing, answer = carried_out(work())

    assert nonsense.startswith(b"HTTP/1.1 400 ")
    assert nothing == b""
    assert answer.endswith(b"ok")


def test_a_browser_can_bring_in_only_so_much():
    async def flood(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    async def work() -> tuple[bytes, bytes]:
        async with server(flood) as port, BrowserProxy(HERE, max_bytes=50_000) as egress:
            request = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n".encode()
            return await asked(egress, request), await asked(egress, request)

    flooded, after = carried_out(work())

    assert len(flooded) < 60_000
    assert after.startswith(b"HTTP/1.1 403 ")


def test_everything_ends_when_the_browser_does():
    gone = asyncio.Event()

    async def silent(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"there")
        await reader.read()
        gone.set()

    async def work() -> None:
        async with server(silent) as port:
            async with BrowserProxy(HERE) as egress:
                reader, writer = await asyncio.open_connection("127.0.0.1", int(egress.url.rpartition(":")[2]))
                writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nhi\r\n\r\n".encode())
                await reader.readuntil(b"there")
            await gone.wait()
            assert await reader.read() == b""
            writer.close()

    carried_out(work())
