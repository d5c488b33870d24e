"""Servers that answer to do harm: redirects, bodies and heads without end, bombs, and keys sent back."""

import asyncio
import gzip
import re
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from canvas.errors import AddressRefused, HttpFailed
from providers.http.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import HttpCall, HttpResponse
from tests.attacks import doors, hosts, urls
from tests.attacks.doors import Way
from tests.attacks.wire import HERE, Answer, Asked, Served, Wire, reply, served, tls

ADMITTED = Guard(allowed=(HERE,))
PATIENCE = 60.0  # seconds; nothing here takes that long unless it is broken
MIB = 1024 * 1024
FOLLOWING = ("Crawler", "a model's Crawler", "SearXNG", "a model's SearXNG", "an upload", "Browser's uploads")
_NOT_IN_A_HEAD = re.compile(r"[\r\n\x00]")
REDIRECTS = (301, 302, 303, 307, 308)


def carried_out(work: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE):
            return await work()

    return asyncio.run(bounded())


def answered(answer: Answer | bytes, **call: Any) -> tuple[HttpResponse | HttpFailed | AddressRefused, Served]:
    """What becomes of one call to a server that answers so."""

    async def work() -> Any:
        http = HttpClient(ADMITTED, tls=tls())
        async with served(answer) as server:
            try:
                made = {"method": "GET", "url": server.url(), **call}
                return await http.send(HttpCall(**made)), server
            except (HttpFailed, AddressRefused) as error:
                return error, server
            finally:
                await http.aclose()

    return carried_out(work)


# -- redirects --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("door", FOLLOWING)
def test_no_redirect_leads_inside(door: str, wire: Wire):
    """Every hop is looked up and checked like the first one."""
    inside = (*hosts.LOOPBACK, *hosts.METADATA, *hosts.NETWORKS, *hosts.NAMES, *hosts.SCOPED, *hosts.LOOKED_UP)
    attacks = [*(f"http://{host}/" for host in inside), *urls.OTHER_SCHEMES, *urls.DISGUISED]
    wire.names = {**wire.names, "first.example": (HERE,)}

    async def work() -> tuple[int, dict[str, str]]:
        left = iter(attacks)

        async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
            location = _NOT_IN_A_HEAD.sub("", next(left)) if "/start" in asked.line else ""
            head = f"HTTP/1.1 302 X\r\nLocation: {location}\r\n" if location else "HTTP/1.1 404 X\r\n"
            writer.write(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())

        async with served(answer) as server:
            wire.ours.add(server.port)
            way = Way(wire, Guard(allowed=("first.example",)))
            start = server.url("/start", host="first.example")
            outcomes = {attack: await doors.URLS[door](start, way) for attack in attacks}
            await way.http.aclose()
            return server.port, outcomes

    port, outcomes = carried_out(work)

    assert {attack: outcome for attack, outcome in outcomes.items() if not outcome} == {}
    assert set(wire.dialled) <= {(HERE, port), ("93.184.216.34", 80)}
    assert len(wire.dialled) >= len(attacks)


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_redirect_to_another_origin_takes_no_secret_along(status: int):
    secrets = {"Authorization": "Bearer s3cret", "Cookie": "s=s3cret", "X-Api-Key": "s3cret", "Host": "s3cret.example"}

    async def work() -> Any:
        http = HttpClient(ADMITTED, tls=tls())
        async with served(reply(b"ok")) as other, served(reply(status=status, Location=other.url("/there"))) as first:
            await http.send(HttpCall("GET", first.url(), headers=secrets, redirects=5))
            await http.aclose()
            return first, other

    first, other = carried_out(work)

    assert b"s3cret" in first.asked[0].head
    assert len(other.asked) == 1
    assert b"s3cret" not in other.asked[0].head
    assert other.asked[0].headers["host"] == f"{HERE}:{other.port}"


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_is_never_redirected_to_another_origin(status: int):
    async def work() -> Any:
        http = HttpClient(ADMITTED, tls=tls())
        async with served(reply(b"ok")) as other, served(reply(status=status, Location=other.url())) as first:
            with pytest.raises(HttpFailed, match="to another server"):
                await http.send(HttpCall("POST", first.url(), json={"k": "s3cret"}, redirects=5))
            await http.aclose()
            return other.asked

    assert carried_out(work) == []


@pytest.mark.parametrize("status", REDIRECTS)
def test_redirects_in_a_circle_come_to_an_end(status: int):
    found, server = answered(reply(status=status, Location="/again"), redirects=5)

    assert isinstance(found, HttpFailed)
    assert "redirects" in found.message
    assert len(server.asked) == 6


# -- bodies and heads -------------------------------------------------------------------------------------------------
def bomb(encoding: str, size: int) -> bytes:
    """Zeros, packed as the header says; several words are one in another."""
    packed = bytes(size)
    for word in encoding.split(","):
        packed = gzip.compress(packed, 9) if word.strip() == "gzip" else zlib.compress(packed, 9)
    return packed


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "gzip, gzip", "deflate, gzip", "gzip, gzip, gzip"])
def test_a_body_that_grows_when_it_is_unpacked_is_given_up(encoding: str):
    packed = bomb(encoding, 64 * MIB)

    found, _ = answered(reply(packed, Content_Encoding=encoding), max_bytes=MIB)

    assert isinstance(found, HttpFailed)
    assert len(packed) < MIB
    assert "larger than" in found.message or "compressed more than" in found.message
    assert not found.retryable


async def endless_body(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
        await writer.drain()


async def endless_head(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: " + b"a" * 4000 + b"\r\n")
        await writer.drain()


async def endless_line(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 ")
    while True:
        writer.write(b"a" * 0x10000)
        await writer.drain()


async def endless_patience(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """It is always about to answer."""
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def endless_chunk_extension(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;")
    while True:
        writer.write(b"a" * 0x10000)
        await writer.drain()


async def dribble(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silence(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(PATIENCE)


@pytest.mark.parametrize(
    "answer",
    [endless_body, endless_head, endless_line, endless_patience, endless_chunk_extension, dribble, silence],
    ids=lambda answer: answer.__name__,
)
def test_an_answer_without_an_end_is_left_in_time(answer: Answer):
    found, _ = answered(answer, timeout=0.5, max_bytes=MIB)  # within PATIENCE, for as long as which the server goes on

    assert isinstance(found, HttpFailed)


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
def test_an_answer_that_lies_about_itself_is_a_failure_in_words(answer: bytes):
    found, _ = answered(answer, timeout=1.0)

    assert isinstance(found, HttpFailed)
    assert "127.0.0.1" in found.message


# -- what is said of it -----------------------------------------------------------------------------------------------
def test_no_failure_shows_what_an_address_holds_beside_its_place():
    url = "http://ann:s3cret-pass@public.example:1/s3cret-path?key=s3cret-key&token=s3cret-token"

    async def work() -> str:
        http = HttpClient(Guard(), timeout=0.2)
        with pytest.raises((HttpFailed, AddressRefused)) as failed:
            await http.send(HttpCall("GET", url))
        await http.aclose()
        return f"{failed.value} {failed.value.details} {failed.value!r}"

    assert "s3cret" not in carried_out(work)
