"""Host names whose address changes, and configured base URLs: only checked addresses are connected to."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import chain, repeat

import pytest

from providers.address_policy import Guard
from tests.attacks import entry_points
from tests.attacks.entry_points import Clients
from tests.attacks.wire import Wire

PUBLIC, PRIVATE = "93.184.216.34", "169.254.169.254"
CONFIGURED_URL = "http://searx.internal"


@dataclass
class RebindingWire(Wire):
    """A name server that answers with a public address so often, and with a private one afterwards."""

    public_answers: int = 1

    async def resolve(self, name: str, port: int) -> Sequence[str]:
        self.looked_up.append(name)
        return [next(self._answers)]

    def __post_init__(self) -> None:
        self._answers = chain(repeat(PUBLIC, self.public_answers), repeat(PRIVATE))


def try_host(entry_point: entry_points.EntryPoint, host: str, wire: Wire) -> str:
    async def work() -> str:
        clients = Clients(wire)
        try:
            return await entry_point(host, clients)
        finally:
            await clients.http.aclose()

    return asyncio.run(work())


@pytest.mark.parametrize("entry_point", entry_points.HOSTS)
def test_host_name_rebound_to_a_private_address_is_refused(entry_point: str, wire: Wire):
    rebinding = RebindingWire(
        connections=wire.connections, public_answers=2 if "proxy" in entry_point else 1
    )  # for the proxy and for its target

    try_host(entry_points.HOSTS[entry_point], "rebinding.example", rebinding)
    again = try_host(entry_points.HOSTS[entry_point], "rebinding.example", rebinding)

    assert {address for address, _ in wire.connections} == {PUBLIC}
    assert again in (entry_points.REFUSED, "skipped")


@pytest.mark.parametrize("entry_point", entry_points.HOSTS)
def test_host_name_with_one_private_address_is_refused(entry_point: str, wire: Wire):
    wire.names = {"mixed.example": (PUBLIC, "2606:2800:220:1::1", PRIVATE)}

    try_host(entry_points.HOSTS[entry_point], "mixed.example", wire)

    assert [address for address, _ in wire.connections if address != PUBLIC] == []


@pytest.mark.parametrize(
    "text",
    [
        f"@{PRIVATE}", f"@{PRIVATE}/", f":80@{PRIVATE}", f".{PRIVATE}.example", f"//{PRIVATE}", f"http:@{PRIVATE}",
        f"HTTP://u@{PRIVATE}", f"ht\ttp://x@{PRIVATE}", f"\\@{PRIVATE}", f"?@{PRIVATE}", f"#@{PRIVATE}", "",
        f"\n@{PRIVATE}", f"http://\n@{PRIVATE}", f"hTTp://x:80@{PRIVATE}/", f"x@{PRIVATE}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("entry_point", ["SearXNG", "a model's SearXNG", "Crawler", "a model's Crawler"])
def test_author_cannot_change_the_host_of_a_configured_base_url(entry_point: str, text: str, wire: Wire):
    """Requests to a configured base URL are trusted, so an author's text must not change its host."""
    wire.names = {"searx.internal": ("10.1.2.3",), "public.example": (PUBLIC,)}
    base_urls = {"SEARXNG": CONFIGURED_URL, "CRAWLER": CONFIGURED_URL}

    async def work() -> str:
        clients = Clients(wire, base_urls=base_urls)
        try:
            return await entry_points.URLS[entry_point](text, clients)
        finally:
            await clients.http.aclose()

    asyncio.run(work())

    assert {address for address, _ in wire.connections} <= {"10.1.2.3"}


def test_allow_list_admits_only_the_listed_hosts(wire: Wire):
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
        clients = Clients(wire, guard)
        try:
            return [await entry_points.HOSTS["Invoke"](host, clients) for host in hosts]
        finally:
            await clients.http.aclose()

    refused = asyncio.run(work(attacks))

    assert set(refused) == {entry_points.REFUSED}
    assert wire.connections == []
    asyncio.run(work(["searx.internal", "a.corp.example", "10.7.0.1", "[::ffff:10.7.0.2]"]))
    connections = [ip_address(address) for address, _ in wire.connections]
    assert connections == [ip_address(each) for each in ("10.1.2.3", "10.9.9.9", "10.7.0.1", "::ffff:10.7.0.2")]
