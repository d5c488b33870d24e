"""Names that change their minds, and addresses that a deployment has named: what was checked is what is reached."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import chain, repeat

import pytest

from providers.http.address_policy import Guard
from tests.attacks import doors
from tests.attacks.doors import Way
from tests.attacks.wire import Wire

PUBLIC, PRIVATE = "93.184.216.34", "169.254.169.254"
NAMED = "http://searx.internal"


@dataclass
class Rebinding(Wire):
    """A name server that tells the truth as often as it is told, and leads inside from then on."""

    truths: int = 1

    async def resolve(self, name: str, port: int) -> Sequence[str]:
        self.looked_up.append(name)
        return [next(self._answers)]

    def __post_init__(self) -> None:
        self._answers = chain(repeat(PUBLIC, self.truths), repeat(PRIVATE))


def knocked(door: doors.Door, host: str, wire: Wire) -> str:
    async def work() -> str:
        way = Way(wire)
        try:
            return await door(host, way)
        finally:
            await way.http.aclose()

    return asyncio.run(work())


@pytest.mark.parametrize("door", doors.HOSTS)
def test_a_name_that_leads_inside_when_it_is_looked_up_again_is_not_followed(door: str, wire: Wire):
    rebinding = Rebinding(dialled=wire.dialled, truths=2 if "proxy" in door else 1)  # the proxy, and what lies behind

    knocked(doors.HOSTS[door], "rebinding.example", rebinding)
    again = knocked(doors.HOSTS[door], "rebinding.example", rebinding)

    assert {address for address, _ in wire.dialled} == {PUBLIC}
    assert again in (doors.REFUSED, "skipped")


@pytest.mark.parametrize("door", doors.HOSTS)
def test_a_name_with_one_private_address_among_public_ones_is_refused(door: str, wire: Wire):
    wire.names = {"mixed.example": (PUBLIC, "2606:2800:220:1::1", PRIVATE)}

    knocked(doors.HOSTS[door], "mixed.example", wire)

    assert [address for address, _ in wire.dialled if address != PUBLIC] == []


@pytest.mark.parametrize(
    "written",
    [
        f"@{PRIVATE}", f"@{PRIVATE}/", f":80@{PRIVATE}", f".{PRIVATE}.example", f"//{PRIVATE}", f"http:@{PRIVATE}",
        f"HTTP://u@{PRIVATE}", f"ht\ttp://x@{PRIVATE}", f"\\@{PRIVATE}", f"?@{PRIVATE}", f"#@{PRIVATE}", "",
        f"\n@{PRIVATE}", f"http://\n@{PRIVATE}", f"hTTp://x:80@{PRIVATE}/", f"x@{PRIVATE}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("door", ["SearXNG", "a model's SearXNG", "Crawler", "a model's Crawler"])
def test_where_a_deployment_names_the_server_nobody_else_does(door: str, written: str, wire: Wire):
    """What is behind the named server's address is trusted, so nothing that was written may get into its host."""
    wire.names = {"searx.internal": ("10.1.2.3",), "public.example": (PUBLIC,)}
    named = {"SEARXNG": NAMED, "CRAWLER": NAMED}

    async def work() -> str:
        way = Way(wire, base_urls=named)
        try:
            return await doors.URLS[door](written, way)
        finally:
            await way.http.aclose()

    asyncio.run(work())

    assert {address for address, _ in wire.dialled} <= {"10.1.2.3"}


def test_what_a_deployment_admits_is_that_and_nothing_beside_it(wire: Wire):
    wire.names = {
        "searx.internal": ("10.1.2.3",),
        "xsearx.internal": ("10.1.2.3",),
        "a.corp.example": ("10.9.9.9",),
        "corp.example": ("10.9.9.9",),
        "corp.example.evil.example": ("10.9.9.9",),
    }
    guard = Guard.parse(allowed="searx.internal, *.corp.example, 10.7.0.0/16")
    attacks = [
        "xsearx.internal", "corp.example", "corp.example.evil.example", "10.1.2.3", "10.9.9.9", "10.8.0.1",
        "[::ffff:10.8.0.1]", "searx.internal@127.0.0.1", "localhost",
    ]  # fmt: skip

    async def work(hosts: Sequence[str]) -> list[str]:
        way = Way(wire, guard)
        try:
            return [await doors.HOSTS["Invoke"](host, way) for host in hosts]
        finally:
            await way.http.aclose()

    refused = asyncio.run(work(attacks))

    assert set(refused) == {doors.REFUSED}
    assert wire.dialled == []
    asyncio.run(work(["searx.internal", "a.corp.example", "10.7.0.1", "[::ffff:10.7.0.2]"]))
    dialled = [ip_address(address) for address, _ in wire.dialled]
    assert dialled == [ip_address(each) for each in ("10.1.2.3", "10.9.9.9", "10.7.0.1", "::ffff:10.7.0.2")]
