"""The pooled HTTP transport to providers, against a small server whose answers each test sets."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

from providers.models.transport import transport
from providers.models.transport.transport import MAX_HEADER_BYTES, MAX_UNREAD_BYTES, PooledTransport
from tests.certificates import create_self_signed

T = TypeVar("T")
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Provider:
    """A server that answers every request alike and counts its requests and connections."""

    answer: Answer
    port: int = 0
    requests: int = 0
    connections: int = 0
    open: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
                self.requests += 1
                await self.answer(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Provider]:
    provider = Provider(answer)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0, ssl=tls, backlog=1000)
    provider.port = server.sockets[0].getsockname()[1]
    try:
        yield provider
    finally:
        server.close()


@asynccontextmanager
async def client(tls: ssl.SSLContext | None = None) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=PooledTransport(tls or ssl.create_default_context()), timeout=10) as client:
        yield client


def reply_with(body: bytes, *headers: bytes, then: Callable[[asyncio.StreamWriter], None] = lambda _: None) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        lines = (b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers, b"", body)
        writer.write(b"\r\n".join(lines))
        then(writer)

    return answer


async def post(client: httpx2.AsyncClient, provider: Provider) -> bytes:
    return (await client.post(f"http://127.0.0.1:{provider.port}/", json={})).content


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.001)


def within_seconds(steps: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(steps, 20))


def test_request_succeeds_if_the_server_closed_the_idle_connection():
    async def steps() -> tuple[bytes, int]:
        async with serving(reply_with(b"hi", then=lambda writer: writer.close())) as provider, client() as http:
            await post(http, provider)
            await until(lambda: provider.open == 0)
            return await post(http, provider), provider.connections

    assert within_seconds(steps()) == (b"hi", 2)


def test_connection_with_unrequested_data_is_not_reused():
    async def steps() -> int:
        with_extra_data = reply_with(
            b"hi", then=lambda writer: writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfake")
        )
        async with serving(with_extra_data) as provider, client() as http:
            assert [await post(http, provider) for _ in range(3)] == [b"hi"] * 3
            return provider.connections

    assert within_seconds(steps()) == 3


def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "IDLE_TIMEOUT", 0.01)

    async def steps() -> None:
        async with serving(reply_with(b"hi")) as provider, client() as http:
            await post(http, provider)
            await until(lambda: provider.open == 0)

    within_seconds(steps())


def test_concurrent_requests_have_a_connection_each_and_reuse_them():
    width = 120

    async def steps() -> tuple[int, list[bytes]]:
        release = asyncio.Event()

        async def answer(writer: asyncio.StreamWriter) -> None:
            await release.wait()
            await reply_with(b"hi")(writer)

        async with serving(answer) as provider, client() as http:
            tasks = [asyncio.create_task(post(http, provider)) for _ in range(width)]
            await until(lambda: provider.requests == width)
            release.set()
            answers = [*await asyncio.gather(*tasks), await post(http, provider)]
            return provider.connections, answers

    assert within_seconds(steps()) == (width, [b"hi"] * (width + 1))


def test_read_timeout_within_an_answer_closes_the_connection():
    async def steps() -> None:
        async def send_half(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

        async with serving(send_half) as provider, client() as http:
            with pytest.raises(httpx2.ReadTimeout):
                await http.post(f"http://127.0.0.1:{provider.port}/", json={}, timeout=0.02)
            await until(lambda: provider.open == 0)

    within_seconds(steps())


def test_slow_reader_pauses_the_provider_and_receives_all_data():
    max_blocks = 256  # times MAX_UNREAD_BYTES: more than socket buffers hold

    async def steps() -> tuple[int, int]:
        stuck = asyncio.Event()
        written = 0

        async def send_much(writer: asyncio.StreamWriter) -> None:
            nonlocal written
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            while written < max_blocks:
                writer.write(b"x" * MAX_UNREAD_BYTES)
                written += 1
                try:
                    await asyncio.wait_for(writer.drain(), 0.1)
                except TimeoutError:
                    stuck.set()
                    await writer.drain()
                    break
            writer.close()

        async with (
            serving(send_much) as provider,
            client() as http,
            http.stream("POST", f"http://127.0.0.1:{provider.port}/", json={}) as reply,
        ):
            await stuck.wait()
            return sum([len(part) async for part in reply.aiter_raw()]), written * MAX_UNREAD_BYTES

    got, written = within_seconds(steps())

    assert got == written


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"], ids=["head", "body"])
def test_cancelled_request_closes_its_connection(head: bytes):
    async def steps() -> None:
        async def begin(writer: asyncio.StreamWriter) -> None:
            writer.write(head)

        async with serving(begin) as provider, client() as http:
            request = asyncio.create_task(post(http, provider))
            await until(lambda: provider.requests == 1)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            await until(lambda: provider.open == 0)

    within_seconds(steps())


@pytest.mark.parametrize("reason", ["cancelled", "too late"])
def test_connection_that_fails_to_open_is_closed(reason: str):
    async def steps() -> None:
        async def never_shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)  # the TLS hello, which is not answered
            has_connected.set()
            await reader.read()  # until the end
            has_disconnected.set()
            writer.close()

        has_connected, has_disconnected = asyncio.Event(), asyncio.Event()
        server = await asyncio.start_server(never_shake_hands, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server, client() as http:
            limits = httpx2.Timeout(10, connect=0.05 if reason == "too late" else 10)
            request = asyncio.create_task(http.post(url, json={}, timeout=limits))
            await has_connected.wait()
            if reason == "cancelled":
                request.cancel()
            with pytest.raises(asyncio.CancelledError if reason == "cancelled" else httpx2.ConnectTimeout):
                await request
            await has_disconnected.wait()

    within_seconds(steps())


def test_closed_client_fails_its_requests_and_leaves_no_connection():
    async def steps() -> None:
        is_requested = asyncio.Event()

        async def never_answer(writer: asyncio.StreamWriter) -> None:
            is_requested.set()

        async with serving(never_answer) as provider, serving(reply_with(b"hi")) as other:
            web = PooledTransport(ssl.create_default_context())
            http = httpx2.AsyncClient(transport=web, timeout=10)
            await post(http, other)
            pending = asyncio.create_task(post(http, provider))
            await is_requested.wait()
            await web.aclose()
            with pytest.raises(httpx2.TransportError):
                await pending
            with pytest.raises(httpx2.ConnectError, match="closed"):
                await post(http, other)
            await until(lambda: provider.open == other.open == 0)

    within_seconds(steps())


def test_streamed_request_body_is_sent_whole_with_its_length():
    async def steps() -> tuple[int, int]:
        async def parts() -> AsyncGenerator[bytes]:
            yield b"one, "
            yield b"two"

        async with serving(reply_with(b"hi")) as provider, client() as http:
            url = f"http://127.0.0.1:{provider.port}/"
            for _ in range(2):
                await http.post(url, content=parts())
            return provider.requests, provider.connections

    assert within_seconds(steps()) == (2, 1)


def test_header_with_a_line_break_is_not_sent():
    async def steps() -> int:
        async with serving(reply_with(b"hi")) as provider, client() as http:
            with pytest.raises(httpx2.LocalProtocolError, match="one line"):
                await http.post(f"http://127.0.0.1:{provider.port}/", headers={"A": "x\r\nB: y"})
            return provider.connections

    assert within_seconds(steps()) == 0


COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;note=x\r\n world\r\n0\r\nDigest: x\r\n\r\n"
)


def send(answer: bytes) -> Answer:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    return write


@pytest.mark.parametrize(
    "answer",
    [
        COUNTED,
        CHUNKED,
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + COUNTED,
        COUNTED.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["length", "chunks", "informational", "HTTP/1.0"],
)
def test_complete_response_is_read(answer: bytes):
    async def steps() -> bytes:
        async with serving(send(answer)) as provider, client() as http:
            return await post(http, provider)

    assert within_seconds(steps()) == b"hello world"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        CHUNKED.replace(b"chunked", b"gzip, chunked"),
        CHUNKED.replace(b"chunked", b"chunked, gzip"),
        CHUNKED.replace(b"chunked", b"gzip"),
        CHUNKED.replace(b"chunked", b"xchunked"),
        CHUNKED.replace(b"chunked", b"chunked\r\nTransfer-Encoding: gzip"),
        CHUNKED.replace(b"\r\n6;note=x\r\n", b"\r\n6\n"),
        b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        CHUNKED.replace(b"Transfer-Encoding", b"Content-Length: 11\r\nTransfer-Encoding"),
        CHUNKED.replace(b"chunked", b"chunked\r\nContent-Length: 11"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 40,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (MAX_HEADER_BYTES + 1) + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
    ],
)
def test_invalid_response_is_a_protocol_error_and_closes_the_connection(answer: bytes):
    async def steps() -> None:
        async with serving(send(answer)) as provider, client() as http:
            with pytest.raises(httpx2.RemoteProtocolError):
                await post(http, provider)
            await until(lambda: provider.open == 0)

    within_seconds(steps())


@pytest.mark.parametrize("start", [COUNTED[:-1], CHUNKED[:-4], b"HTTP/1.1 200 OK\r\n", b""])
def test_connection_that_ends_early_is_a_protocol_error(start: bytes):
    async def steps() -> None:
        async def answer(writer: asyncio.StreamWriter) -> None:
            writer.write(start)
            writer.close()

        async with serving(answer) as provider, client() as http:
            with pytest.raises(httpx2.RemoteProtocolError, match="complete"):
                await post(http, provider)

    within_seconds(steps())


def endless(start: bytes, more: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + start)
        while not writer.transport.is_closing():
            writer.write(more * 100)
            await writer.drain()

    return answer


def test_endless_trailers_are_refused():
    async def steps() -> None:
        async with serving(endless(b"2\r\nhi\r\n0\r\n", b"X: y\r\n")) as provider, client() as http:
            with pytest.raises(httpx2.RemoteProtocolError):
                await post(http, provider)
            await until(lambda: provider.open == 0)

    within_seconds(steps())


@pytest.mark.parametrize(("start", "more"), [(b"", b"0"), (b"2;note=", b"x")], ids=["chunk size", "chunk extension"])
def test_endless_framing_ends_with_the_time_limit_of_its_caller(start: bytes, more: bytes):
    async def steps() -> None:
        async with serving(endless(start, more)) as provider, client() as http:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(post(http, provider), 0.2)
            await until(lambda: provider.open == 0)

    within_seconds(steps())


def test_gzip_response_is_decompressed():
    async def steps() -> bytes:
        compressed = reply_with(gzip.compress(b"hello" * 100), b"Content-Encoding: gzip")
        async with serving(compressed) as provider, client() as http:
            return await post(http, provider)

    assert within_seconds(steps()) == b"hello" * 100


def test_unreachable_server_is_a_connection_error():
    async def steps() -> None:
        async with client() as http:
            with pytest.raises(httpx2.ConnectError):
                await http.post("http://127.0.0.1:1/", json={})

    within_seconds(steps())


def test_redirect_to_another_protocol_is_not_followed():
    async def steps() -> None:
        async def redirect(writer: asyncio.StreamWriter) -> None:
            writer.write(
                b"HTTP/1.1 307 X\r\nLocation: ftp://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n" % provider.port
            )

        async with serving(redirect) as provider, client() as http:
            with pytest.raises(httpx2.UnsupportedProtocol):
                await http.post(f"http://127.0.0.1:{provider.port}/", json={}, follow_redirects=True)

    within_seconds(steps())


def test_certificate_of_the_server_must_match_its_name(tmp_path: Path):
    certificate = create_self_signed(tmp_path / "server.pem", "localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)

    async def steps() -> bytes:
        async with serving(reply_with(b"hi"), tls) as provider:
            async with client(ssl.create_default_context(cafile=str(certificate))) as http:
                with pytest.raises(httpx2.ConnectError, match="certificate"):
                    await http.post(f"https://127.0.0.1:{provider.port}/", json={})
                with_its_name = await http.post(f"https://localhost:{provider.port}/", json={})
            async with client() as http:
                with pytest.raises(httpx2.ConnectError, match="certificate"):
                    await http.post(f"https://localhost:{provider.port}/", json={})
            return with_its_name.content

    assert within_seconds(steps()) == b"hi"
