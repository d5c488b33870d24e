"""Hostile responses: redirects, endless bodies and heads, compression bombs, and malformed messages."""

import asyncio
import gzip
import re
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from canvas.errors import AddressRefused, HttpFailed
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import HttpCall, HttpResponse
from tests.attacks import entry_points, hosts, urls
from tests.attacks.entry_points import Clients
from tests.attacks.wire import LOCALHOST, Answer, LocalServer, ReceivedRequest, Wire, local_server, reply, tls

ADMITTED = Guard(allowed=(LOCALHOST,))
TIMEOUT = 60.0  # seconds; nothing here takes that long unless it is broken
MIB = 1024 * 1024
REDIRECT_FOLLOWERS = ("Crawler", "a model's Crawler", "SearXNG", "a model's SearXNG", "an upload", "Browser's uploads")
_NOT_IN_A_HEAD = re.compile(r"[\r\n\x00]")
REDIRECTS = (301, 302, 303, 307, 308)


def run_bounded(work: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(TIMEOUT):
            return await work()

    return asyncio.run(bounded())


def send_to(answer: Answer | bytes, **call: Any) -> tuple[HttpResponse | HttpFailed | AddressRefused, LocalServer]:
    """Send one request to a server with this answer; return the result and the server."""

    async def work() -> Any:
        http = HttpClient(ADMITTED, tls=tls())
        async with local_server(answer) as server:
            try:
                fields = {"method": "GET", "url": server.url(), **call}
                return await http.send(HttpCall(**fields)), server
            except (HttpFailed, AddressRefused) as error:
                return error, server
            finally:
                await http.aclose()

    return run_bounded(work)


# -- redirects --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("entry_point", REDIRECT_FOLLOWERS)
def test_redirect_to_a_non_public_address_is_refused(entry_point: str, wire: Wire):
    """Every hop is resolved and checked like the first one."""
    non_public = (
        *hosts.LOOPBACK,
        *hosts.METADATA,
        *hosts.NETWORKS,
        *hosts.NAMES,
        *hosts.SCOPED,
        *hosts.NON_PUBLIC_NAMES,
    )
    attacks = [*(f"http://{host}/" for host in non_public), *urls.OTHER_SCHEMES, *urls.DISGUISED]
    wire.names = {**wire.names, "first.example": (LOCALHOST,)}

    async def work() -> tuple[int, dict[str, str]]:
        remaining = iter(attacks)

        async def answer(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            location = _NOT_IN_A_HEAD.sub("", next(remaining)) if "/start" in request.line else ""
            head = f"HTTP/1.1 302 X\r\nLocation: {location}\r\n" if location else "HTTP/1.1 404 X\r\n"
            writer.write(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())

        async with local_server(answer) as server:
            wire.own_ports.add(server.port)
            clients = Clients(wire, Guard(allowed=("first.example",)))
            start = server.url("/start", host="first.example")
            outcomes = {attack: await entry_points.URLS[entry_point](start, clients) for attack in attacks}
            await clients.http.aclose()
            return server.port, outcomes

    port, outcomes = run_bounded(work)

    assert {attack: outcome for attack, outcome in outcomes.items() if not outcome} == {}
    assert set(wire.connections) <= {(LOCALHOST, port), ("93.184.216.34", 80)}
    assert len(wire.connections) >= len(attacks)


@pytest.mark.parametrize("status", REDIRECTS)
def test_redirect_to_another_origin_carries_no_credentials(status: int):
    secrets = {"Authorization": "Bearer s3cret", "Cookie": "s=s3cret", "X-Api-Key": "s3cret", "Host": "s3cret.example"}

    async def work() -> Any:
        http = HttpClient(ADMITTED, tls=tls())
        async with (
            local_server(reply(b"ok")) as other,
            local_server(reply(status=status, Location=other.url("/there"))) as first,
        ):
            await http.send(HttpCall("GET", first.url(), headers=secrets, redirects=5))
            await http.aclose()
            return first, other

    first, other = run_bounded(work)

    assert b"s3cret" in first.requests[0].head
    assert len(other.requests) == 1
    assert b"s3cret" not in other.requests[0].head
    assert other.requests[0].headers["host"] == f"{LOCALHOST}:{other.port}"


@pytest.mark.parametrize("status", [307, 308])
def test_request_body_is_not_redirected_to_another_origin(status: int):
    async def work() -> Any:
        http = HttpClient(ADMITTED, tls=tls())
        async with (
            local_server(reply(b"ok")) as other,
            local_server(reply(status=status, Location=other.url())) as first,
        ):
            with pytest.raises(HttpFailed, match="to another server"):
                await http.send(HttpCall("POST", first.url(), json={"k": "s3cret"}, redirects=5))
            await http.aclose()
            return other.requests

    assert run_bounded(work) == []


@pytest.mark.parametrize("status", REDIRECTS)
def test_redirect_loop_fails_after_the_limit(status: int):
    result, server = send_to(reply(status=status, Location="/again"), redirects=5)

    assert isinstance(result, HttpFailed)
    assert "redirects" in result.message
    assert len(server.requests) == 6


# -- bodies and heads -------------------------------------------------------------------------------------------------
def compressed_zeros(encoding: str, size: int) -> bytes:
    """Compress zeros with these encodings, one after another."""
    packed = bytes(size)
    for word in encoding.split(","):
        packed = gzip.compress(packed, 9) if word.strip() == "gzip" else zlib.compress(packed, 9)
    return packed


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "gzip, gzip", "deflate, gzip", "gzip, gzip, gzip"])
def test_compressed_body_over_the_size_limit_fails(encoding: str):
    packed = compressed_zeros(encoding, 64 * MIB)

    result, _ = send_to(reply(packed, Content_Encoding=encoding), max_bytes=MIB)

    assert isinstance(result, HttpFailed)
    assert len(packed) < MIB
    assert "larger than" in result.message or "compressed more than" in result.message
    assert not result.retryable


async def endless_body(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
        await writer.drain()


async def endless_head(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: " + b"a" * 4000 + b"\r\n")
        await writer.drain()


async def endless_line(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 ")
    while True:
        writer.write(b"a" * 0x10000)
        await writer.drain()


async def endless_interim_responses(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """Send interim responses without end."""
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def endless_chunk_extension(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;")
    while True:
        writer.write(b"a" * 0x10000)
        await writer.drain()


async def dribble(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def no_response(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(TIMEOUT)


@pytest.mark.parametrize(
    "answer",
    [
        endless_body,
        endless_head,
        endless_line,
        endless_interim_responses,
        endless_chunk_extension,
        dribble,
        no_response,
    ],
    ids=lambda answer: answer.__name__,
)
def test_endless_response_fails_within_the_timeout(answer: Answer):
    result, _ = send_to(answer, timeout=0.5, max_bytes=MIB)  # less than TIMEOUT, the duration of the answer

    assert isinstance(result, HttpFailed)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 999999 OK\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"220 mail.example ESMTP\r\n",
        b"",
    ],
    ids=repr,
)
def test_malformed_response_fails_with_a_message_that_names_the_host(answer: bytes):
    result, _ = send_to(answer, timeout=1.0)

    assert isinstance(result, HttpFailed)
    assert "127.0.0.1" in result.message


# -- error messages ---------------------------------------------------------------------------------------------------
def test_error_message_contains_no_secret_part_of_the_url():
    url = "http://ann:s3cret-pass@public.example:1/s3cret-path?key=s3cret-key&token=s3cret-token"

    async def work() -> str:
        http = HttpClient(Guard(), timeout=0.2)
        with pytest.raises((HttpFailed, AddressRefused)) as failed:
            await http.send(HttpCall("GET", url))
        await http.aclose()
        return f"{failed.value} {failed.value.details} {failed.value!r}"

    assert "s3cret" not in run_bounded(work)
