"""Connections to a provider, against a small server that is told what to answer and when to leave."""

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
from providers.models.transport.transport import MAX_IDLE_CONNECTIONS, MAX_UNREAD_BYTES, PooledTransport
from tests.certificates import self_signed

T = TypeVar("T")
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Provider:
    """Answers every request alike, and knows how many connections it has."""

    answer: Answer
    port: int = 0
    asked: int = 0
    taken: int = 0
    open: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
                self.asked += 1
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


def says(body: bytes, *headers: bytes, then: Callable[[asyncio.StreamWriter], None] = lambda _: None) -> Answer:
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


def test_a_connection_that_the_server_closed_meanwhile_fails_no_request():
    async def steps() -> tuple[bytes, int]:
        async with serving(says(b"hi", then=lambda writer: writer.close())) as provider, client() as asking:
            await post(asking, provider)
            await until(lambda: provider.open == 0)
            return await post(asking, provider), provider.taken

    assert within_seconds(steps()) == (b"hi", 2)


def test_a_connection_over_which_comes_what_nobody_asked_for_is_not_used_again():
    async def steps() -> int:
        more = says(b"hi", then=lambda writer: writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfake"))
        async with serving(more) as provider, client() as asking:
            assert [await post(asking, provider) for _ in range(3)] == [b"hi"] * 3
            return provider.taken

    assert within_seconds(steps()) == 3


def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "IDLE_TIMEOUT", 0.01)

    async def steps() -> None:
        async with serving(says(b"hi")) as provider, client() as asking:
            await post(asking, provider)
            await until(lambda: provider.open == 0)

    within_seconds(steps())


def test_many_requests_at_once_have_a_connection_each_and_leave_a_few_behind():
    width = MAX_IDLE_CONNECTIONS + 20

    async def steps() -> tuple[int, bytes]:
        everybody = asyncio.Event()

        async def answer(writer: asyncio.StreamWriter) -> None:
            await everybody.wait()
            await says(b"hi")(writer)

        async with serving(answer) as provider, client() as asking:
            asked = [asyncio.create_task(post(asking, provider)) for _ in range(width)]
            await until(lambda: provider.asked == width)
            everybody.set()
            answers = await asyncio.gather(*asked)
            await until(lambda: provider.open == MAX_IDLE_CONNECTIONS)
            return provider.taken, answers[-1]

    assert within_seconds(steps()) == (width, b"hi")


def test_a_provider_that_falls_silent_in_mid_answer_is_given_up_and_its_connection_closed():
    async def steps() -> None:
        async def half(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

        async with serving(half) as provider, client() as asking:
            with pytest.raises(httpx2.ReadTimeout):
                await asking.post(f"http://127.0.0.1:{provider.port}/", json={}, timeout=0.02)
            await until(lambda: provider.open == 0)

    within_seconds(steps())


def test_whoever_reads_slowly_makes_the_provider_wait_and_still_gets_everything():
    most = 256  # times MUCH: more than sockets hold

    async def steps() -> tuple[int, int]:
        stuck = asyncio.Event()
        written = 0

        async def much(writer: asyncio.StreamWriter) -> None:
            nonlocal written
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            while written < most:
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
            serving(much) as provider,
            client() as asking,
            asking.stream("POST", f"http://127.0.0.1:{provider.port}/", json={}) as reply,
        ):
            await stuck.wait()
            return sum([len(part) async for part in reply.aiter_raw()]), written * MAX_UNREAD_BYTES

    got, written = within_seconds(steps())

    assert got == written


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"], ids=["head", "body"])
def test_whoever_is_cancelled_takes_its_connection_with_it(said: bytes):
    async def steps() -> None:
        async def begin(writer: asyncio.StreamWriter) -> None:
            writer.write(said)

        async with serving(begin) as provider, client() as asking:
            asked = asyncio.create_task(post(asking, provider))
            await until(lambda: provider.asked == 1)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await until(lambda: provider.open == 0)

    within_seconds(steps())


@pytest.mark.parametrize("way", ["cancelled", "too late"])
def test_a_connection_that_is_never_made_is_not_left_behind(way: str):
    async def steps() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)  # of a greeting that is not returned
            came.set()
            await reader.read()  # until the end
            gone.set()
            writer.close()

        came, gone = asyncio.Event(), asyncio.Event()
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server, client() as asking:
            limits = httpx2.Timeout(10, connect=0.05 if way == "too late" else 10)
            asked = asyncio.create_task(asking.post(url, json={}, timeout=limits))
            await came.wait()
            if way == "cancelled":
                asked.cancel()
            with pytest.raises(asyncio.CancelledError if way == "cancelled" else httpx2.ConnectTimeout):
                await asked
            await gone.wait()

    within_seconds(steps())


def test_a_client_that_is_closed_fails_its_requests_and_leaves_no_connection():
    async def steps() -> None:
        asked = asyncio.Event()

        async def never(writer: asyncio.StreamWriter) -> None:
            asked.set()

        async with serving(never) as provider, serving(says(b"hi")) as other:
            web = PooledTransport(ssl.create_default_context())
            asking = httpx2.AsyncClient(transport=web, timeout=10)
            await post(asking, other)
            waiting = asyncio.create_task(post(asking, provider))
            await asked.wait()
            await web.aclose()
            with pytest.raises(httpx2.TransportError):
                await waiting
            with pytest.raises(httpx2.ConnectError, match="closed"):
                await post(asking, other)
            await until(lambda: provider.open == other.open == 0)

    within_seconds(steps())


def test_a_body_that_comes_in_pieces_is_sent_whole_and_with_its_length():
    async def steps() -> tuple[int, int]:
        async def pieces() -> AsyncGenerator[bytes]:
            yield b"one, "
            yield b"two"

        async with serving(says(b"hi")) as provider, client() as asking:
            url = f"http://127.0.0.1:{provider.port}/"
            for _ in range(2):
                await asking.post(url, content=pieces())
            return provider.asked, provider.taken

    assert within_seconds(steps()) == (2, 1)


def test_a_header_with_a_line_of_its_own_is_not_sent():
    async def steps() -> int:
        async with serving(says(b"hi")) as provider, client() as asking:
            with pytest.raises(httpx2.LocalProtocolError, match="one line"):
                await asking.post(f"http://127.0.0.1:{provider.port}/", headers={"A": "x\r\nB: y"})
            return provider.taken

    assert within_seconds(steps()) == 0


def test_an_answer_that_is_none_is_an_error_of_the_protocol_and_closes_its_connection():
    async def steps() -> None:
        async def confused(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n")

        async with serving(confused) as provider, client() as asking:
            with pytest.raises(httpx2.RemoteProtocolError, match="Transfer-Encoding"):
                await post(asking, provider)
            await until(lambda: provider.open == 0)

    within_seconds(steps())


def test_a_packed_answer_is_unpacked():
    async def steps() -> bytes:
        packed = says(gzip.compress(b"hello" * 100), b"Content-Encoding: gzip")
        async with serving(packed) as provider, client() as asking:
            return await post(asking, provider)

    assert within_seconds(steps()) == b"hello" * 100


def test_a_server_that_cannot_be_reached_is_an_error_of_the_connection():
    async def steps() -> None:
        async with client() as asking:
            with pytest.raises(httpx2.ConnectError):
                await asking.post("http://127.0.0.1:1/", json={})

    within_seconds(steps())


def test_a_redirect_out_of_the_web_is_not_followed():
    async def steps() -> None:
        async def elsewhere(writer: asyncio.StreamWriter) -> None:
            writer.write(
                b"HTTP/1.1 307 X\r\nLocation: ftp://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n" % provider.port
            )

        async with serving(elsewhere) as provider, client() as asking:
            with pytest.raises(httpx2.UnsupportedProtocol):
                await asking.post(f"http://127.0.0.1:{provider.port}/", json={}, follow_redirects=True)

    within_seconds(steps())


def test_a_server_must_prove_its_name(tmp_path: Path):
    certificate = self_signed(tmp_path / "server.pem", "localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)

    async def steps() -> bytes:
        async with serving(says(b"hi"), tls) as provider:
            async with client(ssl.create_default_context(cafile=str(certificate))) as asking:
                with pytest.raises(httpx2.ConnectError, match="certificate"):
                    await asking.post(f"https://127.0.0.1:{provider.port}/", json={})
                with_its_name = await asking.post(f"https://localhost:{provider.port}/", json={})
            async with client() as asking:
                with pytest.raises(httpx2.ConnectError, match="certificate"):
                    await asking.post(f"https://localhost:{provider.port}/", json={})
            return with_its_name.content

    assert within_seconds(steps()) == b"hi"
